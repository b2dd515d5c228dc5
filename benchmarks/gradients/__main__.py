"""Times derived gradient kernels beside hand-written ones, on the current GPU, in rotation.

    python -m benchmarks.gradients                    # all families
    python -m benchmarks.gradients softmax matmul     # some
    python -m benchmarks.gradients --prepare          # compile and compare only, in processes
    python -m benchmarks.gradients --path SOMEWHERE   # with liger-kernel's there, and Triton
    python -m benchmarks.gradients --json FILE        # and write the results
    python -m benchmarks.gradients --write-docs FILE…  # the table in docs/derivatives.md, of them

Both are compiled by tilewright; those of liger-kernel, if given, by Triton. The fastest
configuration of each side counts. Without a GPU, small sizes are compared and nothing is timed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median

import torch

from benchmarks.gpu.clock import CudaClock
from benchmarks.gradients.families import FAMILIES, Comparison
from benchmarks.gradients.results import Result, write_results, write_table
from tilewright import __version__

ROUNDS = 5
NEARLY, ALIKE = 1.05, 3  # configurations that are so near to the fastest one, and how many of them
HOST_CALLS = 20  # they fit into the queue of the GPU


def _configurations(side: dict[str, Callable[[], object]], name: str) -> list[str]:
    """The configurations that run."""
    found: list[str] = []
    for config, run in side.items():
        try:
            run()
            found.append(config)
        except Exception as error:  # one that needs too much shared memory, and others
            text = str(error).strip().splitlines()
            print(f"  {name} {config}: {type(error).__name__}: {text[0][:150] if text else ''}")
    return found


def _worst_error(case: Comparison) -> float:
    exact = case.expected()
    return max(
        float((got.double() - want).abs().max() / want.abs().max().clamp(min=1e-30))
        for got, want in zip(case.gradients, exact, strict=True)
    )


def _compare(case: Comparison) -> dict[str, float]:
    """Check each side's first configuration; the errors of those that compute the gradients.

    Raises:
        AssertionError: one is too large.
    """
    errors: dict[str, float] = {}
    for side, name in ((case.derived, "derived"), (case.written, "hand-written")):
        if name != "derived" and not case.same_results:
            continue
        for run in list(side.values())[:1]:
            for tensor in case.gradients:
                tensor.fill_(torch.nan)
            run()
            errors[name] = _worst_error(case)
            assert errors[name] < case.tolerance, f"{name} is WRONG: error {errors[name]:.1e}"
    return errors


def _timed(case: Comparison, clock: CudaClock, error: float) -> Result:
    runs: dict[str, Callable[[], object]] = {}
    places: dict[str, tuple[str, str]] = {}  # the side and the configuration of each run
    for side, name in ((case.derived, "derived"), (case.written, "hand-written")):
        times = {
            config: clock.quick(side[config], case.bytes) for config in _configurations(side, name)
        }
        for config in _fastest(times):
            runs[f"{name}, {config}"] = side[config]
            places[f"{name}, {config}"] = name, config
    best: dict[str, tuple[float, str]] = {}
    for label, timing in clock.compare(runs, case.bytes).items():
        name, config = places[label]
        best[name] = min(best.get(name, (timing.us, config)), (timing.us, config))
    us, config = best["derived"]
    written_us, written = best.get("hand-written", (None, ""))
    return Result(
        us, config, written_us, written, error, case.bar, case.work, case.bytes, case.flops,
        _host_us(case.derived[config]),
    )  # fmt: skip


def _fastest(times: Mapping[str, float]) -> list[str]:
    """The configurations that a quick estimate does not tell from the fastest one."""
    order = sorted(times, key=lambda config: times[config])
    return [config for config in order[:ALIKE] if times[config] <= NEARLY * times[order[0]]]


def _host_us(run: Callable[[], object]) -> float:
    """Microseconds of the host for one call, the least of several blocks of them."""
    found: list[float] = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(HOST_CALLS):
            run()
        found.append((time.perf_counter() - start) / HOST_CALLS * 1e6)
    torch.cuda.synchronize()
    return min(found)


def _copy(clock: CudaClock) -> float:
    source = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    times = [clock.quick(lambda: target.copy_(source), source.nbytes) for _ in range(5)]
    return 2 * source.nbytes / median(times) / 1e3


def _run(
    families: Sequence[str], match: str, seconds: float, clock: CudaClock | None,
) -> dict[str, Result]:  # fmt: skip
    """Compare the cases of families whose names end with `match`, and time them with a clock."""
    begin = time.monotonic()
    found: dict[str, Result] = {}
    for family in families:
        for name, make in FAMILIES[family](torch.cuda.is_available()).items():
            if not name.endswith(match):
                continue
            if time.monotonic() - begin > seconds:
                print(f"{name}: no time")
                continue
            torch.manual_seed(0)
            start = time.monotonic()
            case = make()
            try:
                errors = _compare(case)
            except AssertionError as error:
                print(f"{name}: {error}", flush=True)
                continue
            if clock is None:
                for side, kind in ((case.derived, "derived"), (case.written, "hand-written")):
                    _configurations(side, f"{name}, {kind}")
            text = ", ".join(f"{side} {error:.1e}" for side, error in errors.items())
            print(f"{name}: errors {text} ({time.monotonic() - start:.1f} s)", flush=True)
            if clock is not None:
                found[name] = _timed(case, clock, errors["derived"])
                print(f"{name}: {found[name].text()}", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--compile", action="store_true", help="compile all configurations")
    parser.add_argument("--match", default="", help="only cases whose name ends with this")
    parser.add_argument("--seconds", type=float, default=1e6, help="start no case after these")
    parser.add_argument("--path", default="", help="the folder of liger_kernel, if not installed")
    parser.add_argument("--json", type=Path, help="where results are written")
    parser.add_argument("--write-docs", type=Path, nargs="+", help="write the table of such files")
    given = parser.parse_args(arguments)
    if given.path:
        sys.path.append(given.path)
    if given.write_docs:
        write_table(given.write_docs)
        return
    if given.prepare:
        _prepare(given)
        return
    on_gpu = torch.cuda.is_available()
    clock = CudaClock(20, ROUNDS) if on_gpu and not given.compile else None
    machine: dict[str, str] = {}
    if clock is not None:
        machine = {
            "copy of device memory": f"{_copy(clock):.0f} GB/s",
            "GPU": torch.cuda.get_device_name(),
            "tilewright": __version__,
        }
        print(machine, flush=True)
    found = _run(given.families, given.match, given.seconds, clock)
    if given.json:
        write_results(given.json, machine, found)


def _prepare(given: argparse.Namespace) -> None:
    """Compile all configurations, each case in a process of its own."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.gradients", "--compile", "--path", given.path]

    def compile_case(place: tuple[str, str]) -> None:
        family, name = place
        left = given.seconds - (time.monotonic() - begin)
        with suppress(subprocess.TimeoutExpired):
            subprocess.run([*command, "--match", name, family], timeout=max(1.0, left), check=False)

    on_gpu = torch.cuda.is_available()
    places = [(family, name) for family in given.families for name in FAMILIES[family](on_gpu)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(compile_case, places))


if __name__ == "__main__":
    main()

"""Times derived gradient kernels beside hand-written ones, on the current GPU, in rotation.

    python -m benchmarks.gradients                    # all families
    python -m benchmarks.gradients softmax matmul     # some
    python -m benchmarks.gradients --prepare          # compile and compare only, in processes

Both are compiled by tilewright. The fastest configuration of each counts. Without a GPU, small
sizes are compared and nothing is timed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from benchmarks.gpu.clock import CudaClock
from benchmarks.gradients.families import FAMILIES, Comparison

ROUNDS = 5


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


def _compare(case: Comparison) -> str:
    """Check each side's first configuration, and return the rest of the line."""
    for side, name in ((case.derived, "derived"), (case.written, "hand-written")):
        for run in list(side.values())[:1]:
            for tensor in case.gradients if case.same_results or name == "derived" else ():
                tensor.fill_(torch.nan)
            run()
            error = _worst_error(case) if case.same_results or name == "derived" else 0.0
            if not error < case.tolerance:
                return f"{name} is WRONG: error {error:.1e}"
    return ""


def _timed(case: Comparison, clock: CudaClock) -> str:
    best: dict[str, tuple[float, str]] = {}
    runs: dict[str, Callable[[], object]] = {}
    for side, name in ((case.derived, "derived"), (case.written, "hand-written")):
        times = {
            config: clock.quick(side[config], case.bytes) for config in _configurations(side, name)
        }
        if times:
            config = min(times, key=lambda key: times[key])
            best[name] = times[config], config
            runs[name] = side[config]
    timings = clock.compare(runs, case.bytes)
    line = ", ".join(f"{name} {timings[name].us:.1f} us [{best[name][1]}]" for name in runs)
    if len(timings) == 2:
        ratio = timings["hand-written"].us * case.work / timings["derived"].us
        line += f", ratio {ratio:.3f} (bar {case.bar})"
    derived = timings["derived"].us
    line += f", {case.bytes / derived / 1e3:.0f} GB/s" if not case.flops else ""
    line += f", {case.flops / derived / 1e6:.0f} TFLOP/s" if case.flops else ""
    return line


def _copy(clock: CudaClock) -> float:
    source = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    times = [clock.quick(lambda: target.copy_(source), source.nbytes) for _ in range(5)]
    return 2 * source.nbytes / median(times) / 1e3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--compile", action="store_true", help="compile all configurations")
    parser.add_argument("--match", default="", help="only cases whose name ends with this")
    parser.add_argument("--seconds", type=float, default=1e9)
    given = parser.parse_args(arguments)
    begin = time.monotonic()
    if given.prepare:
        names = list(given.families)
        processes = [
            subprocess.Popen([sys.executable, "-m", "benchmarks.gradients", name, "--compile"])
            for name in names
        ]
        for process in processes:
            process.wait(max(1.0, given.seconds - (time.monotonic() - begin)))
        return
    on_gpu = torch.cuda.is_available()
    clock = CudaClock(20, ROUNDS) if on_gpu and not given.compile else None
    if clock is not None:
        print(f"copy {_copy(clock):.0f} GB/s", flush=True)
    for family in given.families:
        for name, make in FAMILIES[family](on_gpu).items():
            if not name.endswith(given.match):
                continue
            if time.monotonic() - begin > given.seconds:
                print(f"{name}: no time")
                continue
            torch.manual_seed(0)
            start = time.monotonic()
            case = make()
            wrong = _compare(case)
            if given.compile:
                for side, kind in ((case.derived, "derived"), (case.written, "hand-written")):
                    _configurations(side, f"{name}, {kind}")
            seconds = time.monotonic() - start
            print(f"{name}: {wrong or 'agrees'} ({seconds:.1f} s)", flush=True)
            if clock is not None:
                print(f"{name}: {_timed(case, clock)}", flush=True)


if __name__ == "__main__":
    main()

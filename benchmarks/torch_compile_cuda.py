"""Measures torch.compile on an NVIDIA GPU: tilewright in Triton's place against Triton.

python -m benchmarks.torch_compile_cuda                      all cases with both compilers
python -m benchmarks.torch_compile_cuda --only norm,GPT      those with "norm" or "GPT" in the name
python -m benchmarks.torch_compile_cuda --set features       features instead of models
python -m benchmarks.torch_compile_cuda --set cpp            kernels that C++ code launches

Each case has a process for each compiler, with caches of its own. The processes import torch and
the compiler, which does not count as compile time. They compile at the same time, several cases at
once, and then measure in rotation, one process at a time. Then further processes start with the
same caches, for the warm compile time. A ratio is tilewright's time over Triton's: below 1,
tilewright is faster. Results are compared with eager execution.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks import ROOT, cache_bytecode, child_environment
from benchmarks.torch_cuda_cases import SETS, Case

COMPILERS = ("tilewright", "triton")
ROUNDS = 6
SAMPLES = 3
FEW = 20
"""Calls by which the time of the CPU is measured: they are queued without waiting for the GPU."""
ERROR_LINES = 5

OWN = ("triton_", "scale_and_add", "tuned_double")
"""What the names of kernels begin with that are not a library's."""

NUMBER = re.compile(r"_\d+$")

IMPORTED = ("triton.language", "torch._inductor.compile_fx", "torch._inductor.codegen.triton")

PARTS = (0.75, 0.9, 1.0)
"""The parts of the time limit by whose end compiling, measuring and the warm starts are stopped."""

Row = dict[str, Any]


# --- the process of a case


def _largest_error(found: Any, expected: Any) -> float:
    """The largest difference between tensors of two results, relative to their largest value."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        a, b = a.detach().double(), b.detach().double()
        scale = max(1.0, float(b.abs().max())) if b.numel() else 1.0
        difference = float((a - b).abs().max()) if b.numel() else 0.0
        if difference != difference or difference / scale > worst:
            worst = difference / scale
    return worst


def _timed(step: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Seconds of a call: as many calls as fit, by the GPU's clock; and those of the CPU until a
    call returns."""
    import torch

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    calls = max(3, min(1000, int(seconds / SAMPLES / max(1e-6, time.perf_counter() - start))))
    samples: list[float] = []
    for _ in range(SAMPLES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            step()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) / calls / 1e3)
    host: list[float] = []
    few = min(calls, FEW)
    for _ in range(SAMPLES):
        start = time.perf_counter()
        for _ in range(few):
            step()
        host.append((time.perf_counter() - start) / few)
        torch.cuda.synchronize()
    return min(samples), min(host)


def _kernel_times(step: Callable[[], Any]) -> dict[str, float]:
    """Microseconds of the GPU by the name of a kernel, of one call.

    Inductor's kernels of a module are numbered, and have their names without the number here:
    whether a matrix product has a kernel that pads its operand, before the others, depends on a
    measurement of torch.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    times: dict[str, float] = {}
    for event in found.key_averages():
        time_us = getattr(event, "device_time_total", 0.0)
        if time_us:
            name = NUMBER.sub("", event.key) if event.key.startswith(OWN) else event.key
            times[name] = times.get(name, 0.0) + time_us / 5
    return times


def _phases() -> dict[str, float]:
    """Seconds of torch's phases of compiling so far, which contain each other."""
    times: dict[str, list[float]] = sys.modules["torch._dynamo.utils"].compilation_time_metrics
    return {name.rpartition(".")[2]: sum(seconds) for name, seconds in times.items()}


def _launchers() -> dict[str, int]:
    """How many of the configurations of Inductor's kernels are launched in which way."""
    heuristics: Any = sys.modules.get("torch._inductor.runtime.triton_heuristics")
    if heuristics is None:
        return {}
    kernels = (found for found in gc.get_objects() if type(found) is heuristics.CachingAutotuner)
    return dict(Counter(type(made).__name__ for one in kernels for made in one.compile_results))


def _say(**row: Any) -> None:
    print(json.dumps(row), flush=True)


def _import_compiler(compiler: str) -> float:
    """Import what the first compilation would import. Returns the seconds that it took.

    `enable` imports a part of it, which else counted for Triton alone.
    """
    start = time.perf_counter()
    if compiler == "tilewright":
        import tilewright

        tilewright.torch.enable(cpu=False)
    for name in IMPORTED:
        importlib.import_module(name)
    return time.perf_counter() - start


def _child(name: str, compiler: str, measure: bool) -> None:
    """Compile a case, then measure it whenever a line arrives on standard input."""
    import torch

    import_s = _import_compiler(compiler)
    (case,) = [case for cases in SETS.values() for case in cases if case.name == name]
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.zeros(8, 8, device="cuda").mm(torch.zeros(8, 8, device="cuda"))  # starts the library
    eager, compiled = case.make()
    expected = eager()
    torch.cuda.synchronize()
    start = time.perf_counter()
    found = compiled()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    again = compiled()
    error = max(_largest_error(found, expected), _largest_error(again, expected))
    counters = sys.modules["torch._dynamo.utils"].counters["inductor"]
    _say(
        import_s=import_s,
        compile_s=seconds,
        error=error,
        wrong=not error <= case.tolerance,
        counters={k: v for k, v in counters.items() if re.search("static|bundler|fxgraph", k)},
        phases=_phases(),
        launchers=_launchers(),
    )
    for line in sys.stdin if measure else ():
        order, _, seconds_text = line.strip().partition(" ")
        if order == "time":
            gpu, host = _timed(compiled, float(seconds_text))
            _say(us=1e6 * gpu, host_us=1e6 * host)
        elif order == "kernels":
            _say(kernels=_kernel_times(compiled))
        else:
            break
    sys.stdout.flush()
    os._exit(0)  # the compile workers and the GPU's context need no orderly end


def _guarded_child(name: str, compiler: str, measure: bool) -> None:
    try:
        _child(name, compiler, measure)
    except BaseException as error:
        text = "".join(traceback.format_exception(error)).partition("Set TORCHDYNAMO_VERBOSE")[0]
        lines = [line for line in text.splitlines() if line.strip(" ^~")]
        _say(failed=[line[:180] for line in lines[-ERROR_LINES:]])
        os._exit(1)


# --- the parent


class Process:
    """A case in a process of its own."""

    def __init__(self, case: Case, compiler: str, folder: Path, measure: bool = True) -> None:
        self.case, self.compiler = case, compiler
        env = child_environment(
            TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor"),
            TRITON_CACHE_DIR=str(folder / "triton"),
            TILEWRIGHT_CACHE_DIR=str(folder / "triton"),
            TRITON_HOME=str(folder),
            TORCHINDUCTOR_COMPILE_THREADS="4",
        )
        command = [sys.executable, "-m", "benchmarks.torch_compile_cuda"]
        command += ["--one", case.name, compiler, "measure" if measure else ""]
        self.log = open(folder / "stderr.txt", "w")  # noqa: SIM115 (outlives this function)
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
        )  # fmt: skip
        self.row: Row = {}

    def read(self, deadline: float) -> Row:
        """The next line of the process, as a row; what happened instead, if there is none."""
        killer = threading.Timer(max(0.1, deadline - time.monotonic()), self.process.kill)
        killer.start()
        try:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        finally:
            killer.cancel()
        late = time.monotonic() >= deadline
        code = self.process.wait()
        lines = Path(self.log.name).read_text().strip().splitlines()[-ERROR_LINES:]
        return {"failed": ["stopped: out of time"] if late else [f"exit {code}", *lines]}

    def ask(self, order: str, deadline: float) -> Row:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(order + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"failed": ["gone"]}
        return self.read(deadline)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()


def _start_and_read(processes: Sequence[Process], deadline: float) -> None:
    readers = [
        threading.Thread(target=lambda p=process: p.row.update(p.read(deadline)))
        for process in processes
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()


def _compile(cases: Sequence[Case], root: Path, at_once: int, deadline: float) -> list[Process]:
    """The processes of all cases, which have compiled: both of a case at the same time."""

    def both(case: Case) -> list[Process]:
        pair = [Process(case, compiler, _folder(root, case, compiler)) for compiler in COMPILERS]
        _start_and_read(pair, deadline)
        return pair

    with ThreadPoolExecutor(at_once) as pool:
        return [process for pair in pool.map(both, cases) for process in pair]


def _folder(root: Path, case: Case, compiler: str) -> Path:
    folder = root / compiler / case.name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _measure(processes: Sequence[Process], seconds: float, deadline: float) -> None:
    working = [p for p in processes if "failed" not in p.row]
    for _ in range(ROUNDS):
        for process in working:
            row = process.ask(f"time {seconds / ROUNDS}", deadline)
            if "failed" in row:
                process.row.setdefault("failed", row["failed"])
                continue
            for key, value in row.items():
                process.row[key] = min(value, process.row.get(key, value))
    for process in [p for p in working if "failed" not in p.row]:
        process.row.update(process.ask("kernels", deadline))


def run(
    cases: Sequence[Case], at_once: int, seconds: float, limit: float, keep: Path | None = None
) -> list[Row]:
    """The results of both compilers for each case.

    Args:
        keep: a folder for the caches; by default a temporary one.
        at_once: cases that compile at the same time.
        seconds: of measuring per process.
        limit: seconds after which nothing further begins, and what is unfinished is stopped.
    """
    cache_bytecode()
    compiled, measured, deadline = (time.monotonic() + limit * part for part in PARTS)
    temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with nullcontext(str(keep)) if keep else temporary as name:
        root = Path(name)
        processes = _compile(cases, root, at_once, compiled)
        _measure(processes, seconds, measured)
        for process in processes:
            process.end()
        warm = [
            Process(p.case, p.compiler, _folder(root, p.case, p.compiler), measure=False)
            for p in processes
            if "compile_s" in p.row
        ]
        _start_and_read(warm, deadline)
        for process in warm:
            process.end()
        rows: list[Row] = []
        for case in cases:
            row: Row = {"case": case.name}
            for process in [p for p in processes if p.case is case]:
                row[process.compiler] = process.row
            for process in [p for p in warm if p.case is case]:
                row[process.compiler]["warm"] = process.row
            rows.append(row)
    return rows


# --- the report


def _ratio(row: Row, *keys: str) -> float | None:
    values: list[float] = []
    for compiler in COMPILERS:
        value: Any = row.get(compiler, {})
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if not value:
            return None
        values.append(float(value))
    return values[0] / values[1]


def _kernel_ratio(row: Row) -> float | None:
    """The ratio of the times of the kernels that the compilers have compiled."""
    ours, theirs = (
        sum(us for name, us in row[compiler].get("kernels", {}).items() if name in _compiled(row))
        for compiler in COMPILERS
    )
    return ours / theirs if ours and theirs else None


def _compiled(row: Row) -> set[str]:
    """Names of kernels that both compilers have compiled: libraries' kernels have C++ names."""
    names = (set(row[compiler].get("kernels", {})) for compiler in COMPILERS)
    ours, theirs = names
    return {name for name in ours & theirs if name.startswith(OWN)}


def _number(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)


def _line(row: Row) -> str:
    parts: list[str] = []
    for compiler in COMPILERS:
        found = row[compiler]
        parts.append(
            f"{_number(found.get('us'), '.1f')}/{_number(found.get('host_us'), '.1f')}us"
            f" {_number(found.get('compile_s'), '.1f')}s"
            f" {_number(found.get('warm', {}).get('compile_s'), '.1f')}s"
            f" e{_number(found.get('error'), '.1e')}{' WRONG' if found.get('wrong') else ''}"
        )
    ratios = [("us",), ("compile_s",), ("warm", "compile_s")]
    values = [_kernel_ratio(row), *(_ratio(row, *keys) for keys in ratios)]
    found = " ".join(_number(value) for value in values)
    return f"{row['case'][:24]:24} {found} | {' | '.join(parts)}"


def _slow_kernels(row: Row, least: float = 0.02) -> Iterable[str]:
    """The kernels that take longer than Triton's, by more than `least` of the case's time."""
    ours, theirs = (row[compiler].get("kernels", {}) for compiler in COMPILERS)
    if not (ours and theirs):
        return
    total = sum(theirs.values())
    for name in sorted(
        ours.keys() | theirs.keys(), key=lambda n: theirs.get(n, 0) - ours.get(n, 0)
    ):
        a, b = ours.get(name, 0.0), theirs.get(name, 0.0)
        if a - b > least * total:
            yield f"    {name[:70]} {a:.1f} {b:.1f}"


def report(rows: Sequence[Row]) -> None:
    print("case: ratios kernels, run, cold, warm | tilewright: us, host us, cold, warm | triton")
    for row in rows:
        print(_line(row))
        for line in list(_slow_kernels(row))[:3]:
            print(line)
        for compiler in COMPILERS:
            found = row[compiler]
            for line in found.get("failed") or found.get("warm", {}).get("failed", ()):
                print(f"    {compiler}: {line}")
    kernels = [ratio for row in rows if (ratio := _kernel_ratio(row))]
    if kernels:
        print(f"kernels: geometric mean {geometric_mean(kernels):.3f}, worst {max(kernels):.3f}")
    titles = (("run", "us"), ("cold", "compile_s"), ("warm", "warm", "compile_s"))
    for title, *keys in (*titles, ("import", "import_s")):
        ratios = [ratio for row in rows if (ratio := _ratio(row, *keys))]
        if ratios:
            print(f"{title}: geometric mean {geometric_mean(ratios):.3f}, worst {max(ratios):.3f}")
    for compiler in COMPILERS:
        totals: dict[str, int] = {}
        for row in rows:
            for found in (row[compiler], row[compiler].get("warm", {})):
                for key, value in found.get("counters", {}).items():
                    totals[key] = totals.get(key, 0) + value
        print(compiler, totals)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="parts of names, with commas between")
    parser.add_argument("--set", default="models", choices=list(SETS), dest="chosen")
    parser.add_argument("--at-once", type=int, default=4, help="cases that compile together")
    parser.add_argument("--seconds", type=float, default=0.5, help="of measuring per process")
    parser.add_argument("--limit", type=float, default=600, help="seconds in all")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--keep", type=Path, help="a folder for the caches with generated code")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        _guarded_child(args.one[0], args.one[1], bool(args.one[2]))
        return
    words = args.only.split(",")
    cases = [case for case in SETS[args.chosen] if any(word in case.name for word in words)]
    rows = run(cases, args.at_once, args.seconds, args.limit, args.keep)
    report(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

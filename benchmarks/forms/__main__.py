"""Times kernels in forms that people publish under tilewright and Triton, with equal launches.

python -m benchmarks.forms                                  everything, on the current GPU
python -m benchmarks.forms --only rotary,GEMV               forms by parts of their names
python -m benchmarks.forms --write-docs                     writes docs/benchmarks-forms.md, too
python -m benchmarks.forms --device cpu --check-only        results under tilewright, anywhere

A ratio is Triton's time over tilewright's: above 1, tilewright is faster. The launches are not
tuned: both compilers get the block sizes, warps and stages with which such kernels are launched.
Kernels are compiled in parallel first. Results of both must agree.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

import torch

from benchmarks.forms import page
from benchmarks.forms.form import Form
from benchmarks.forms.run import Outcome, measure, only_compile
from benchmarks.forms.work import ALL, FIRST, chosen
from benchmarks.gpu import dialect, worker
from benchmarks.gpu.case import Setting
from benchmarks.gpu.clock import CudaClock


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.forms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="TEXT,…", help="parts of names of forms")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--check-only", action="store_true", help="small sizes, no times")
    parser.add_argument("--processes", type=int, default=8, help="compile in so many (default 8)")
    parser.add_argument("--limit-seconds", type=float, default=3600, help="begin no form later")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks-forms.md")
    parser.add_argument("--compile-part", nargs=2, metavar="", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.device == "cpu" and not args.check_only:
        parser.error("--device cpu takes --check-only: times are those of the GPU")
    if args.write_docs and (args.check_only or args.only):
        parser.error("--write-docs takes neither --only nor --check-only: the page is of all forms")
    return args


def _compile_all(args: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """Compile in several processes; results are in the compilers' caches.

    Args:
        folder: for the files by which the processes say what they took.

    Returns:
        seconds of processor time by form and compiler.
    """
    command = [sys.executable, "-m", "benchmarks.forms", "--only", args.only]
    parts: dict[Path, subprocess.Popen[bytes]] = {}
    for i in range(args.processes):
        times = folder / f"{i}.json"
        part = [*command, "--compile-part", f"{i}/{args.processes}", str(times)]
        parts[times] = subprocess.Popen(part)
    found: dict[str, dict[str, float]] = {}
    for times, process in parts.items():
        if process.wait() == 0:
            found |= json.loads(times.read_text("utf-8"))
    return found


def _compile_part(part: str, times: Path, forms: Sequence[Form], setting: Setting) -> None:
    """For a `part` "I/N": compile each of N forms from the I-th on; write seconds to `times`."""
    at, of = map(int, part.split("/"))
    with dialect.caches(times.with_suffix(".first")):  # what it imports is not of any kernel
        only_compile([ALL[FIRST]], setting, dialect.MODULES)
    found = only_compile(forms[at::of], setting, dialect.MODULES)
    found.pop(FIRST, None)  # compiled above
    times.write_text(json.dumps(found), "utf-8")


def _measure_all(
    args: argparse.Namespace, setting: Setting, clock: CudaClock | None
) -> list[Outcome]:
    start = monotonic()
    forms = chosen(args.only)
    modules = [module for module in dialect.MODULES if not dialect.missing(module)]
    compiled: Mapping[str, Mapping[str, float]] = {}
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder, dialect.caches(Path(folder)):
        if args.device == "cuda":
            compiled = _compile_all(args, Path(folder))
        else:
            modules = [dialect.WRITTEN_FOR]
        for form in forms:
            if monotonic() - start > args.limit_seconds:
                print(f"no time: {form.name}")
                continue
            outcome = measure(form, setting, modules, clock)
            outcome.compile.update(compiled.get(form.name, {}))
            outcomes.append(outcome)
            print(outcome, flush=True)
    return outcomes


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    torch.manual_seed(0)
    setting = Setting(args.device, "check" if args.check_only else "full")
    if args.compile_part:
        part, times = args.compile_part
        _compile_part(part, Path(times), chosen(args.only), setting)
        return 0
    clock = None if args.check_only else CudaClock(block_ms=4, rounds=4)
    outcomes = _measure_all(args, setting, clock)
    if clock is not None:
        print("\nleast first:")
        for outcome in sorted(outcomes, key=lambda outcome: outcome.ratio):
            print(f"{outcome.ratio:.3f} {outcome.name}")
    if args.write_docs:
        page.write(outcomes, worker.machine(args.device))
    return int(any(outcome.failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

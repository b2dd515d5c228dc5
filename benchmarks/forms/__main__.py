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
import subprocess
import sys
from collections.abc import Sequence
from time import monotonic

import torch

from benchmarks.forms import page
from benchmarks.forms.run import Outcome, measure, only_compile
from benchmarks.forms.work import chosen
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
    parser.add_argument("--compile-part", metavar="I/N", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.device == "cpu" and not args.check_only:
        parser.error("--device cpu takes --check-only: times are those of the GPU")
    if args.write_docs and (args.check_only or args.only):
        parser.error("--write-docs takes neither --only nor --check-only: the page is of all forms")
    return args


def _compile_all(args: argparse.Namespace) -> None:
    """Compile in several processes; results are in the compilers' caches."""
    command = [sys.executable, "-m", "benchmarks.forms", "--only", args.only]
    parts = [
        subprocess.Popen([*command, "--compile-part", f"{i}/{args.processes}"])
        for i in range(args.processes)
    ]
    for part in parts:
        part.wait()


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    start = monotonic()
    torch.manual_seed(0)
    forms = chosen(args.only)
    setting = Setting(args.device, "check" if args.check_only else "full")
    modules = [module for module in dialect.MODULES if not dialect.missing(module)]
    if args.device == "cpu":
        modules = [dialect.WRITTEN_FOR]
    if args.compile_part:
        at, of = map(int, args.compile_part.split("/"))
        only_compile(forms[at::of], setting, modules)
        return 0
    if args.device == "cuda":
        _compile_all(args)
    clock = None if args.check_only else CudaClock(block_ms=4, rounds=4)
    outcomes: list[Outcome] = []
    for form in forms:
        if monotonic() - start > args.limit_seconds:
            print(f"no time: {form.name}")
            continue
        outcomes.append(measure(form, setting, modules, clock))
        print(outcomes[-1], flush=True)
    if clock is not None:
        print("\nleast first:")
        for outcome in sorted(outcomes, key=lambda outcome: outcome.ratio):
            print(f"{outcome.ratio:.3f} {outcome.name}")
    if args.write_docs:
        page.write(outcomes, worker.machine(args.device))
    return int(any(outcome.failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

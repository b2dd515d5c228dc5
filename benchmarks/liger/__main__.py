"""Runs the operators of liger-kernel on tilewright, and compares their speed with Triton's.

    pip install --no-deps --target SOMEWHERE liger-kernel packaging
    python -m benchmarks.liger --path SOMEWHERE --device cpu         results, on CPU tensors
    python -m benchmarks.liger --path SOMEWHERE --json out.json --write-docs
                                        all of it where there are a GPU and Triton: docs/liger.md
    python -m benchmarks.liger --path SOMEWHERE --rehearse           the whole way, on the CPU

A ratio is Triton's time over tilewright's: above 1, tilewright is faster. A failing operator is
reported, and the run continues. The file of results is written after each step; with --continue,
steps that are in it are skipped. The exit status is 1 if an operator fails or is wrong on
tilewright.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from time import time

import torch

from benchmarks.contestants import OURS, TRITON, Contestant
from benchmarks.liger import page
from benchmarks.liger.results import Results
from benchmarks.liger.steps import CHECK_SECONDS, Run, Step
from benchmarks.page import processor

WORKER = "benchmarks.liger.worker"

CPU = tuple(Step("cpu", dtype) for dtype in ("float32", "bfloat16", "float16"))
CUDA = (Step("cuda", "float32"), Step("cuda", "bfloat16", timed=True))
REHEARSAL = (Step("cpu", "float32", small=True), Step("cpu", "bfloat16", timed=True, small=True))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.liger",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--path", default="", help="the folder of liger_kernel, if not installed")
    parser.add_argument("--device", choices=("cpu", "cuda", "both"), help="default: all there are")
    parser.add_argument("--only", default="", metavar="TEXT", help="operators whose names hold it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there")
    parser.add_argument(
        "--continue", dest="go_on", action="store_true", help="do only what --json has not"
    )
    parser.add_argument("--limit-seconds", type=float, help="begin nothing after so long")
    parser.add_argument("--log", type=Path, metavar="FILE", help="what the workers print")
    parser.add_argument("--write-docs", action="store_true", help="write docs/liger.md")
    parser.add_argument(
        "--rehearse", action="store_true", help="no GPU: small, and tilewright is its own rival"
    )
    args = parser.parse_args(arguments)
    if args.go_on and not args.json:
        parser.error("--continue takes the --json of an earlier run")
    if args.write_docs and (args.rehearse or args.only):
        parser.error("--write-docs takes all of it")
    if args.device in ("cuda", "both") and not torch.cuda.is_available():
        parser.error(f"--device {args.device}: torch finds no GPU")
    return args


def _steps(args: argparse.Namespace) -> tuple[Step, ...]:
    if args.rehearse:
        return REHEARSAL
    device = args.device or ("both" if torch.cuda.is_available() else "cpu")
    return CUDA * (device != "cpu") + CPU * (device != "cuda")


def _contestants(args: argparse.Namespace, log: ExitStack) -> dict[str, Contestant]:
    file = log.enter_context(args.log.open("w")) if args.log else sys.stderr
    names = {OURS: OURS}
    if args.rehearse or find_spec("triton") is not None:
        names[TRITON] = OURS if args.rehearse else TRITON
    path = args.path and str(Path(args.path).resolve())
    return {name: Contestant(WORKER, [who, path], file) for name, who in names.items()}


def _machine(run: Run, steps: tuple[Step, ...]) -> dict[str, str]:
    """The hardware and software by kind of device, as CPU and GPU results may come from different
    machines."""
    found = [c.ask(CHECK_SECONDS, "about") for c in run.contestants.values()]
    if failures := [x["failure"] for x in found if "failure" in x]:
        raise SystemExit("; ".join(failures))
    versions = (
        ", ".join(x["contestant"] for x in found)
        + f", torch {found[0]['torch']}, liger-kernel {found[0]['liger']}, "
        f"Python {platform.python_version()}; {datetime.now(UTC):%Y-%m-%d}"
    )
    about: dict[str, str] = {}
    if any(step.device == "cpu" for step in steps):
        about["CPU"] = f"{processor()}; {versions}"
    if any(step.device == "cuda" for step in steps):
        gpu = torch.cuda.get_device_properties(0)
        about["GPU"] = f"{gpu.name}, {gpu.multi_processor_count} processors; {versions}"
    return about


def main(arguments: list[str]) -> int:
    args = _parse(arguments)
    steps = _steps(args)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        path: Path = args.json.resolve() if args.json else Path(folder, "results.json")
        results = Results.load(path) if args.go_on and path.exists() else Results()
        run = Run(_contestants(args, stack), results, path)
        if args.limit_seconds is not None:
            run.until = time() + args.limit_seconds
        for contestant in run.contestants.values():
            stack.callback(contestant.end)
        results.machine |= _machine(run, steps)
        print("Errors; times of Triton / tilewright = ratio.", flush=True)
        for operator, step, row in run.do(steps, args.only):
            print(page.line(operator, step, row), flush=True)
    print("\n".join(page.summary(results)))
    if run.missed:
        print(f"not done, for lack of time: {'; '.join(run.missed)}")
    if args.write_docs:
        page.write(results)
    return int(any(row.wrong() for row in results.rows.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Measures kernels on the GPU with tilewright, Triton and torch, in the same run.

python -m benchmarks.gpu                                    everything
python -m benchmarks.gpu --only softmax,add --quick         two kinds of work, roughly
python -m benchmarks.gpu --json out.json --write-docs       and write docs/benchmarks-gpu.md
python -m benchmarks.gpu --device cpu --check-only          only whether results are right, anywhere

A ratio is the rival's time over ours: above 1, tilewright is faster. A failing kernel is reported,
and the run continues. The file of results is written after each case; with --continue, cases that
are in it are skipped.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from time import time

from benchmarks.gpu import dialect, page, report
from benchmarks.gpu.options import Options
from benchmarks.gpu.supervisor import run_all


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="TEXT,…", help="parts of names of families")
    parser.add_argument(
        "--module", metavar="NAME,…", help=f"of {','.join(dialect.MODULES)} (default: those there)"
    )
    parser.add_argument("--quick", action="store_true", help="few sizes, measured shortly")
    parser.add_argument("--check-only", action="store_true", help="small sizes, no times")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all results there")
    parser.add_argument(
        "--continue", dest="go_on", action="store_true", help="do only what --json has not"
    )
    parser.add_argument("--limit-seconds", type=float, help="begin no case after so long")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks-gpu.md")
    args = parser.parse_args(arguments)
    if args.write_docs and (args.only or args.quick or args.check_only or args.module):
        parser.error("--write-docs takes all of it, measured in full")
    if args.device == "cpu" and not args.check_only:
        parser.error("--device cpu takes --check-only: times are those of the GPU")
    if args.go_on and not args.json:
        parser.error("--continue takes the --json of an earlier run")
    return args


def _modules(named: str | None) -> tuple[str, ...]:
    """The modules named on the command line, else those that are installed."""
    if named is None:
        return tuple(module for module in dialect.MODULES if not dialect.missing(module))
    modules = tuple(named.split(","))
    for module in modules:
        if module not in dialect.MODULES:
            raise SystemExit(f"--module: {module} is none of {', '.join(dialect.MODULES)}")
        if reason := dialect.missing(module):
            raise SystemExit(f"--module: {reason}")
    return modules


def main(arguments: list[str]) -> int:
    args = _parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path: Path = args.json.resolve() if args.json else Path(folder, "results.json")
        if not args.go_on:
            path.unlink(missing_ok=True)
        options = Options(
            path=str(path),
            only=args.only,
            modules=_modules(args.module),
            device=args.device,
            scale="check" if args.check_only else "quick" if args.quick else "full",
            timed=not args.check_only,
            until=time() + args.limit_seconds if args.limit_seconds is not None else None,
        )
        results = run_all(options)
    print(f"\n{report.table(results)}" if options.timed else f"{len(results.rows)} cases")
    if args.write_docs:
        page.write(results)
    return int(report.any_failure(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

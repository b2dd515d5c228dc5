"""Determine what a target supports, by compiling and launching kernels; see docs/conformance.md.

    python -m tilewright conformance --target cpu
    python -m tilewright conformance --target npu --device npu:0 --level 0-2 --json results.json

Cases run in child processes: a hang or a crash is a failure of the case. The exit status is 0 if
all that the target claims to support works and the rest is rejected with clear errors, 1 if not,
and 2 if the target cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from tilewright.base.plug_ins import PlugInError
from tilewright.targets.protocol import LEVELS
from tilewright.tools.signature import UsageError

HELP = "determine what a target supports, by running kernels on it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", required=True, help="NAME or NAME:ARCH, such as cpu or cuda:90")
    parser.add_argument("--device", default="", help="such as npu:0; default: the first, if usable")
    parser.add_argument(
        "--level", default="0-5,R,F", help="levels, such as 0-2 or 1,R (default: 0-5,R,F)"
    )
    parser.add_argument(
        "--only", action="append", default=[], help="only cases whose name contains this text"
    )
    parser.add_argument("--part", default="1/1", help="K/N: every N-th case, from the K-th on")
    parser.add_argument("--seed", type=int, default=0, help="the first random program (default 0)")
    parser.add_argument("--seeds", type=int, default=50, help="random programs (default 50)")
    parser.add_argument("--jobs", "-j", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="seconds after which a case has failed"
    )
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    parser.add_argument("--quiet", "-q", action="store_true", help="print failures and totals only")


def levels_of(text: str) -> list[str]:
    """The levels of a text such as ``0-2,R``.

    Raises:
        UsageError: one does not exist.
    """
    result: list[str] = []
    for part in text.split(","):
        first, dash, last = part.strip().upper().partition("-")
        last = last if dash else first
        if first not in LEVELS or last not in LEVELS:
            known = ", ".join(LEVELS)
            raise UsageError(f"the levels are {known}, and ranges such as 0-2; not {part!r}")
        result += LEVELS[LEVELS.index(first) : LEVELS.index(last) + 1]
    return result


def part_of(text: str) -> tuple[int, int]:
    """The part, from 0, and the number of parts, of a text such as ``1/4``.

    Raises:
        UsageError: it is malformed.
    """
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise UsageError(f"--part is K/N with K from 1 to N, not {text!r}")
    return int(part) - 1, int(parts)


def execute(args: argparse.Namespace) -> int:
    """Run the command; the processes call `serve` of the module `args.worker`, if there is one."""
    # The suite imports the compiler, which the other commands need not load.
    from tilewright.conformance.case import Case, Failed
    from tilewright.conformance.claims import claims_of
    from tilewright.conformance.execution import FAILED, Outcome
    from tilewright.conformance.pool import WORKER, Pool, StartError
    from tilewright.conformance.report import Results
    from tilewright.conformance.suite import Selection
    from tilewright.targets.registry import target

    part, parts = part_of(args.part)
    selection = Selection(levels_of(args.level), args.only, args.seed, args.seeds, part, parts)
    try:
        claims = claims_of(target(args.target))
    except (ValueError, PlugInError, Failed) as error:
        raise UsageError(str(error)) from error
    results = Results(args.target, "", claims)
    worker = getattr(args, "worker", WORKER)
    pool = Pool(args.target, args.device, selection, args.jobs, args.timeout, worker)
    total = len(selection.cases())

    def report(case: Case, outcome: Outcome) -> None:
        results.outcomes[case] = outcome
        if outcome.status == FAILED:
            print(f"FAILED {case.name}: {outcome.detail}", file=sys.stderr, flush=True)
        elif len(results.outcomes) % 100 == 0:
            print(f"{len(results.outcomes)} of {total}", file=sys.stderr, flush=True)

    begin = time.perf_counter()
    try:
        pool.run(report)
    except StartError as error:
        raise UsageError(f"the target {args.target!r} cannot be used: {error}") from error
    results.device, results.seconds = pool.device, time.perf_counter() - begin
    _write(args, results.markdown(), json.dumps(results.plain(), indent=1))
    failed = len(results.failures())
    print(f"\n{len(results.outcomes)} cases in {results.seconds:.0f} s, {failed} failed")
    return 1 if failed else 0


def _write(args: argparse.Namespace, markdown: str, plain: str) -> None:
    if not args.quiet:
        print(markdown, end="")
    if args.json is not None:
        args.json.write_text(plain + "\n", "utf-8")
    if args.markdown is not None:
        args.markdown.write_text(markdown, "utf-8")

"""Times any program's Triton kernels under tilewright and under Triton, on the current GPU.

    python -m benchmarks.programs calls.py                    a file of calls, see programs/calls.py
    python -m benchmarks.programs calls.py --only norm,loss   calls by parts of their names
    python -m benchmarks.programs a.py b.py --json out.json   several files; keep the results

A ratio is Triton's time over tilewright's: above 1, tilewright is faster. Times are those of the
kernels alone, taken from CUPTI, each after the L2 cache has been overwritten; the kernels of torch
and its libraries are left out. Of each kernel that is tuned, both run the same configurations, the
middle one of the list by default. Kernels are compiled in parallel first.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean
from time import monotonic

from benchmarks.contestants import OURS, TRITON, Contestant
from benchmarks.programs.compare import PREPARE_SECONDS, Outcome, compare

WORKER = "benchmarks.programs.worker"
CONTESTANTS = (OURS, TRITON)

CLOSE = 0.02
"""A larger difference of results, as a part of their norm, is marked: sums in another order or of
tf32 products differ by less."""


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.programs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files of calls")
    parser.add_argument("--path", default="", help="a folder of packages that are not installed")
    parser.add_argument("--only", default="", metavar="TEXT,…", help="parts of names of calls")
    parser.add_argument("--configurations", type=int, default=1, help="of each tuned kernel")
    parser.add_argument("--processes", type=int, default=8, help="compile in so many (default 8)")
    parser.add_argument("--limit-seconds", type=float, default=3600, help="begin nothing later")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there")
    parser.add_argument("--log", type=Path, metavar="FILE", help="what the programs print")
    return parser.parse_args(arguments)


class Run:
    """The workers of one file of calls.

    Args:
        args: of the command line.
        file: of calls.
        folder: for caches and results.
        stack: ends the workers.
    """

    def __init__(
        self, args: argparse.Namespace, file: Path, folder: Path, stack: ExitStack
    ) -> None:
        self.args, self.file, self.folder, self.stack = args, file, folder, stack
        self.log = stack.enter_context(args.log.open("a")) if args.log else sys.stderr

    def contestants(self) -> dict[str, Contestant]:
        """A worker for each compiler; all workers of a compiler share its cache."""
        settings = {
            f"{who.upper()}_CACHE_DIR": str(self.folder / f"cache-{who}") for who in CONTESTANTS
        }
        if self.args.path:
            settings["PYTHONPATH"] = str(Path(self.args.path).resolve())
        rest = [str(self.file.resolve()), str(self.folder), str(self.args.configurations)]
        made = {who: Contestant(WORKER, [who, *rest], self.log, **settings) for who in CONTESTANTS}
        for contestant in made.values():
            self.stack.callback(contestant.end)
        return made

    def compile(self, until: float) -> None:
        """Fill the caches in parallel."""
        step = max(1, self.args.processes // len(CONTESTANTS))
        workers = [self.contestants() for _ in range(step)]
        for at, contestants in enumerate(workers):
            for contestant in contestants.values():
                contestant.send("warm", at=at, step=step)
        for contestants in workers:
            for contestant in contestants.values():
                contestant.receive(max(0.0, until - monotonic()))
                contestant.end()


def _line(outcome: Outcome) -> str:
    times = " ".join(f"{who} {outcome.us(who):.1f}" for who in outcome.kernels)
    wrong = "  RESULTS DIFFER" if outcome.difference > CLOSE else ""
    lines = [
        f"{outcome.ratio:.3f} {outcome.name}: {times} µs, results {outcome.difference:.1e}{wrong}"
    ]
    lines += [f"    {who}: {failure}" for who, failure in outcome.failures.items()]
    return "\n".join(lines)


def _kernels(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each kernel, the slowest in proportion first."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for outcome in outcomes:
        for kernel in outcome.kernel_ratios():
            for i, who in enumerate(CONTESTANTS):
                sums[kernel][i] += outcome.kernels[who][kernel]
    ranked = sorted(sums.items(), key=lambda item: item[1][1] / item[1][0])
    return [f"{b / a:.3f} {name}: {a:.1f} {b:.1f}" for name, (a, b) in ranked if a > 0]


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    until = monotonic() + args.limit_seconds
    outcomes: list[Outcome] = []
    unread: list[Path] = []
    for file in args.files:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            run = Run(args, file, folder, stack)
            contestants = run.contestants()
            about = {who: c.ask(PREPARE_SECONDS, "about") for who, c in contestants.items()}
            if failed := [f"{who}: {x['failure']}" for who, x in about.items() if "failure" in x]:
                print(f"{file}: {'; '.join(failed)}", file=sys.stderr)
                unread.append(file)
                continue
            print(f"\n{file.name}: {', '.join(x['contestant'] for x in about.values())}")
            parts = args.only.split(",")
            names = [x for x in about[OURS]["calls"] if any(part in x for part in parts)]
            if not args.only:
                run.compile(until)
            for outcome in compare(contestants, names):
                outcomes.append(outcome)
                print(_line(outcome), flush=True)
                if args.json:
                    args.json.write_text(json.dumps([asdict(x) for x in outcomes], indent=1))
                if monotonic() > until:
                    print("no time for the rest")
                    break
    print("\nkernels, least first: tilewright and Triton, in µs", *_kernels(outcomes), sep="\n")
    ratios = [x.ratio for x in outcomes if not math.isnan(x.ratio)]
    if ratios:
        mean = geometric_mean(ratios)
        print(f"\n{len(ratios)} calls timed, geometric mean {mean:.3f}, least {min(ratios):.3f}")
    wrong = [x.name for x in outcomes if x.difference > CLOSE or OURS in x.failures]
    print(f"{len(wrong)} of {len(outcomes)} wrong or failed: {', '.join(wrong)}")
    return int(bool(wrong or unread))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

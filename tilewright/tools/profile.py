"""Print a profile that `tilewright.profiler` has written.

python -m tilewright profile step.hatchet -m time/ms,gbyte/s
"""

from __future__ import annotations

import argparse

from tilewright.profiler import viewer
from tilewright.tools.load import UsageError

HELP = "print a profile of tilewright.profiler (proton)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", help="a .hatchet file")
    add("-m", "--metrics", default="time/ms,count", help="such as time/ms,gbyte/s,tflop16/s")
    add("-l", "--list", action="store_true", help="list the recorded metrics")
    add("-d", "--depth", type=int, help="levels to show")
    add("-t", "--threshold", type=float, default=0.0,
        help="hide frames below this share of the first metric")  # fmt: skip


def execute(args: argparse.Namespace) -> int:
    try:
        root = viewer.read(args.file)
        if args.list:
            print("\n".join(viewer.metrics_of(root)))
        else:
            print(viewer.render(root, args.metrics.split(","), args.depth, args.threshold))
    except ValueError as error:
        raise UsageError(str(error)) from error
    return 0

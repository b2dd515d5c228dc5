"""Report how a kernel is compiled: code by source line, remarks, layouts, resources and cost.

    python -m tilewright explain examples/fused_softmax.py
    python -m tilewright explain examples/matmul.py::matmul_kernel --target sm_90 -c BLOCK_M=128
    python -m tilewright explain k.py::scale -s "x=*fp32:16,n=i32" -c BLOCK=128 --grid 8 --arg n=999

Without --signature, the script is run until its first launch of the kernel to determine the types
of the arguments. The page is one self-contained file. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tilewright.compiler.driver import device_of
from tilewright.layout.linear import LinearLayout
from tilewright.targets import registry
from tilewright.targets.protocol import Target, options_dict
from tilewright.tools.explain.gather import gather
from tilewright.tools.explain.launch import Launch, launch_of
from tilewright.tools.explain.page import as_page
from tilewright.tools.explain.report import Report
from tilewright.tools.explain.text import as_text
from tilewright.tools.load import (
    add_kernel_arguments,
    add_target_arguments,
    parse_options,
    usage_errors,
)

HELP = "report how a kernel is compiled, as an HTML page"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kernel_arguments(parser)
    add_target_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--text", action="store_true", help="print the report as text, without code")
    form.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--output", "-O", type=Path, help="file of the page (default: KERNEL.html)")
    parser.add_argument("--grid", "-g", help="grid of the launch, as 128 or 64,8, for its cost")
    parser.add_argument(
        "--arg",
        "-a",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of a scalar argument, such as n=98432, for the cost of the launch",
    )
    parser.add_argument("--device", default="", help="device for the roofline, such as H100")
    parser.add_argument("--no-run", action="store_true", help="do not run the script")


def report_of(args: argparse.Namespace) -> tuple[Report, list[LinearLayout]]:
    """The report for a command line, and its layouts.

    Raises:
        UsageError: the command line is invalid.
        CompilationError: the kernel is invalid.
    """
    with usage_errors():
        device = registry.described(args.target)
        target = registry.target(device)
    launch = launch_of(args)
    with usage_errors():
        options = _options(target, launch, parse_options(args.option))
    return gather(launch, device_of(device, target), target, options, args.device)


def execute(args: argparse.Namespace) -> int:
    report, layouts = report_of(args)
    if args.text:
        print(as_text(report))
    elif args.json:
        json.dump(report.plain(), sys.stdout, ensure_ascii=False)
        print()
    else:
        path = args.output or Path(f"{report.kernel}.html")
        path.write_text(as_page(report, layouts), "utf-8")
        print(path)
    return 0


def _options(target: Target, launch: Launch, given: dict[str, Any]) -> Any:
    """The target's options: those of the launch that the target supports, overridden by those of
    the command line."""
    known = options_dict(target.parse_options({}))
    seen = {name: value for name, value in launch.options.items() if name in known}
    for i, name in enumerate(launch.source.fn.arg_names):
        if name in known and (i,) in launch.source.constants:
            value = launch.source.constants[i,]
            seen[name] = getattr(value, "value", value)
    return registry.parsed_options(target, {**seen, **given})

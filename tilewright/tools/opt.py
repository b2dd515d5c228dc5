"""Run passes on tile IR in a file and print the result.

python -m tilewright opt kernel.ir -p canonicalize,cse,dce
python -m tilewright opt kernel.ir --diff        (the whole pipeline, pass by pass)
python -m tilewright opt kernel.ir -p assign_layouts -t sm_90
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.passes import Observer, PassContext, Step, Timer, Verifier, find_pass, run
from tilewright.ir.printer import print_module
from tilewright.targets import registry
from tilewright.tools.load import UsageError, read_ir
from tilewright.tools.show import Narrator

HELP = "run passes on tile IR in a file"


def named_steps(names: str) -> list[Step]:
    """Steps of the passes with comma-separated names, which include the passes of all targets.

    Raises:
        UsageError: there is no such pass.
    """
    for target in registry.names():
        registry.target(target).steps()  # imports the modules that register the target's passes
    try:
        return [Step(find_pass(name.strip())) for name in names.split(",") if name.strip()]
    except ValueError as error:
        raise UsageError(str(error)) from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="tile IR; - for standard input")
    parser.add_argument(
        "--passes", "-p", help="comma-separated names of passes (default: the common tile passes)"
    )
    parser.add_argument(
        "--target",
        "-t",
        help="target whose features and thread counts the passes see, such as sm_90",
    )
    parser.add_argument("--verify", action="store_true", help="verify the IR after each pass")
    parser.add_argument(
        "--diff", action="store_true", help="print the changes of each pass instead"
    )
    parser.add_argument("--locations", action="store_true", help="print source locations")
    parser.add_argument(
        "--time", action="store_true", help="print the time of each pass, as comments"
    )
    parser.add_argument("--counts", action="store_true", help="print statistics, as comments")


def _context(target: str | None) -> PassContext:
    """The pass context for a target with its default options; the default context for None."""
    if target is None:
        return PassContext()
    found = registry.target(target)
    return context_for(found, found.parse_options({}))


def execute(args: argparse.Namespace) -> int:
    steps = list(STEPS) if args.passes is None else named_steps(args.passes)
    module = read_ir(args.file)
    timer = Timer()
    observers: list[Observer] = [timer]
    narrator = Narrator(module, locations=args.locations)
    if args.diff:
        observers.append(narrator)
    if args.verify:
        observers.append(Verifier())
    ctx = _context(args.target)
    run(module, steps, ctx, observers)
    if args.diff:
        narrator.flush()
    else:
        print(print_module(module, locations=args.locations), end="")
    if args.time:
        for name, seconds in timer.seconds.items():
            print(f"# {name}: {seconds * 1e3:.2f} ms")
    if args.counts:
        for what, count in sorted(ctx.counts.items()):
            print(f"# {what}: {count}")
    return 0

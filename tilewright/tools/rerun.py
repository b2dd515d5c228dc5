"""Repeat the failure in a reproducer: run its passes, then its target, on its IR.

    python -m tilewright rerun softmax-licm-x2.repro.ir

The exit status is 0 when all goes well, so that a fault which was mended is seen as such.
"""

from __future__ import annotations

import argparse
import traceback
from pathlib import Path

from tilewright.compiler.build import context_for
from tilewright.compiler.reproducer import Reproducer
from tilewright.ir.core import Module
from tilewright.ir.passes import Observer, Step, Verifier, run
from tilewright.targets import registry
from tilewright.tools.load import UsageError
from tilewright.tools.opt import named_steps

HELP = "repeat the failure of a reproducer file"


class _Announcer:
    """An observer that tells which pass runs, so that one that does not return is known."""

    def before(self, step: Step, module: Module) -> None:
        print(f"{step.name} …", flush=True)

    def after(self, step: Step, module: Module, changed: bool) -> None:
        pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a *.repro.ir file")


def execute(args: argparse.Namespace) -> int:
    try:
        repro = Reproducer.read(args.file)
    except ValueError as error:
        raise UsageError(str(error)) from error
    print(f"{repro.kernel} for {repro.target.backend}; it failed in {repro.failing}: {repro.error}")
    for what, version in repro.versions.items():
        print(f"  {what} was {version}")
    target = registry.target(repro.target)
    options = target.parse_options(repro.options)
    ctx = context_for(target, options)
    observers: list[Observer] = [_Announcer(), Verifier()]
    try:
        run(repro.module, named_steps(",".join(repro.steps)), ctx, observers)
        print(f"{target.name} …", flush=True)
        target.compile(repro.module, ctx, options)
    except Exception:  # whatever it is, it is what was asked for
        traceback.print_exc()
        return 1
    print("no failure")
    return 0

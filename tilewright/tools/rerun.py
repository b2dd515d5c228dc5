"""Reproduce a compiler failure: run the passes and the target of a reproducer file on its IR.

    python -m tilewright rerun softmax-licm-x2.repro.ir

The exit status is 0 if nothing fails, which means that the bug is fixed, and 1 otherwise.
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

HELP = "reproduce the failure of a reproducer file"


class _Announcer:
    """An observer that prints the name of each pass before it runs, to identify a pass that hangs
    or crashes."""

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
    options = registry.parsed_options(target, repro.options)
    ctx = context_for(target, options)
    observers: list[Observer] = [_Announcer(), Verifier()]
    try:
        run(repro.module, named_steps(",".join(repro.steps)), ctx, observers)
        print(f"{target.name} …", flush=True)
        target.compile(repro.module, ctx, options)
    except Exception:  # any failure is the one to be reproduced
        traceback.print_exc()
        return 1
    print("no failure")
    return 0

"""Print a kernel's IR and the changes of each pass, or a stage of its code.

python -m tilewright show examples/vector_add.py::add_kernel
python -m tilewright show k.py::scale -s "x=*fp32:16,n=i32" -c BLOCK=1024 --stage llir
"""

from __future__ import annotations

import argparse
import difflib
import time

from tilewright.compiler.build import lower
from tilewright.compiler.driver import compile_source, device_of
from tilewright.compiler.pipeline import pipeline
from tilewright.ir.core import Module
from tilewright.ir.passes import Step
from tilewright.ir.printer import print_module
from tilewright.tools.load import (
    UsageError,
    add_kernel_arguments,
    add_target_arguments,
    kernel_source,
    target_of,
)

HELP = "print a kernel's IR after each pass, or a stage of its code"


class Narrator:
    """An observer that prints the changes of each pass, and the names of passes without any."""

    def __init__(self, module: Module, context: int = 3, locations: bool = False) -> None:
        self.context = context
        self.locations = locations
        self.text = self._print(module)
        self.idle: list[str] = []
        self._start = 0.0

    def _print(self, module: Module) -> str:
        return print_module(module, locations=self.locations)

    def before(self, step: Step, module: Module) -> None:
        self._start = time.perf_counter()

    def after(self, step: Step, module: Module, changed: bool) -> None:
        seconds = time.perf_counter() - self._start
        text = self._print(module)
        if text == self.text:
            self.idle.append(step.name)
            return
        self.flush()
        print(f"\n=== after {step.name} ({seconds * 1e3:.1f} ms)")
        for line in _difference(self.text, text, self.context):
            print(line)
        self.text = text

    def flush(self) -> None:
        """Print the names of the passes without changes since the last pass with changes."""
        if self.idle:
            print(f"\n=== no change by {', '.join(self.idle)}")
        self.idle = []


def _difference(before: str, after: str, context: int) -> list[str]:
    """A unified diff without its two header lines."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=context)
    return list(lines)[2:]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kernel_arguments(parser)
    add_target_arguments(parser)
    parser.add_argument(
        "--stage", help="print only this stage: source, ttir, or one of the target's"
    )
    parser.add_argument("--context", type=int, default=3, help="lines around a change (default 3)")
    parser.add_argument("--locations", action="store_true", help="print source locations")


def execute(args: argparse.Namespace) -> int:
    source = kernel_source(args)
    target, options = target_of(args)
    if args.stage is not None:
        compiled = compile_source(source, device_of(args.target, target), options)
        if args.stage not in compiled.asm:
            known = ", ".join(compiled.asm)
            raise UsageError(f"unknown stage {args.stage!r}; stages: {known}")
        stage = compiled.asm[args.stage]
        print(stage if isinstance(stage, str) else stage.hex(" ", 4))
        return 0
    module = source.module(target.frontend_options(options))
    print(f"=== {source.name}, from the front end")
    print(print_module(module, locations=args.locations), end="")
    narrator = Narrator(module, args.context, args.locations)
    lower(module, target, options, pipeline(target), [narrator])
    narrator.flush()
    return 0

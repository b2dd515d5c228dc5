"""A module after all passes → the code of one thread → the vendor's machine code.

Whether a pass pays may show in the machine code only. Where it may not have, the function as it was
before that pass (`PassContext.before`) is compiled, too, and the better result is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.base.diagnostics import Loc
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, Step, run, steps_after
from tilewright.targets.gpu.codegen import Generator, ThreadCode, thread_code
from tilewright.targets.protocol import Lowered


@dataclass(frozen=True)
class MachineCode:
    """The code of a kernel for a GPU. Vendors whose targets compare variants derive from it.

    Attributes:
        lowered: the stages from the code of a thread on, and the metadata of the launch.
        kernel: where the kernel is defined, for remarks.
    """

    lowered: Lowered
    kernel: Loc | None

    def is_doubtful(self) -> bool:
        """Whether the kernel may be faster without a pass of `PassContext.before`."""
        return False

    def may_be_worse_than(self, other: ThreadCode) -> bool:
        """Whether the machine code of the other variant may be better; if not, it is not made."""
        return True

    def is_better_than(self, other: Any) -> bool:
        """Whether it is certainly the faster variant of the same kernel."""
        return False

    def report(self, ctx: PassContext) -> None:
        """Report remarks, once it is decided that this is the variant to load."""


class Vendor(Generator, Protocol):
    """The part of a GPU target that compilation depends on (`GpuTarget`)."""

    def steps(self) -> Sequence[Step]: ...
    def machine_code(self, code: ThreadCode, ctx: PassContext, options: Any) -> MachineCode: ...


def compile_module(target: Vendor, module: Module, ctx: PassContext, options: Any) -> Lowered:
    """The code of a module after all passes; remarks are reported to the context."""
    made = target.machine_code(thread_code(module, target, ctx, options), ctx, options)
    for name, original in ctx.before.items():
        if ctx.replaced or not made.is_doubtful():
            break
        plain = Module([original.function])
        run(plain, steps_after(target.steps(), name), ctx)
        code = thread_code(plain, target, ctx, options)
        if not made.may_be_worse_than(code):
            continue
        other = target.machine_code(code, ctx, options)
        if other.is_better_than(made):
            ctx.missed(name, original.undone, original.function.loc)
            made = other
    made.report(ctx)
    return made.lowered

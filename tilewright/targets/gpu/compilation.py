"""A module after all passes → the code of one thread → the vendor's machine code.

The profitability of some passes is known only from the machine code. These record the function
before the pass (`PassContext.before`). If the result is doubtful, that function is also compiled,
and the better machine code is selected. A program whose machine code spills registers is also
compiled for more threads (`PassContext.widening`). If a program exceeds the shared memory, a
smaller one is compiled instead (`PassContext.smaller`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tilewright.base.diagnostics import Loc
from tilewright.base.record import record, replace
from tilewright.ir.core import Module
from tilewright.ir.passes import (
    Original,
    PassContext,
    Remark,
    Step,
    Widening,
    run,
    steps_after,
)
from tilewright.targets.gpu.codegen import Generator, ThreadCode, thread_code
from tilewright.targets.protocol import Lowered


@record
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
        """Whether the machine code of the other variant may be better; if not, it is not
        generated."""
        return True

    def surpasses(self, other: ThreadCode) -> bool:
        """Whether it is the faster variant of the same kernel, however the other is compiled."""
        return False

    def is_better_than(self, other: Any) -> bool:
        """Whether it is certainly the faster variant of the same kernel."""
        return False

    def lacks_registers(self) -> bool:
        """Whether the kernel may be faster with more threads (`PassContext.widening`)."""
        return False

    def gains_over(self, narrow: Any) -> bool:
        """Whether it is faster than the same kernel with fewer threads, which lacks registers."""
        return False

    def report(self, ctx: PassContext) -> None:
        """Report remarks, once it is decided that this is the variant to load."""


class Vendor(Generator, Protocol):
    """The part of a GPU target that compilation depends on (`GpuTarget`)."""

    def steps(self) -> Sequence[Step]: ...
    def may_outnumber(self, other: ThreadCode, code: ThreadCode, options: Any) -> bool: ...
    def machine_code(self, code: ThreadCode, ctx: PassContext, options: Any) -> MachineCode: ...


class _Variants:
    """The variants of a kernel, each without the first 0, 1, … passes of `PassContext.before`. They
    are compiled on demand, and identified by the number of these passes."""

    def __init__(self, target: Vendor, module: Module, ctx: PassContext, options: Any) -> None:
        self.target, self.ctx, self.options = target, ctx, options
        self.passes: Sequence[tuple[str, Original]]
        self.passes = () if ctx.replaced else tuple(ctx.before.items())
        self._codes = {0: thread_code(module, target, ctx, options)}
        self._machine_code: dict[int, MachineCode] = {}

    def code(self, without: int) -> ThreadCode:
        if without not in self._codes:
            (first, original), *others = self.passes[:without]
            disabled = self.ctx.disabled.union(name for name, _ in others)
            plain = Module([original.function.clone()])
            ctx = replace(self.ctx, disabled=disabled)
            run(plain, steps_after(self.target.steps(), first), ctx)
            self._codes[without] = thread_code(plain, self.target, ctx, self.options)
        return self._codes[without]

    def made(self, without: int) -> MachineCode:
        if without not in self._machine_code:
            code = self.code(without)
            self._machine_code[without] = self.target.machine_code(code, self.ctx, self.options)
        return self._machine_code[without]

    def may_outnumber(self, other: ThreadCode) -> bool:
        """Whether more programs may be resident of a variant than with all passes."""
        return self.target.may_outnumber(other, self.code(0), self.options)


def compile_module(target: Vendor, module: Module, ctx: PassContext, options: Any) -> Lowered:
    """The code of a module after all passes; remarks are reported to the context."""
    code = _compile(target, module, ctx, options)
    if ctx.widening is not None and not ctx.replaced:
        code = _widened(target, ctx, options, ctx.widening, code)
    code.report(ctx)
    return code.lowered


def _compile(target: Vendor, module: Module, ctx: PassContext, options: Any) -> MachineCode:
    """The best machine code for the number of threads that the passes have assumed."""
    variants = _Variants(target, module, ctx, options)
    if ctx.smaller is not None and variants.code(0).shared_bytes > ctx.gpu.shared_bytes:
        variants = _Variants(target, *_smaller(target, *ctx.smaller, ctx), options)
        ctx = variants.ctx
    without = _surpassing(variants) or _best(variants)
    if without:
        name, original = variants.passes[without - 1]
        ctx.missed(name, original.undone, original.function.loc)
    return variants.made(without)


def _widened(
    target: Vendor, ctx: PassContext, options: Any, widening: Widening, best: MachineCode
) -> MachineCode:
    """The best machine code of those with the requested threads and with more. The number of
    threads is doubled while the machine code lacks registers."""
    made, machine, chosen = best, ctx.gpu, None
    while made.lacks_registers() and machine.warps < widening.most_warps:
        machine = replace(machine, warps=2 * machine.warps)
        own = replace(
            ctx, machine=machine, before={}, smaller=None, widening=None, remarks=list[Remark]()
        )
        module = Module([widening.function.clone()])
        run(module, steps_after(target.steps(), widening.name), own)
        made = _compile(target, module, own, options)
        if made.gains_over(best):
            best, chosen = made, own
    if chosen is not None:
        ctx.did(
            widening.name,
            f"{chosen.gpu.warps} warps instead of {ctx.gpu.warps}: registers were spilled",
            widening.function.loc,
        )
        ctx.remarks += chosen.remarks
        ctx.machine = chosen.machine
    return best


def _smaller(
    target: Vendor, name: str, original: Original, ctx: PassContext
) -> tuple[Module, PassContext]:
    """The module that needs less memory (`PassContext.smaller`) after all passes."""
    ctx.missed(name, original.undone, original.function.loc)
    module, again = Module([original.function]), replace(ctx, before={}, smaller=None)
    run(module, steps_after(target.steps(), name), again)
    return module, again


def _surpassing(variants: _Variants) -> int:
    """The variant without any of the passes, if its machine code is certainly the best, so that the
    others need not be compiled to machine code; else 0."""
    last = len(variants.passes)
    # First under the assumption that it needs as much shared memory as with the passes, for which
    # its own code need not be generated.
    code = variants.code(0)
    alike = code._replace(warps=code.tile_warps)
    if not last or not variants.may_outnumber(alike):
        return 0
    if not variants.may_outnumber(variants.code(last)):
        return 0
    made = variants.made(last)
    return last if all(made.surpasses(variants.code(i)) for i in range(last)) else 0


def _best(variants: _Variants) -> int:
    """The variant with the best machine code. Only variants that may be better than the best so far
    are compiled to machine code, the one without any of the passes first, as mostly the last pass
    causes the shortage of registers or memory."""
    best = 0
    for i in range(len(variants.passes), 0, -1):
        made = variants.made(best)
        if not made.is_doubtful():
            break
        if made.may_be_worse_than(variants.code(i)) and variants.made(i).is_better_than(made):
            best = i
    return best

"""Refuses what can't be compiled for GPUs, in words of the kernel and with its line."""

from __future__ import annotations

from tilewright.base.located import error_at
from tilewright.ir.core import Function
from tilewright.ir.machine import GpuMachine
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Tile, text_of
from tilewright.lowering.registry import lowering_of
from tilewright.lowering.simt.kernel import emitter_of
from tilewright.ops.dot import Dot

MOST_SUMS = 1024
"""Registers of a thread that the sums of a product may ask for: four times as many as it has. Up to
there the rest is spilled; beyond, code generation takes minutes (LLVM's part grows with the square:
0.6 s for 512 of them, 8.6 s for 2048) for code whose work is spilling."""


@compiler_pass("check_kernel")
def check_kernel(fn: Function, ctx: PassContext) -> bool:
    """Raise `CompilationError` for an op that the passes behind this one do not expect.

    Needs: inlined calls, and that the lowering has been imported.  Leaves: everything as it is.
    """
    target = ctx.gpu.target
    for op in fn.walk():
        if not (op.terminator or emitter_of(type(op), target) or lowering_of(type(op), target)):
            raise error_at(op.loc, f"{op.name} can't be compiled for {ctx.gpu.title}")
        if isinstance(op, Dot):
            _check_sums(op, ctx.gpu)
    return False


def _check_sums(op: Dot, gpu: GpuMachine) -> None:
    """Raise `CompilationError` for a product whose sums are far beyond a program's registers."""
    sums = op.acc.type
    assert isinstance(sums, Tile)
    registers = sums.numel * max(32, sums.element.primitive_bitwidth) // 32
    each = registers // gpu.threads
    if each > MOST_SUMS:
        raise error_at(
            op.loc,
            f"the product, {text_of(sums)}, has {registers} sums: {each} registers of each of "
            f"{gpu.threads} threads, which have {gpu.thread_registers}, and a multiprocessor has "
            f"{gpu.registers}. "
            "Make the tile smaller",
        )

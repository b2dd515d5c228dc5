"""Rejects kernels that cannot be compiled for GPUs, with the source line of the op."""

from __future__ import annotations

from tilewright.base.located import error_at
from tilewright.ir.core import Function
from tilewright.ir.machine import GpuMachine
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Tile, text_of
from tilewright.lowering.registry import lowering_of
from tilewright.lowering.simt.kernel import emitter_of
from tilewright.ops.dot import Dot
from tilewright.ops.dot_scaled import DotScaled
from tilewright.passes.expand_dot_scaled import FEATURE

MOST_SUMS = 1024
"""The most registers of a thread that the accumulator of a product may take: four times as many as
a thread has. Below, the excess is spilled. Beyond, code generation takes minutes (LLVM's time is
quadratic: 0.6 s for 512 registers, 8.6 s for 2048), and the code mostly spills."""


@compiler_pass("check_kernel", required=True)
def check_kernel(fn: Function, ctx: PassContext) -> bool:
    """Raise `CompilationError` for an op that later passes or code generation do not support.

    Needs: inlined calls; imported lowering modules.  Leaves: the function unchanged.
    """
    target = ctx.gpu.target
    for op in fn.walk():
        replaced = isinstance(op, DotScaled) and FEATURE in ctx.features
        known = emitter_of(type(op), target) or lowering_of(type(op), target)
        if not (op.terminator or replaced or known):
            raise error_at(op.loc, f"{op.name} can't be compiled for {ctx.gpu.title}")
        if isinstance(op, Dot | DotScaled):
            _check_sums(op, ctx.gpu)
    return False


def _check_sums(op: Dot | DotScaled, gpu: GpuMachine) -> None:
    """Raise `CompilationError` for a product whose accumulator exceeds `MOST_SUMS` registers."""
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

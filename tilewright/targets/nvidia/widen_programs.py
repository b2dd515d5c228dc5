"""Doubles the warps of programs whose results of products exceed the registers of one warpgroup."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import dtype_of, shape_of
from tilewright.ops.asm import InlineAsmEffect
from tilewright.ops.control import For, While
from tilewright.ops.dot import Dot
from tilewright.targets.nvidia.choose_mma import fits_wgmma

NAME = "widen_programs"
GROUP_WARPS = 4  # of a warpgroup, the unit that computes products
REGISTER_BYTES = 4
OTHER_REGISTERS = 31  # of a thread, beside the results of products: addresses, descriptors, masks


@compiler_pass(NAME)
def widen_programs(fn: Function, ctx: PassContext) -> bool:
    """Run programs of one warpgroup on two, where the results of products would be spilled.

    A multiprocessor has registers for two warpgroups of 255 per thread, so that a program of one
    warpgroup that keeps more than these spills registers while half of them are idle: the gradient
    of attention accumulates two tiles of 128 x 128, 256 registers of a thread.

    Needs: inlined calls; nothing that depends on the number of warps.
    Leaves: the same function; `ctx.gpu` with twice the warps.

    A kernel with inline assembly that has effects keeps its warps, as it may count its threads. So
    does one with the option `maxnreg`.
    """
    gpu = ctx.gpu
    if gpu.warps != GROUP_WARPS or ctx.options.get("maxnreg") is not None:
        return False
    found = max((_registers(op, ctx) for op in fn.walk()), default=0)
    if found <= gpu.thread_registers - OTHER_REGISTERS:
        return False
    if any(isinstance(op, InlineAsmEffect) for op in fn.walk()):
        return False
    ctx.machine = replace(gpu, warps=2 * gpu.warps)
    ctx.did(
        NAME,
        f"{2 * gpu.warps} warps instead of {gpu.warps}: in a loop, results of products take "
        f"{found} registers of a thread",
        fn.loc,
    )
    return True


def _registers(loop: Op, ctx: PassContext) -> int:
    """The registers of a thread for the results of products that a loop carries, and for the
    two largest ones that it does not, which may be in flight together; 0 for other ops."""
    if not isinstance(loop, For | While):
        return 0
    body = loop.regions[-1]
    results = [op.result for op in body if isinstance(op, Dot) and fits_wgmma(op, ctx)]
    carried = [v for v in results if v in body.terminator.operands]
    others = sorted(_bytes(v) for v in results if v not in carried)
    total = sum(map(_bytes, carried)) + sum(others[-2:])
    return total // (ctx.gpu.threads * REGISTER_BYTES)


def _bytes(value: Value) -> int:
    return prod(shape_of(value.type)) * dtype_of(value.type).nbytes_in_memory

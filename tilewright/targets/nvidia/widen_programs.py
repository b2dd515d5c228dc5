"""Doubles the warps of programs whose accumulators exceed the registers of one warpgroup."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.base.record import replace
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, Widening, compiler_pass
from tilewright.ir.types import dtype_of, shape_of
from tilewright.ops.asm import InlineAsmEffect
from tilewright.ops.control import For, While
from tilewright.ops.dot import Dot
from tilewright.targets.nvidia.choose_mma import GROUP_WARPS, fits_wgmma
from tilewright.targets.nvidia.occupancy import OTHER_REGISTERS, REGISTER_BYTES

NAME = "widen_programs"

PART = 16 * 8
"""The fewest elements of a result that a warp computes by itself. With more warps than such parts,
several compute the same, wait for each other, and fewer programs are resident: fla's inverses of
chunks by products of 16 x 16 took 100 µs with four warps and 68 with one, which spilled."""
MOST_WARPS = 2 * GROUP_WARPS  # with 255 registers for a thread, they have all of a multiprocessor


@compiler_pass(NAME)
def widen_programs(fn: Function, ctx: PassContext) -> bool:
    """Run programs of one warpgroup on two, where the results of products would be spilled.

    A multiprocessor has registers for two warpgroups of 255 per thread, so that a program of one
    warpgroup that keeps more than these spills registers while half of them are idle: the gradient
    of attention accumulates two tiles of 128 x 128, 256 registers of a thread.

    Where that can't be predicted, the function is kept (`ctx.widening`), to be compiled for up to
    eight warps, each with a part of the largest product, if the assembler has spilled many
    registers: docs/decisions/0042-doubled-warps.md.

    Needs: inlined calls; nothing that depends on the number of warps.
    Leaves: the same function; `ctx.gpu` with twice the warps, or `ctx.widening`.

    A kernel with inline assembly that has effects keeps its warps, as it may count its threads. So
    does one with the option `maxnreg`.
    """
    gpu = ctx.gpu
    if gpu.warps >= MOST_WARPS or ctx.options.get("maxnreg") is not None:
        return False
    if not _may_widen(fn):
        return False
    found = max((_registers(op, ctx) for op in fn.walk()), default=0)
    if gpu.warps != GROUP_WARPS or found <= gpu.thread_registers - OTHER_REGISTERS:
        most = min(MOST_WARPS, _most_parts(fn))
        if gpu.warps < most:
            ctx.widening = Widening(fn.clone(), most, NAME)
        return False
    wide = replace(gpu, warps=2 * gpu.warps)
    ctx.machine = wide
    ctx.did(
        NAME,
        f"{wide.warps} warps instead of {gpu.warps}: in a loop, results of products take "
        f"{found} registers of a thread",
        fn.loc,
    )
    return True


def _may_widen(fn: Function) -> bool:
    """Whether there are products, and no op depends on the number of threads of a program."""
    products = False
    for op in fn.walk():
        if isinstance(op, InlineAsmEffect):
            return False
        products |= isinstance(op, Dot)
    return products


def _most_parts(fn: Function) -> int:
    """The number of parts of the largest result of a product."""
    products = (op for op in fn.walk() if isinstance(op, Dot))
    return max(prod(shape_of(op.result.type)) for op in products) // PART


def _registers(loop: Op, ctx: PassContext) -> int:
    """The registers of a thread for the results of products that a loop carries, plus the larger
    of: the two largest others, which may be in flight together; the largest one, and the largest
    left operand that is computed from one. 0 for other ops."""
    if not isinstance(loop, For | While):
        return 0
    body = loop.regions[-1]
    products = [op for op in body if isinstance(op, Dot) and fits_wgmma(op, ctx)]
    results = [op.result for op in products]
    carried = [v for v in results if v in body.terminator.operands]
    others = [v for v in results if v not in carried]
    sizes = sorted(map(_bytes, others))
    computed = [_bytes(op.lhs) for op in products if _depends_on(op.lhs, others, body)]
    more = max(sum(sizes[-2:]), sum(sizes[-1:]) + max(computed, default=0))
    total = sum(map(_bytes, carried)) + more
    return total // (ctx.gpu.threads * REGISTER_BYTES)


def _depends_on(value: Value, sources: Sequence[Value], body: Region) -> bool:
    """Whether a value of a loop's body is computed from one of the sources, in one iteration."""
    pending, seen = [value], set[Op]()
    while pending:
        found = pending.pop()
        if found in sources:
            return True
        if found.region is body and found.op is not None and found.op not in seen:
            seen.add(found.op)
            pending += found.op.operands
    return False


def _bytes(value: Value) -> int:
    return prod(shape_of(value.type)) * dtype_of(value.type).nbytes_in_memory

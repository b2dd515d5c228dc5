"""Limits the stages of software pipelines to those whose slots fit into shared memory.

Each stage of a pipelined loop takes a slot of shared memory for every tile that is copied there,
and GPUs have between 48 and 227 KiB for a program. A kernel that exceeds this would compile, and
then fail to load.

The memory of a choice is that assigned by the allocator if the buffers of these tiles have that
number of slots, and are live throughout the loop. Linear in the size of the function; usually the
sum of all buffers shows that they fit.

A loop whose products wait for their operands gets fewer stages, too, where one more program is then
resident on a multiprocessor that would have hardly a warp for each scheduler.

Later passes reorder the function, which may extend the live ranges of operands in shared memory. If
most of the memory is used, the context records the function with fewer stages
(`PassContext.smaller`), in case the result does not fit.
"""

from __future__ import annotations

from math import prod

from tilewright.analysis.axis_info import axis_info
from tilewright.ir.core import Function, Op
from tilewright.ir.passes import Original, PassContext, compiler_pass, optional_part
from tilewright.ir.types import dtype_of, shape_of
from tilewright.lowering.simt.shared_memory import ALIGN, allocated_bytes, unshared_bytes
from tilewright.ops.control import For
from tilewright.ops.gpu import Share
from tilewright.ops.memory import Load
from tilewright.ops.reduce import Reduce
from tilewright.passes.pipeline_loads import (
    Pipeline,
    find_pipeline,
    resident_by_registers,
    trips_before,
    waits_for_products,
)
from tilewright.passes.software_pipelining import shares_of, stages_of

NAME = "limit_stages"

# Parts of the memory: from the first on, passes may add more than there is; with the second, they
# have not (the gradients of attention in one kernel, 64 x 128 and a head of 128: 48 KiB for a
# schedule of products, and 32 KiB for hoisted operands).
MOSTLY_TAKEN, RESERVED = 0.75, 0.4

FEWER_STAGES = optional_part("fewer_stages")

TOO_FEW_WARPS = 8
"""Two for each scheduler of a multiprocessor. With fewer resident warps, or as many that reduce
their products, one more program is worth more than copies that start an iteration earlier: diagonal
blocks of linear attention, 32 x 32 of fp32 with 4 warps, took 106 µs on an H200 with three stages,
and 86 with two, of which a second program is resident."""

DOES_NOT_FIT = "undone: with fewer stages, all operands fit into shared memory"


@compiler_pass(NAME, required=True)
def limit_stages(fn: Function, ctx: PassContext) -> bool:
    """Lower `num_stages` of pipelined loops until the slots of their loads fit into shared memory.

    The loop whose slots take the most comes first. A loop of one stage is not pipelined; if not
    even that fits, that is the launch's error.

    Needs: laid-out IR, before `pipeline_loads`.  Leaves: lower values of `num_stages`.
    """
    loops = [op for op in fn.walk() if isinstance(op, For) and stages_of(op, ctx) > 1]
    loops = [loop for loop in loops if shares_of(loop)]
    limit = ctx.gpu.shared_bytes
    most = unshared_bytes(fn) + sum(stages_of(loop, ctx) * _loaded_bytes(loop) for loop in loops)
    enough = limit // max(most, 1) * ctx.gpu.warps > TOO_FEW_WARPS
    if not loops or (enough and most <= MOSTLY_TAKEN * limit):
        return False
    infos, silent = (
        axis_info(fn),
        PassContext(machine=ctx.gpu, options=ctx.options, disabled=ctx.disabled),
    )
    pipelines = {loop: find_pipeline(fn, loop, infos, silent) for loop in loops}
    found = {loop: each for loop, each in pipelines.items() if each is not None}
    requested = {loop: stages_of(loop, ctx) for loop in found}
    if (taken := _taken(fn, found, ctx)) > limit:
        _lower(fn, found, limit, ctx)
    if taken > MOSTLY_TAKEN * limit:
        ctx.smaller = (
            NAME,
            Original(_lowered(fn, found, int((1 - RESERVED) * limit), ctx), DOES_NOT_FIT),
        )
    for loop, stages in requested.items():
        if loop.num_stages not in (0, stages):
            taken = _taken(fn, found, ctx) / 1024
            ctx.missed(
                NAME,
                f"num_stages is {loop.num_stages} instead of {stages}: with it, the kernel takes "
                f"{taken:g} of the {limit / 1024:g} KiB of shared memory",
                loop.loc,
            )
    for loop in found:
        if waits_for_products(loop) and ctx.enabled(FEWER_STAGES):
            _make_room(fn, loop, found, ctx)
    return any(loop.num_stages not in (0, stages) for loop, stages in requested.items())


def _lower(fn: Function, pipelines: dict[For, Pipeline], limit: int, ctx: PassContext) -> None:
    """Lower the stages of the loops until they fit, then raise those that need not be lowered: a
    loop whose slots are not live when the most memory is."""
    given = {loop: (loop.num_stages, stages_of(loop, ctx)) for loop in pipelines}
    while (excess := _taken(fn, pipelines, ctx) - limit) > 0:
        candidates = [loop for loop in pipelines if stages_of(loop, ctx) > 1]
        if not candidates:
            break
        loop = max(candidates, key=lambda at: stages_of(at, ctx) * pipelines[at].nbytes)
        # A stage less frees at most one slot of each tile, so fewer stages less cannot suffice.
        loop.num_stages = max(1, stages_of(loop, ctx) + -excess // pipelines[loop].nbytes)
    for loop, (num_stages, most) in given.items():
        taken = _taken(fn, pipelines, ctx)
        for stages in range(most, stages_of(loop, ctx), -1):
            lowered, loop.num_stages = loop.num_stages, num_stages if stages == most else stages
            if _taken(fn, pipelines, ctx) <= max(limit, taken):
                break
            loop.num_stages = lowered


def _make_room(fn: Function, loop: For, pipelines: dict[For, Pipeline], ctx: PassContext) -> None:
    """Lower the stages of a loop, to two at least, as long as one more program gets resident and
    the schedulers of a multiprocessor have hardly a warp each, or hardly two that reduce their
    products. A warp that waits for these then leaves its scheduler idle, however early the copies
    start."""
    if trips_before(loop, ctx) is not None:
        return  # each iteration needs its slot
    stages = stages_of(loop, ctx)
    enough = TOO_FEW_WARPS + any(isinstance(op, Reduce) for op in loop.body)
    by_registers = resident_by_registers(loop, ctx)

    def resident() -> int:
        return min(by_registers, ctx.gpu.shared_bytes // _taken(fn, pipelines, ctx))

    before = now = resident()
    while stages > 2 and now * ctx.gpu.warps < enough:
        requested, loop.num_stages = loop.num_stages, stages - 1
        if (then := resident()) <= now:
            loop.num_stages = requested
            break
        stages, now = stages - 1, then
    if now > before:
        ctx.did(NAME, f"{stages} stages make {now} instead of {before} programs resident", loop.loc)


def _lowered(
    fn: Function, pipelines: dict[For, Pipeline], limit: int, ctx: PassContext
) -> Function:
    """A copy of the function, with stages that take at most `limit` bytes."""
    before = {loop: loop.num_stages for loop in pipelines}
    _lower(fn, pipelines, limit, ctx)
    copy = fn.clone()
    for loop, stages in before.items():
        loop.num_stages = stages
    return copy


def _loaded_bytes(loop: For) -> int:
    """The size of all tiles that a loop loads."""
    kinds = [op.result.type for op in loop.body if isinstance(op, Load)]
    return sum(prod(shape_of(kind)) * dtype_of(kind).nbytes_in_memory for kind in kinds)


def _taken(fn: Function, pipelines: dict[For, Pipeline], ctx: PassContext) -> int:
    """Bytes of shared memory if these tiles are copied ahead, and the operands that the loops don't
    change are stored before them."""
    found = [(loop, stages_of(loop, ctx), each) for loop, each in pipelines.items()]
    found = [(loop, stages, each) for loop, stages, each in found if stages > 1]
    slots: dict[Op, tuple[Op, int]] = {
        share: (loop, stages) for loop, stages, each in found for share in each.shares
    }
    slots |= {share: (loop, 1) for loop in pipelines for share in _invariant_shares(loop)}
    own = [stages * copy.type.nbytes for _, stages, each in found for copy in each.own]
    return allocated_bytes(fn, slots) + sum(-(-size // ALIGN) * ALIGN for size in own)


def _invariant_shares(loop: For) -> list[Op]:
    """The ops that share a tile that the loop does not change, which are hoisted later."""
    return [op for op in loop.body if isinstance(op, Share) and not loop.contains(op.src)]

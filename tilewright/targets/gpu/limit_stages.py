"""Limits the stages of software pipelines to those whose slots fit into shared memory.

Each stage of a pipelined loop takes a slot of shared memory for every tile that is copied there,
and GPUs have between 48 and 227 KiB for a program. A kernel that exceeds this would compile, and
then fail to load.

The memory that a choice takes is that which the allocator assigns if the buffers of these tiles
have that number of slots, and are live throughout the loop. Linear in the size of the function, and
usually decided by a sum: all fit even if live at the same time.
"""

from __future__ import annotations

from tilewright.analysis.axis_info import axis_info
from tilewright.ir.core import Function, Op
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Shared
from tilewright.lowering.simt.shared_memory import allocated_bytes, unshared_bytes
from tilewright.ops.control import For
from tilewright.ops.gpu import Share
from tilewright.passes.pipeline_loads import find_pipeline, stages_of
from tilewright.passes.software_pipelining import shares_of

NAME = "limit_stages"


@compiler_pass(NAME, required=True)
def limit_stages(fn: Function, ctx: PassContext) -> bool:
    """Lower `num_stages` of pipelined loops until the slots of their loads fit into shared memory.

    The loop whose slots take the most comes first. A loop of one stage is not pipelined; if not
    even that fits, that is the launch's error.

    Needs: laid-out IR, before `pipeline_loads`.  Leaves: lower values of `num_stages`.
    """
    loops = [op for op in fn.walk() if isinstance(op, For) and stages_of(op, ctx) > 1]
    shares = {loop: shares for loop in loops if (shares := shares_of(loop))}
    limit = ctx.gpu.shared_bytes
    more = sum((stages_of(loop, ctx) - 1) * _bytes(found) for loop, found in shares.items())
    if not shares or unshared_bytes(fn) + more <= limit or _taken(fn, shares, ctx) <= limit:
        return False
    infos, silent = axis_info(fn), PassContext()
    pipelines = {loop: find_pipeline(fn, loop, infos, silent) for loop in shares}
    shares = {loop: found[1] for loop, found in pipelines.items() if found is not None}
    requested = {loop: stages_of(loop, ctx) for loop in shares}
    _lower(fn, shares, limit, ctx)
    for loop, stages in requested.items():
        if loop.num_stages not in (0, stages):
            taken = _taken(fn, shares, ctx) / 1024
            ctx.missed(
                NAME,
                f"num_stages is {loop.num_stages} instead of {stages}: with it, the kernel takes "
                f"{taken:g} of the {limit / 1024:g} KiB of shared memory",
                loop.loc,
            )
    return any(loop.num_stages not in (0, stages) for loop, stages in requested.items())


def _lower(fn: Function, shares: dict[For, list[Share]], limit: int, ctx: PassContext) -> None:
    """Lower the stages of the loops until they fit, or none is left that could help."""
    candidates = dict(shares)
    while candidates and (excess := _taken(fn, shares, ctx) - limit) > 0:
        loop = max(candidates, key=lambda at: stages_of(at, ctx) * _bytes(candidates[at]))
        given, stages = loop.num_stages, stages_of(loop, ctx)
        # A stage less frees at most one slot of each tile, so fewer stages less cannot suffice.
        loop.num_stages = max(1, stages + -excess // _bytes(candidates[loop]))
        if _taken(fn, shares, ctx) - limit == excess:
            loop.num_stages = given  # other memory is live when the most is
            del candidates[loop]
        elif loop.num_stages == 1:
            del candidates[loop]


def _bytes(shares: list[Share]) -> int:
    """The size of one slot of each tile."""
    kinds = [share.result.type for share in shares]
    return sum(kind.nbytes for kind in kinds if isinstance(kind, Shared))


def _taken(fn: Function, shares: dict[For, list[Share]], ctx: PassContext) -> int:
    """Bytes of shared memory if these tiles are copied ahead."""
    slots: dict[Op, tuple[Op, int]] = {
        share: (loop, stages_of(loop, ctx))
        for loop, found in shares.items()
        for share in found
        if stages_of(loop, ctx) > 1
    }
    return allocated_bytes(fn, slots)

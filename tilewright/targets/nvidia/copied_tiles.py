"""Stages tiles in loops of products that are not operands: statistics of rows, quantised operands.

    x = load(p)                               s = share(load(p))
    y = f(x)                     becomes      x = fetch(s)
    acc += y @ b                              y = f(x)
                                              acc += y @ b

The warp that copies operands then copies these, too (`specialize_warps`). A vector along the
columns of an accumulator takes up to a register for every two columns in each thread: prefetched to
registers, these are live throughout the loop; loaded in place, the threads would first exchange
elements through shared memory. From a slot, each element is loaded where it is used. A tile from
which an operand is computed takes more registers, and is copied as many iterations ahead as the
operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.analysis.blocks import BlockFinder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, optional_part
from tilewright.ir.rewriter import insert_before
from tilewright.ir.types import Tile, Type, shape_of
from tilewright.layout.families import shared_row_major
from tilewright.layout.linear import LinearLayout
from tilewright.ops.control import For
from tilewright.ops.gpu import ConvertLayout, Fetch, Share
from tilewright.ops.memory import Load
from tilewright.passes.layout_rules import operand_layout, propagates_layout
from tilewright.targets.gpu.operands import swizzled
from tilewright.targets.nvidia.buffer_uses import goes_to_products
from tilewright.targets.nvidia.copied_loops import copy_of
from tilewright.targets.nvidia.copied_scalars import Scalars, Unsupported, require_scalars

VECTORS = optional_part("copied_vectors")
MATRICES = optional_part("copied_matrices")


def stage_vectors(fn: Function, loops: Sequence[For], ctx: PassContext) -> bool:
    """Stage the vectors that loops load for arithmetic on operands or results of products.

    Needs: layouts; loops whose operands can be copied.
    Leaves: a `gpu.share` of each such load, and `gpu.fetch`es in the layouts in which it is used.
    """
    return ctx.enabled(VECTORS) and _stage_tiles(fn, loops, 1)


def stage_matrices(fn: Function, loops: Sequence[For], ctx: PassContext) -> bool:
    """Stage tiles of two axes that operands of products are computed from, as `stage_vectors`."""
    return ctx.enabled(MATRICES) and _stage_tiles(fn, loops, 2)


def _stage_tiles(fn: Function, loops: Sequence[For], rank: int) -> bool:
    finder, scalars = BlockFinder(), Scalars(fn)
    staged = [
        _stage(fn, loop, op, finder, scalars)
        for loop in loops
        for op in list(loop.body)
        if isinstance(op, Load) and _is_for_products(op, rank)
    ]
    return any(staged)


def _is_for_products(load: Load, rank: int) -> bool:
    """Whether a loop only computes with a tile of this rank, for products."""
    has_rank = isinstance(load.result.type, Tile) and len(shape_of(load.result.type)) == rank
    shared = any(isinstance(user, Share) for user in load.result.users)
    return has_rank and not shared and goes_to_products(load.result)


def _stage(fn: Function, loop: For, load: Load, finder: BlockFinder, scalars: Scalars) -> bool:
    """Share a load and fetch it for its users; whether a tensor copy can do the load."""
    users = list(load.result.users)
    share = Share(load.result)
    loop.body.insert_after(share, load)
    for layout in _buffers(load.result.type):
        share.result.layout = layout
        try:
            copy = copy_of(fn, loop, share, finder, only=False)
            require_scalars(loop, copy, scalars, share)
            break
        except Unsupported:
            continue
    else:
        share.erase()
        return False
    share.loc = load.loc
    for user in users:
        layout = load.result.layout
        assert layout is not None
        fetched = _fetch(share.result, layout, user)
        for i, operand in enumerate(user.operands):
            if operand is load.result:
                user.set_operand(i, fetched)
        _skip_conversions(user)
    return True


def _buffers(type: Type) -> Iterator[LinearLayout]:
    """The layouts of a buffer that a tensor copy may write. In swizzled ones, threads that access
    memory in order of addresses have no bank conflicts either."""
    if len(shape_of(type)) == 1:
        yield shared_row_major(shape_of(type))
    else:
        yield swizzled(type, 1)
        yield swizzled(type, 0)


def _fetch(buffer: Value, layout: LinearLayout, before: Op) -> Value:
    fetch = insert_before(Fetch(buffer, own=False), before)
    fetch.result.layout = layout
    return fetch.result


def _skip_conversions(op: Op) -> None:
    """Recompute values that are converted to another layout in that layout, down to the load."""
    if isinstance(op, ConvertLayout):
        assert op.result.layout is not None
        op.result.replace_with(_in_layout(op.src, op.result.layout, op))
    elif propagates_layout(op) and len(op.operands) == 1:
        for user in list(op.results[0].users):
            _skip_conversions(user)
    else:
        return
    if not op.results[0].users:
        source = op.operands[0].op
        op.erase()
        if isinstance(source, Fetch) and not source.result.users:
            source.erase()


def _in_layout(value: Value, layout: LinearLayout, before: Op) -> Value:
    """A fetched value, or one computed from it by ops with one operand, in a layout."""
    op = value.op
    assert op is not None
    if isinstance(op, Fetch):
        return _fetch(op.src, layout, before)
    required = operand_layout(op, layout)
    assert required is not None
    operand = _in_layout(op.operands[0], required, before)
    copy = op.clone({op.operands[0]: operand})
    copy.results[0].layout = layout
    assert before.parent is not None
    before.parent.insert_before(copy, before)
    return copy.results[0]

"""Stages vectors that a loop of products only computes with, such as the statistics of rows.

    x = load(p)                               s = share(load(p))
    y = f(x)                     becomes      x = fetch(s)
    acc += y @ b                              y = f(x)
                                              acc += y @ b

The warp that copies operands then copies these, too (`specialize_warps`). A vector whose elements
belong to columns of an accumulator takes up to a register for each two columns in every thread:
loaded an iteration ahead, these are live throughout the loop, and in memory the threads would have
to exchange elements through shared memory first. Fetched from a slot, each element is loaded where
it is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.blocks import BlockFinder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, optional_part
from tilewright.ir.types import Tile, shape_of
from tilewright.layout.families import shared_row_major
from tilewright.layout.linear import LinearLayout
from tilewright.ops.control import For
from tilewright.ops.gpu import ConvertLayout, Fetch, Share
from tilewright.ops.memory import Load
from tilewright.passes.layout_rules import operand_layout, propagates_layout
from tilewright.targets.nvidia.copied_loops import (
    Scalars,
    Unsupported,
    copy_of,
    ends_in_products,
    require_scalars,
)

NAME = optional_part("copied_vectors")


def stage_vectors(fn: Function, loops: Sequence[For], ctx: PassContext) -> bool:
    """Stage the vectors that loops load for arithmetic on operands or results of products.

    Needs: layouts; loops whose operands can be copied.
    Leaves: a `gpu.share` of each such load, and `gpu.fetch`es in the layouts in which it is used.
    """
    if not ctx.enabled(NAME):
        return False
    finder, scalars = BlockFinder(), Scalars(fn)
    changed = False
    for loop in loops:
        for op in list(loop.body):
            if isinstance(op, Load) and _is_vector_for_products(op):
                changed |= _stage(fn, loop, op, finder, scalars)
    return changed


def _is_vector_for_products(load: Load) -> bool:
    vector = isinstance(load.result.type, Tile) and len(shape_of(load.result.type)) == 1
    shared = any(isinstance(user, Share) for user in load.result.users)
    return vector and not shared and ends_in_products(load.result)


def _stage(fn: Function, loop: For, load: Load, finder: BlockFinder, scalars: Scalars) -> bool:
    """Share a load and fetch it for its users; whether a tensor copy can do the load."""
    users = list(load.result.users)
    share = Share(load.result)
    share.result.layout = shared_row_major(shape_of(load.result.type))
    loop.body.insert_after(share, load)
    try:
        copy = copy_of(fn, loop, share, finder, only=False)
        require_scalars(loop, copy, scalars, share)
    except Unsupported:
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


def _fetch(buffer: Value, layout: LinearLayout, before: Op) -> Value:
    fetch = Fetch(buffer, own=False)
    fetch.loc = before.loc
    fetch.result.layout = layout
    assert before.parent is not None
    before.parent.insert_before(fetch, before)
    return fetch.result


def _skip_conversions(op: Op) -> None:
    """Recompute what is converted to another layout, down to the fetch, in that layout."""
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

"""Sinks elementwise ops of loops to the first use of their results, to shorten live ranges.

    dw = dy * (x * r)                           s = sum(dy * w * x)
    s = sum(dy * w * x)               →         store(dx, …)
    store(dx, …)                                dw = dy * (x * r)
    acc += dw                                   acc += dw

In derived kernels, adjoints are computed in the order of reverse mode, long before they are
accumulated, and occupy registers in between. An op is sunk if the operands whose live ranges it
extends are no larger than its result. Functions with products are left to `order_products`, and to
the schedules of asynchronous products. Linear in the number of ops and
operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import element_of, is_pointer, shape_of
from tilewright.ops.control import For
from tilewright.ops.dot import Dot
from tilewright.ops.shape import Splat


@compiler_pass("sink_ops")
def sink_ops(fn: Function, ctx: PassContext) -> bool:
    """Sink the elementwise ops of each loop; see the module docstring."""
    ops = list(fn.walk())
    if any(isinstance(op, Dot) for op in ops):
        return False
    changed = False
    for loop in ops:
        if isinstance(loop, For):
            order = _sunk(loop.body)
            if order != list(loop.body):
                changed = True
                _place(loop.body, order)
    return changed


def _sunk(region: Region) -> list[Op]:
    """The ops of a region in the new order."""
    ops = list(region)
    place = {op: i for i, op in enumerate(ops)}
    anchors: dict[Op, int] = {}  # of each op, the place of the one before which it is computed
    sunk: dict[Op, list[Op]] = {}
    for op in reversed(ops):
        users = region.users_of(op)
        first = min((u for u in users if u is not None), key=lambda u: anchors[u], default=None)
        anchors[op] = place[op]
        if first is not None and op.elementwise and not op.regions and None not in users:
            among = [u for u in users if u is not None and anchors[u] == anchors[first]]
            if len(among) == 1 and _is_small(op, anchors[first], anchors, region):
                anchors[op] = anchors[first]
                sunk.setdefault(first, []).append(op)
    return _flat(ops, anchors, place, sunk)


def _is_small(op: Op, at: int, anchors: dict[Op, int], region: Region) -> bool:
    """Whether the operands whose live ranges would be extended are no larger than the result."""
    kept = 0
    for value in dict.fromkeys(op.operands):
        if value.op is None or value.op.parent is not region:
            continue
        others = (region.find_ancestor(user) for user in value.users if user is not op)
        if not any(u is not None and anchors.get(u, -1) >= at for u in others):
            kept += _size(value)
    return kept <= _size(op.result)


def _size(value: Value) -> int:
    """The bits of a tile that is kept; copies of a scalar are none."""
    shape = shape_of(value.type)
    if not shape or isinstance(value.op, Splat):
        return 0
    element = element_of(value.type)
    return prod(shape) * (64 if is_pointer(element) else element.primitive_bitwidth)


def _place(region: Region, order: Sequence[Op]) -> None:
    *others, end = order
    for op in others:
        op.remove()
        region.insert_before(op, end)


def _flat(
    ops: Sequence[Op], anchors: dict[Op, int], place: dict[Op, int], sunk: dict[Op, list[Op]]
) -> list[Op]:
    result: list[Op] = []
    for op in ops:
        if anchors[op] == place[op]:
            group = [op]
            for member in group:  # grows: what is sunk to one that is sunk
                group += sunk.get(member, ())
            result += reversed(group)
    return result

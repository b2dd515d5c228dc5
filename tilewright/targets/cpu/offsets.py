"""Integer tiles that are parts of addresses, in 64 bits, which keeps lanes linear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.analysis.ranges import may_wrap
from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.lowering.registry import lowering_of
from tilewright.ops import arith, shape
from tilewright.ops.view import View
from tilewright.targets.cpu import lanes
from tilewright.targets.cpu.coordinates import source_coords
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.level import Coords, Emitting, Level
from tilewright.targets.cpu.name import NAME
from tilewright.targets.cpu.rule import Need, Rule

LINEAR: dict[type[Any], Callable[..., Lanes]] = {
    arith.Add: lanes.add,
    arith.Sub: lanes.sub,
    arith.Mul: lanes.mul,
}


def offset_of(level: Level, value: Value, coords: Coords) -> Rule:
    """An integer tile that is part of an address, in 64 bits.

    Signed arithmetic of addresses of 32 bits or more is performed in 64 bits throughout, which
    keeps lanes linear. It differs from 32-bit arithmetic only for offsets that overflow within a
    tile, and these are not offsets of elements of a tensor. Other values are computed in their own
    type, and extended; those that are equal at all lanes, only once.
    """
    signed = ir.dtype_of(value.type).is_int_signed()
    op = value.op
    with Emitting(level):
        exact = signed and not may_wrap(value)
        if op is not None and exact and value not in level.kernel.env:
            rule = _offset_rule(op)
            if rule is not None:
                with level.kernel.line_of(op):
                    return (yield from rule(level, op, coords))
        return level.extend((yield Need(value, _at_one_lane(level, value, coords))), signed)


def _at_one_lane(level: Level, value: Value, coords: Coords) -> Coords:
    """The point at the first lane if the lanes are in one run of equal elements, else at all lanes.

    An index that is computed from a quotient by other than integer arithmetic, such as that of a
    pixel that is interpolated, is uniform so, and lanes that are added to it remain linear.
    """
    axis = level.lane_axis(coords)
    if axis is None or not _is_constant(level, value, axis, coords):
        return coords
    lane = coords[axis]
    home = level.home((lane,))
    known = home.moved.setdefault(
        (_at_one_lane, lane), (Lanes(lane.base, 0, lane.depth, lane.known),)
    )
    return (*coords[:axis], *known, *coords[axis + 1 :])


def _is_constant(level: Level, value: Value, axis: int, coords: Coords) -> bool:
    """Whether the elements at all lanes are in one run of equal elements."""
    return (
        lanes.is_run(coords[axis], level.span)
        and level.kernel.facts[value].constancy[axis] % level.span == 0
    )


def _offset_moved(level: Level, op: View, coords: Coords) -> Rule:
    return (yield Need(op.src, source_coords(level, op, 0, coords), offset=True))


def _offset_same(level: Level, op: Op, coords: Coords) -> Rule:
    return (yield Need(op.operands[0], coords, offset=True))


def _offset_arith(level: Level, op: Op, coords: Coords) -> Rule:
    x = yield Need(op.operands[0], coords, offset=True)
    y = yield Need(op.operands[1], coords, offset=True)
    with level.placed(x, y):
        return LINEAR[type(op)](level.b, x, y, level.width)


def _offset_arange(level: Level, op: shape.Arange, coords: Coords) -> Rule:
    yield from ()
    with level.placed(coords[0]):
        return lanes.add(level.b, coords[0], lanes.index(op.start), level.width)


def _offset_divided(level: Level, op: arith.Rem | arith.IntDiv, coords: Coords) -> Rule:
    """A remainder of lanes without a multiple of the divisor between them is linear, and their
    quotient is uniform."""
    if not _in_one_run(level, op, coords):
        return level.extend((yield Need(op.result, coords)), signed=True)
    x = yield Need(op.lhs, coords, offset=True)
    y = yield Need(op.rhs, coords, offset=True)
    if x.stride is None or not y.uniform:
        return level.extend((yield Need(op.result, coords)), signed=True)
    lower = lowering_of(type(op), NAME)
    assert lower is not None
    with level.placed(x, y):
        stride = x.stride if isinstance(op, arith.Rem) else 0
        return Lanes(lower(level.b, op, x.base, y.base), stride, max(x.depth, y.depth))


def _in_one_run(level: Level, op: arith.Rem | arith.IntDiv, coords: Coords) -> bool:
    """Whether the elements at all lanes are in one run of consecutive remainders, or of equal
    quotients, provided that the dividend, an offset of elements, does not overflow."""
    axis = level.lane_axis(coords)
    if axis is None or not lanes.is_run(coords[axis], level.span):
        return False
    facts = level.kernel.facts[op.result]
    runs = [facts.constancy[axis]]
    if isinstance(op, arith.Rem):
        runs.append(facts.contiguity[axis])
    return any(run % level.span == 0 for run in runs)


def _offset_rule(op: Op) -> Callable[..., Rule] | None:
    """The rule of an op in 64 bits; None if it is to be computed in its own type and extended."""
    if isinstance(op, arith.Cast):
        source = ir.dtype_of(op.src.type)
        exact = source.is_int_signed() and source.primitive_bitwidth <= op.to.primitive_bitwidth
        return _offset_same if exact else None
    rule = _OFFSETS.get(type(op))
    if rule is None and isinstance(op, View) and op.moves_all:
        return _offset_moved
    return rule


_OFFSETS: dict[type[Any], Callable[..., Rule]] = {
    **dict.fromkeys(LINEAR, _offset_arith),
    arith.Hint: _offset_same,
    arith.IntDiv: _offset_divided,
    arith.Rem: _offset_divided,
    shape.Arange: _offset_arange,
}

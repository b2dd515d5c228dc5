"""How a tile of 64-bit offsets changes along its axes: by multiples of 1 or of a scalar.

The offsets of the elements of a matrix are ``row * stride + column``. A thread that has several
rows could hold as many offsets; it need only hold the first, and the stride, which all share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.ir.core import Value
from tilewright.ir.types import shape_of
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.ops import arith, shape


@dataclass(frozen=True, slots=True)
class Slope:
    """From one element to the next along an axis: `factor` times `scalar`, or `factor` alone."""

    factor: int
    scalar: Value | None = None


Slopes = dict[int, Slope]
"""By axis, where anything changes along it."""


def slopes_of(offset: Value) -> Slopes | None:
    """The slopes of an integer tile, exact as its arithmetic is: modulo 2^64 in a tile of i64. None
    where it has no such form."""
    return _slopes(offset, {})


def _slopes(offset: Value, known: dict[Value, Slopes | None]) -> Slopes | None:
    if offset not in known:
        known[offset] = _found(offset, known)
    return known[offset]


def _found(offset: Value, known: dict[Value, Slopes | None]) -> Slopes | None:
    match offset.op:
        case shape.Arange():
            return {0: Slope(1)}
        case shape.Splat() | arith.Constant():
            return {}
        case shape.ExpandDims(src, axis):
            found = _slopes(src, known)
            return found and {a + (a >= axis): slope for a, slope in found.items()}
        case shape.Broadcast(src, _):
            found, extents = _slopes(src, known), shape_of(src.type)
            return found and {a: slope for a, slope in found.items() if extents[a] > 1}
        case arith.Hint(src):
            return _slopes(src, known)
        case shape.Permute(src, order):
            found = _slopes(src, known)
            return found and {order.index(a): slope for a, slope in found.items()}
        case arith.Cast(src):
            return _slopes(src, known) if _counts(src) else None
        case arith.Add(x, y):
            return _sum(_slopes(x, known), _slopes(y, known))
        case arith.Mul(x, y):
            return _product(_slopes(x, known), y) or _product(_slopes(y, known), x)
        case _:
            return None


def _counts(value: Value) -> bool:
    """Whether a tile only has numbers of elements, which are the same in any type."""
    match value.op:
        case shape.Arange():
            return True
        case shape.ExpandDims(src, _) | shape.Broadcast(src, _) | shape.Permute(src, _):
            return _counts(src)
        case _:
            return False


def _sum(x: Slopes | None, y: Slopes | None) -> Slopes | None:
    if x is None or y is None:
        return None
    found = dict(x)
    for axis, slope in y.items():
        other = found.get(axis, replace(slope, factor=0))
        if other.scalar is not slope.scalar:
            return None
        found[axis] = replace(slope, factor=slope.factor + other.factor)
    return found


def _product(slopes: Slopes | None, factor: Value) -> Slopes | None:
    """That of a tile by a factor that is the same for all elements."""
    if slopes is None:
        return None
    number = arith.constant_value(factor)
    if isinstance(number, int):
        return {a: replace(slope, factor=slope.factor * number) for a, slope in slopes.items()}
    numbers = all(slope.scalar is None for slope in slopes.values())
    if numbers and isinstance(factor.op, shape.Splat):
        return {a: replace(slope, scalar=factor.op.src) for a, slope in slopes.items()}
    return None


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the offset in each register of a thread is, seen from the first.

    Attributes:
        scalars: what it takes multiples of.
        places: of each register, how many of each.
        rest: and how much besides.
    """

    scalars: Sequence[Value]
    places: Sequence[tuple[int, ...]]
    rest: Sequence[int]


def walk_of(offset: Value) -> Walk | None:
    """The walk through a tile; None where registers are not at the same distances in all threads,
    or no scalar tells them."""
    slopes, moves = slopes_of(offset), _register_moves(offset.layout)
    if not slopes or moves is None:
        return None
    scalars = list(dict.fromkeys(s.scalar for s in slopes.values() if s.scalar is not None))

    def distance(move: Sequence[int], scalar: Value | None) -> int:
        return sum(s.factor * move[a] for a, s in slopes.items() if s.scalar is scalar)

    places = [tuple(distance(move, scalar) for scalar in scalars) for move in moves]
    if len(set(places)) == 1:
        return None
    return Walk(scalars, places, [distance(move, None) for move in moves])


def _register_moves(layout: LinearLayout | None) -> list[tuple[int, ...]] | None:
    """How far the element in each register is from that in the first, along each axis."""
    if layout is None:
        return None
    places = [layout.apply_flat(r) for r in range(layout.in_size(REGISTER))]
    moved = layout.moved_by(LANE, WARP)
    if any(moved & place for place in places):
        return None  # it is a xor of the two, not their sum
    return [layout.coordinates(place) for place in places]

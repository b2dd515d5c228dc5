"""How a tile of 64-bit offsets changes along its axes: by multiples of 1 or of a scalar.

The offsets of the elements of a matrix are ``row * stride + column``. A thread that has several
rows could hold as many offsets; it need only hold the first, and the stride, which all share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.polynomial import Polynomial
from tilewright.ir.core import Value
from tilewright.ir.types import Tile, element_of
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout


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
    form = AffineForms().of(offset)
    if form.pieces or form.assumed:
        return None
    slopes = {axis: _slope(stride) for axis, stride in enumerate(form.strides) if stride}
    found = {axis: slope for axis, slope in slopes.items() if slope is not None}
    return found if len(found) == len(slopes) else None


def _slope(stride: Polynomial) -> Slope | None:
    term = stride.alone
    if term is None:
        return None
    match term.factors:
        case ():
            return Slope(term.coefficient)
        case (Value() as scalar,) if not isinstance(scalar.type, Tile):
            wide = element_of(scalar.type).primitive_bitwidth == 64
            return Slope(term.coefficient, scalar) if wide else None
        case _:
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

"""Strides of a tile of 64-bit offsets: along each axis a multiple of 1 or of a scalar.

The offsets of a matrix are ``row * stride + column``. A thread with several rows then needs only
the first offset and the uniform stride in registers, instead of an offset for each row.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.polynomial import Polynomial
from tilewright.base.record import record
from tilewright.ir.core import Value
from tilewright.ir.types import Tile, element_of
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout


@record
class Slope:
    """The stride along an axis: `factor * scalar`, or `factor` if there is no scalar."""

    factor: int
    scalar: Value | None = None


Slopes = dict[int, Slope]
"""By axis; axes along which the offset is constant are absent."""


def slopes_of(offset: Value) -> Slopes | None:
    """The strides of an integer tile, exact in its arithmetic (modulo 2^64 for i64).

    None if it has no such form, or only under assumptions.
    """
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


@record
class Walk:
    """The offset in each register of a thread, relative to the first register.

    The offset of register r is ``sum(places[r][i] * scalars[i]) + rest[r]``.
    """

    scalars: Sequence[Value]
    places: Sequence[tuple[int, ...]]
    rest: Sequence[int]


def walk_of(offset: Value) -> Walk | None:
    """The relative offsets of a tile's registers.

    None if they differ between threads, or if they do not depend on a scalar.
    """
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
    """The distance of each register's element from that of the first register, along each axis."""
    if layout is None:
        return None
    places = [layout.apply_flat(r) for r in range(layout.in_size(REGISTER))]
    moved = layout.moved_by(LANE, WARP)
    if any(moved & place for place in places):
        return None  # coordinates are the xor of both parts, here not equal to their sum
    return [layout.coordinates(place) for place in places]

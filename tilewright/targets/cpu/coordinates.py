"""The coordinates of an operand's element, from those of the element of the result.

They are memoised in the level in which they are emitted.
"""

from __future__ import annotations

from tilewright.ir.index_map import Along, Fixed, Part, Reversed
from tilewright.lowering.emit import const
from tilewright.ops import shape
from tilewright.ops.view import View
from tilewright.targets.cpu import lanes
from tilewright.targets.cpu.lanes import ZERO, Lanes
from tilewright.targets.cpu.level import Coords, Emitting, Level

_FIXED = ZERO, lanes.index(1)
"""The coordinates that index maps fix: along a broadcast axis, and in the halves of a split."""


def source_coords(level: Level, op: View, result: int, coords: Coords) -> Coords:
    """The coordinates of the element of `src` that a result has at a point.

    An axis along which the position is split or merged makes it a division: all axes go by way of
    the row-major position then.
    """
    found = op.index_maps(result)[0]
    assert found is not None
    axes: list[Lanes] = []
    for term in found.axes:
        if type(term) is Along:
            axes.append(coords[term.axis])
        elif isinstance(term, Fixed):
            axes.append(_FIXED[term.index])
        elif isinstance(term, Reversed):
            axes.append(_reversed(level, coords[term.axis], found.target[term.axis]))
        else:
            return _reshaped(level, found.source, found.target, coords)
    return tuple(axes)


def _reversed(level: Level, c: Lanes, size: int) -> Lanes:
    """A coordinate counted from the other end of its axis."""
    home = level.home((c,))
    known = home.moved.get((Reversed, size, c))
    if known is None:
        with Emitting(home):
            flipped = lanes.sub(level.b, lanes.index(size - 1), c, level.width)
        known = home.moved[Reversed, size, c] = (flipped,)
        if level.home(known) is home:
            home.moved[Reversed, size, flipped] = (c,)  # a flip is its own inverse
    return known[0]


def _reshaped(
    level: Level, source: tuple[int, ...], target: tuple[int, ...], coords: Coords
) -> Coords:
    home = level.home(coords)
    key = Part, source, target, coords
    known = home.moved.get(key)
    if known is None:
        with Emitting(home):
            known = home.moved[key] = _reindex(level, source, target, coords)
    return known


def _reindex(
    level: Level, source: tuple[int, ...], target: tuple[int, ...], coords: Coords
) -> Coords:
    """Coordinates in `source` of a point in `target`, by way of the row-major position."""
    position = ZERO
    for n, c in zip(target, coords, strict=True):
        scaled = lanes.mul(level.b, position, lanes.index(n), level.width)
        position = lanes.add(level.b, scaled, c, level.width)
    found: list[Lanes] = []
    for n in reversed(source):
        position, rest = lanes.divmod_const(level.b, position, n, level.width, level.span)
        found.append(rest)
    return tuple(reversed(found))


def clamp(level: Level, c: Lanes, last: int) -> Lanes:
    """A coordinate clamped to 0 … last."""
    home = level.home((c,))
    known = home.moved.get((shape.Gather, last, c))
    if known is None:
        b = level.b
        with Emitting(home):
            v = c.base if c.uniform else level.vector(c)
            low = b.intrinsic("llvm.smax", v.type, [v, const(v.type, 0)], overloads=[v.type])
            high = b.intrinsic("llvm.smin", v.type, [low, const(v.type, last)], overloads=[v.type])
        known = home.moved[shape.Gather, last, c] = (
            Lanes(high, 0 if c.uniform else None, c.depth),
        )
    return known[0]

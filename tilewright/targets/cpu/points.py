"""The points at which a loop nest evaluates a value, determined before code generation.

A point is a tuple of coordinates, one per axis. Coordinates are value numbers of expressions: equal
expressions have equal numbers; those below `_FIRST` are the loop nest's own coordinates. Shape ops
map coordinates as they do in `evaluate`, which memoises results by point. So the number of distinct
points of a value is the number of times its code is emitted.
"""

from __future__ import annotations

from collections.abc import Hashable

from tilewright.ir.core import Op, Value
from tilewright.ir.index_map import Along, Fixed, IndexMap, Part, Reversed
from tilewright.ir.types import shape_of
from tilewright.ops import shape

Point = tuple[int, ...]

_FIXED = -1, -2  # the coordinates 0 and 1
_FIRST = 1000


def identity(rank: int) -> Point:
    """The point of the loop nest's own coordinates."""
    return tuple(range(rank))


class Points:
    """Value numbering of coordinates."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._flipped: dict[int, tuple[int, int]] = {}  # a flip's number: its extent and operand

    def _number(self, expression: Hashable) -> int:
        return self._numbers.setdefault(expression, _FIRST + len(self._numbers))

    def apart(self, tag: Hashable, rank: int) -> Point:
        """A point that is distinct from those of all other tags."""
        return tuple(self._number((tag, axis)) for axis in range(rank))

    def operands(self, value: Value, point: Point) -> list[tuple[Value, Point]]:
        """The operands that evaluating a lazy value at a point evaluates, each with its point."""
        op = value.op
        assert op is not None
        match op:
            case shape.Join(lhs, rhs):
                sides = [v for v, c in zip((lhs, rhs), _FIXED, strict=True) if c == point[-1]]
                return [(v, point[:-1]) for v in sides or (lhs, rhs)]
            case shape.Cat(lhs, rhs, axis):
                ends = [self._number(("cat", op.axis, v, point[axis])) for v in (lhs, rhs)]
                return [(v, _with(point, axis, c)) for v, c in zip((lhs, rhs), ends, strict=True)]
            case shape.Gather(src, index, axis):
                place = self._number(("gather", index, point, shape_of(src.type)[axis]))
                return [(index, point), (src, _with(point, axis, place))]
            case _ if op.elementwise:
                return [(v, point) for v in op.operands]
            case _:
                maps = zip(op.operands, op.index_maps(value.index), strict=True)
                return [
                    (v, self._source(op, found, point)) for v, found in maps if found is not None
                ]

    def _source(self, op: Op, found: IndexMap, point: Point) -> Point:
        """The point of an operand on which the result at a point depends."""
        axes: list[int] = []
        for term in found.axes:
            match term:
                case Along(axis):
                    axes.append(point[axis])
                case Fixed(index):
                    axes.append(_FIXED[index])
                case Reversed(axis):
                    axes.append(self._reversed(found.target[axis], point[axis]))
                case Part():
                    key = "reshape", found.source, found.target, point
                    return self.apart(key, len(found.source))
                case _:
                    return self.apart((op, found, point), len(found.source))
        return tuple(axes)

    def _reversed(self, extent: int, coordinate: int) -> int:
        size, inner = self._flipped.get(coordinate, (0, 0))
        if size == extent:
            return inner
        result = self._number(("flip", extent, coordinate))
        self._flipped[result] = extent, coordinate
        return result


def _with(point: Point, axis: int, coordinate: int) -> Point:
    return (*point[:axis], coordinate, *point[axis + 1 :])

"""The points at which a loop nest evaluates a value, determined before code generation.

A point is a tuple of coordinates, one per axis. Coordinates are value numbers of expressions: equal
expressions have equal numbers; those below `_FIRST` are the loop nest's own coordinates. Shape ops
map coordinates as they do in `evaluate`, which memoises results by point. So the number of distinct
points of a value is the number of times its code is emitted.
"""

from __future__ import annotations

from collections.abc import Hashable

from tilewright.ir.core import Value
from tilewright.ir.types import shape_of
from tilewright.ops import shape

Point = tuple[int, ...]

_ZERO = -1
_FIRST = 1000


def identity(rank: int) -> Point:
    """The point of the loop nest's own coordinates."""
    return tuple(range(rank))


class Points:
    """Value numbering of coordinates."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._flipped: dict[int, tuple[int, int]] = {}  # a flip's number: its extent and operand
        self._halves = (self._number(0), self._number(1))

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
            case shape.Splat(src):
                return [(src, ())]
            case shape.ExpandDims(src, axis):
                return [(src, point[:axis] + point[axis + 1 :])]
            case shape.Broadcast(src, sizes):
                fixed = [n == 1 and m != 1 for n, m in zip(shape_of(src.type), sizes, strict=True)]
                return [(src, tuple(_ZERO if f else c for c, f in zip(point, fixed, strict=True)))]
            case shape.Permute(src, order):
                source = [_ZERO] * len(point)
                for i, axis in enumerate(order):
                    source[axis] = point[i]
                return [(src, tuple(source))]
            case shape.Flip(src, axis):
                return [(src, _with(point, axis, self._flip(op, point[axis])))]
            case shape.Reshape(src, _):
                return [(src, self._reshape(op, point))]
            case shape.Split(src):
                return [(src, (*point, self._halves[value.index]))]
            case shape.Join(lhs, rhs):
                sides = [v for v, c in zip((lhs, rhs), self._halves, strict=True) if c == point[-1]]
                return [(v, point[:-1]) for v in sides or (lhs, rhs)]
            case shape.Cat(lhs, rhs, axis):
                ends = [self._number(("cat", op.axis, v, point[axis])) for v in (lhs, rhs)]
                return [(v, _with(point, axis, c)) for v, c in zip((lhs, rhs), ends, strict=True)]
            case shape.Gather(src, index, axis):
                place = self._number(("gather", index, point, shape_of(src.type)[axis]))
                return [(index, point), (src, _with(point, axis, place))]
            case _:
                return [(v, point) for v in op.operands]

    def _flip(self, op: shape.Flip, coordinate: int) -> int:
        extent = shape_of(op.src.type)[op.axis]
        size, inner = self._flipped.get(coordinate, (0, 0))
        if size == extent:
            return inner
        found = self._number(("flip", extent, coordinate))
        self._flipped[found] = extent, coordinate
        return found

    def _reshape(self, op: shape.Reshape, point: Point) -> Point:
        source, target = shape_of(op.src.type), shape_of(op.result.type)
        kept = [(n, c) for n, c in zip(target, point, strict=True) if n != 1]
        if [n for n, _ in kept] == [n for n in source if n != 1]:
            remaining = iter(c for _, c in kept)
            return tuple(_ZERO if n == 1 else next(remaining) for n in source)
        return self.apart(("reshape", source, target, point), len(source))


def _with(point: Point, axis: int, coordinate: int) -> Point:
    return (*point[:axis], coordinate, *point[axis + 1 :])

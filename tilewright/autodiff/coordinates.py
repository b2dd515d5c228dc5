"""The coordinates of a program: the numbers from which its tiles and addresses are computed.

Often these are the program's indices. A kernel may also compute them, to visit tiles in another
order:

    group = program // (SIZE * columns)
    row = group * SIZE + program % SIZE             # coordinates: row and column
    column = program % (SIZE * columns) // SIZE

No pattern of that is known. Candidates are found by dataflow, and accepted if programs and
coordinates correspond one to one in the launch, and the coordinates fill a box.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.autodiff.points import Array, Points, UnknownNumber
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.types import Tile, is_int
from tilewright.ops import arith
from tilewright.ops.control import ProgramId


@dataclass(frozen=True)
class Coordinates:
    """The coordinates of a launch's programs.

    Attributes:
        axes: the axes of the grid that they are; () if they are computed.
        values: otherwise the values of the kernel that they are.
        numbers: each coordinate of each program.
        extents: of the box.
    """

    axes: tuple[int, ...]
    values: tuple[Value, ...]
    numbers: tuple[Array, ...]
    extents: tuple[int, ...]

    def roots(self, fn: Function, chosen: Iterable[int]) -> list[Value]:
        """The values of the kernel that some of the coordinates are."""
        if self.values:
            return [self.values[i] for i in chosen]
        axes = [self.axes[i] for i in chosen]
        return [op.result for op in fn.walk() if isinstance(op, ProgramId) and op.axis in axes]


def coordinates_of(fn: Function, points: Points) -> Iterator[Coordinates]:
    """The coordinates that programs may have: the indices of the program, then what is computed
    from these."""
    used = tuple(axis for axis in range(3) if points.grid[axis] > 1) or (0,)
    number = np.arange(points.count, dtype=np.int64)
    x, y, _ = points.grid
    along = number % x, number // x % y, number // (x * y)
    numbers = tuple(along[axis] for axis in used)
    yield Coordinates(used, (), numbers, tuple(points.grid[axis] for axis in used))
    roots, parts = _roots(fn)
    for values in (roots, parts) if parts != roots else (roots,):
        try:
            numbers = tuple(points.value(value).astype(np.int64) for value in values)
        except UnknownNumber:
            continue
        extents = tuple(int(n.max(initial=0)) + 1 for n in numbers)
        if values and _is_box(numbers, extents, points.count):
            yield Coordinates((), tuple(values), numbers, extents)


def _is_box(numbers: Sequence[Array], extents: Sequence[int], count: int) -> bool:
    if prod(extents) != count or any(int(n.min(initial=0)) < 0 for n in numbers):
        return False
    return len(np.unique(linear(numbers, extents))) == count


def linear(numbers: Sequence[Array], extents: Sequence[int]) -> Array:
    """The position of coordinates in their box, the first one changing fastest."""
    position, size = np.zeros_like(numbers[0]), 1
    for number, extent in zip(numbers, extents, strict=True):
        position, size = position + number * size, size * extent
    return position


def _roots(fn: Function) -> tuple[list[Value], list[Value]]:
    """The scalars that tiles, addresses and loops use, without what is done to them with operands
    that are the same in all programs; and the same with sums of two taken apart."""
    varying: set[Value] = set()
    for op in fn.walk():
        if isinstance(op, ProgramId) or any(v in varying for v in op.operands):
            varying.update(v for v in op.results if _is_index(v))
    roots: dict[Value, None] = {}
    parts: dict[Value, None] = {}
    for op in fn.walk():
        for value in op.operands if not _is_scalar(op) else ():
            if value in varying:
                root = _root(value, varying)
                roots[root] = None
                terms = root.op.operands if isinstance(root.op, arith.Add) else (root,)
                parts.update((_root(term, varying), None) for term in terms)
    return list(roots), list(parts)


def _is_index(value: Value) -> bool:
    return not isinstance(value.type, Tile) and is_int(value.type)


def _is_scalar(op: Op) -> bool:
    return op.elementwise and all(_is_index(v) for v in op.results)


def _root(value: Value, varying: set[Value]) -> Value:
    op = value.owner
    if not isinstance(op, Region) and isinstance(
        op, arith.Add | arith.Sub | arith.Mul | arith.Shl | arith.Cast | arith.Hint
    ):
        operands = [v for v in op.operands if v in varying]
        if len(operands) == 1:
            return _root(operands[0], varying)
    return value

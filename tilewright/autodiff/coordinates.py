"""The coordinates of a program: the numbers from which its tiles and addresses are computed.

Often these are the program's indices, or digits of them:

    head = tl.program_id(1)                         # coordinates: head // GROUP and head % GROUP
    keys = k_ptr + head // GROUP * stride           # heads of a group share keys

A kernel may also compute them, to visit tiles in another order:

    group = program // (SIZE * columns)
    row = group * SIZE + program % SIZE             # coordinates: row and column
    column = program % (SIZE * columns) // SIZE

No patterns are matched: candidates are found by dataflow, and accepted if the map from programs to
coordinates is one-to-one in the launch and fills a box. In a persistent kernel, which has a loop
over tiles, each iteration is treated as a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from tilewright.autodiff.points import Array, Points, UnknownNumber
from tilewright.base.record import record
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.types import Tile, is_int
from tilewright.ops import arith
from tilewright.ops.control import For, ProgramId


class Origin(NamedTuple):
    """A coordinate as a digit of a value: the value, and the coordinates that are digits below."""

    value: Value
    below: tuple[int, ...]


@record
class Coordinates:
    """The coordinates of a launch's programs.

    Attributes:
        outer: the loop whose iterations count as programs; None for programs of the launch.
        points: all programs.
        origins: what each coordinate is in the kernel.
        extents: of the box.
        digits: the values of the kernel that the coordinates determine, the origins' among them:
            for each the coordinates that are its digits, the lowest first.
    """

    outer: For | None
    points: Points
    origins: tuple[Origin, ...]
    extents: tuple[int, ...]
    digits: Mapping[Value, tuple[int, ...]]

    def numbers(self, points: Points) -> list[Array]:
        """Each coordinate at points, which may be iterations of inner loops."""
        return [
            points.value(value).astype(np.int64) // prod(self.extents[i] for i in below) % extent
            for (value, below), extent in zip(self.origins, self.extents, strict=True)
        ]

    def dependent(self, chosen: Iterable[int]) -> list[Value]:
        """The values that depend on some of the coordinates."""
        some = set(chosen)
        return [value for value, digits in self.digits.items() if some.intersection(digits)]

    def independent(self, chosen: Iterable[int]) -> list[Value]:
        """The values that other coordinates determine."""
        some = set(chosen)
        return [value for value, digits in self.digits.items() if not some.intersection(digits)]


def coordinates_of(fn: Function, outer: For | None, points: Points) -> Iterator[Coordinates]:
    """The candidates for coordinates of programs: the scalars from which tiles and addresses are
    computed; if these share terms, digits of program indices; then the operands of sums.

    Args:
        outer: the loop whose iterations count as programs.
        points: the programs of the launch, or these iterations.
    """
    roots, parts = _roots(fn, outer)
    computed = _computed(outer, roots, points)
    if computed is not None:
        yield computed
    for sources in _sources(fn, outer, points):
        found = _digits(outer, sources, points)
        if found is not None:
            yield found
    computed = _computed(outer, parts, points) if parts != roots else None
    if computed is not None:
        yield computed


def _computed(outer: For | None, values: Sequence[Value], points: Points) -> Coordinates | None:
    """Values that the kernel computes as coordinates, if they fill a box."""
    try:
        numbers = [points.value(value).astype(np.int64) for value in values]
    except UnknownNumber:
        return None
    extents = tuple(int(n.max(initial=0)) + 1 for n in numbers)
    if not values or not _is_box(numbers, extents, points.count):
        return None
    origins = tuple(Origin(value, ()) for value in values)
    return Coordinates(
        outer, points, origins, extents, {value: (i,) for i, value in enumerate(values)}
    )


def _sources(fn: Function, outer: For | None, points: Points) -> Iterator[list[list[Value]]]:
    """Indices whose digits the coordinates may be: for each the values that are this index."""
    used = [axis for axis in range(3) if points.grid[axis] > 1] or [0]
    indices = {axis: [op.result for op in _ids(fn) if op.axis == axis] for axis in used}
    if outer is None:
        yield list(indices.values())
    else:
        counter = [outer.body.args[0]]
        yield [counter]
        yield [counter, *(indices[axis] for axis in used if axis)]


def _ids(fn: Function) -> list[ProgramId]:
    return [op for op in fn.walk() if isinstance(op, ProgramId)]


def _digits(
    outer: For | None, sources: Sequence[list[Value]], points: Points
) -> Coordinates | None:
    """The digits of indices as coordinates, if they fill a box."""
    origins: list[Origin] = []
    extents: list[int] = []
    digits: dict[Value, tuple[int, ...]] = {}
    for values in sources:
        if not values:
            return None  # programs that the kernel does not distinguish
        try:
            extent = int(points.value(values[0]).max(initial=0)) + 1
            spans = _spans(values, extent, points)
        except UnknownNumber:
            return None
        weights = _weights([end for span in spans.values() for end in span], extent)
        first = len(origins)
        for low, high in pairwise(weights):
            origins.append(Origin(values[0], tuple(range(first, len(origins)))))
            extents.append(high // low)
        for value, (low, high) in spans.items():
            if low in weights and high in weights:
                places = range(weights.index(low), weights.index(high))
                digits[value] = tuple(first + i for i in places)
    made = Coordinates(outer, points, tuple(origins), tuple(extents), digits)
    numbers = made.numbers(points)
    if not _is_box(numbers, made.extents, points.count) or not _hold(made, numbers):
        return None
    return made


def _spans(values: Sequence[Value], extent: int, points: Points) -> dict[Value, tuple[int, int]]:
    """The values that are ``index % high // low`` of an index, by (low, high)."""
    found: dict[Value, tuple[int, int]] = dict.fromkeys(values, (1, extent))
    work = list(values)
    while work:
        value = work.pop()
        low, high = found[value]
        for user in value.users:
            if not _is_scalar(user) or user.results[0] in found:
                continue
            match user:
                case arith.Cast() | arith.Hint():
                    span = low, high
                case arith.IntDiv(lhs, rhs) if lhs is value:
                    span = min(low * _uniform(rhs, points), high), high
                case arith.Rem(lhs, rhs) if lhs is value:
                    span = low, min(high, low * _uniform(rhs, points))
                case _:
                    continue
            if 0 < span[0] <= span[1]:
                found[user.results[0]] = span
                work.append(user.results[0])
    return found


def _uniform(value: Value, points: Points) -> int:
    """A number that is the same in all programs; 0 if it is not, or not known."""
    try:
        numbers = points.value(value)
    except UnknownNumber:
        return 0
    return int(numbers[0]) if numbers.size and np.all(numbers == numbers[0]) else 0


def _weights(ends: Iterable[int], extent: int) -> list[int]:
    """The weights of digits: 1, then multiples of those before, and the extent at last."""
    weights = [1]
    for end in sorted({*ends, extent}):
        if end > weights[-1] and end % weights[-1] == 0 and extent % end == 0:
            weights.append(end)
    return weights if len(weights) > 1 else [1, extent]


def _hold(made: Coordinates, numbers: Sequence[Array]) -> bool:
    """Whether all values equal the numbers that their digits represent."""
    for value, digits in made.digits.items():
        number = np.zeros(made.points.count, np.int64)
        for i in reversed(digits):
            number = number * made.extents[i] + numbers[i]
        if np.any(made.points.value(value).astype(np.int64) != number):
            return False
    return True


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


def _roots(fn: Function, outer: For | None) -> tuple[list[Value], list[Value]]:
    """The scalars that tiles, addresses and loops use, without ops whose other operands are the
    same in all programs; and the same with sums of two split."""
    varying: set[Value] = {outer.body.args[0]} if outer is not None else set()
    for op in fn.walk():
        if isinstance(op, ProgramId) or any(v in varying for v in op.operands):
            varying.update(v for v in op.results if _is_index(v))
    roots: dict[Value, None] = {}
    parts: dict[Value, None] = {}
    for op in (outer.body if outer is not None else fn).walk():
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

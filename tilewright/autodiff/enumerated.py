"""The elements that accesses of an array have in common, by enumeration.

`distinct.py` proves that elements are distinct from the form of an index. An index of another form,
such as that of the windows of an image, (y + shift) % height * width + …, or one that is loaded
from a table of tokens, is computed here: for all points of the launch at once, by the `evaluate` of
the ops, as `points.py` does for scalars. This is exact, but takes time and memory for each element,
so it is the last resort, limited to `MOST_ACCESSES`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from tilewright.analysis.blocks import Access
from tilewright.analysis.pointers import base_of
from tilewright.autodiff.points import Array, Points, UnknownNumber, casts_integers
from tilewright.ir.core import Value
from tilewright.ir.types import is_int, is_pointer, numpy_of, shape_of
from tilewright.ops.arith import Constant
from tilewright.ops.control import For
from tilewright.ops.memory import AddPtr, Load
from tilewright.ops.shape import Arange
from tilewright.ops.view import View

MOST_ACCESSES = 1 << 24  # to single elements
FEW_ACCESSES = 1 << 20  # those that cost less than the derivation
AT_ONCE = 1 << 20
MOST_NUMBER = 1 << 62


class Sharing(NamedTuple):
    """Which accesses of an array may have an element in common.

    Attributes:
        distinct: whether no two of them have.
        private: whether none of two programs have.
        repeated: those of which two lanes may have one, in the same program and iteration.
    """

    distinct: bool
    private: bool
    repeated: tuple[Access, ...]


def are_distinct(accesses: Sequence[Access], points: Points, most: int = MOST_ACCESSES) -> bool:
    """Whether no two of these accesses of one array are to one element in a launch; False if that
    is not known, or if there are more than `most`."""
    try:
        runs = _Runs(accesses, points)
        if runs.count > most:
            return False
        found = [tiles.accessed(op)[0] for op in accesses for tiles, _ in runs.parts(op)]
    except UnknownNumber:
        return False
    places = np.sort(np.concatenate(found)) if found else np.zeros(0)
    return not np.any(places[1:] == places[:-1])


def sharing(accesses: Sequence[Access], points: Points, most: int) -> Sharing | None:
    """The elements shared by accesses of one array; None if an address is not known before the
    launch.

    Args:
        most: of more accesses than these, only that is determined.
    """
    try:
        runs = _Runs(accesses, points)
        if runs.count > most:
            for op in accesses:
                runs.first(op).accessed(op)
            tiles = tuple(op for op in accesses if shape_of(op.ptr.type))
            return Sharing(False, prod(points.grid) == 1, tiles)
        found = [runs.accessed(op) for op in accesses]
    except UnknownNumber:
        return None
    programs = prod(points.grid)
    if any(np.abs(one.place).max(initial=0) >= MOST_NUMBER // programs for one in found):
        return None
    numbers = np.concatenate([one.place * programs + one.program for one in found])
    numbers.sort()
    places = numbers // programs
    again = places[1:] == places[:-1]
    private = not np.any(again & (numbers[1:] != numbers[:-1]))
    repeated = [op for op, one in zip(accesses, found, strict=True) if one.repeats]
    return Sharing(not again.any(), private, tuple(repeated))


class _Accessed(NamedTuple):
    """The elements that an access touches, each with its program, and whether lanes repeat one."""

    place: Array
    program: Array
    repeats: bool


class _Runs:
    """The points at which accesses may be executed: a superset of those at which they are."""

    def __init__(self, accesses: Sequence[Access], points: Points) -> None:
        self._here = {op: points.inside(op)[0] for op in accesses}
        self.count = sum(here.count * self._lanes(op) for op, here in self._here.items())

    def _lanes(self, op: Access) -> int:
        return prod(shape_of(op.ptr.type))

    def first(self, op: Access) -> _Tiles:
        """The tiles of the first point, if there is one."""
        return _Tiles(self._here[op].taken(np.arange(min(1, self._here[op].count))))

    def parts(self, op: Access) -> Iterator[tuple[_Tiles, Array]]:
        """The tiles of all points, some at once, and the numbers of these points."""
        here = self._here[op]
        count = here.count * self._lanes(op) // AT_ONCE + 1
        for part in np.array_split(np.arange(here.count), count):
            yield _Tiles(here.taken(part)), part

    def accessed(self, op: Access) -> _Accessed:
        places: list[Array] = []
        programs: list[Array] = []
        repeats = False
        for tiles, part in self.parts(op):
            place, keep = tiles.accessed(op)
            program = np.repeat(self._here[op].program[part], self._lanes(op))
            places.append(place)
            programs.append(program if keep is None else program[keep.ravel()])
            repeats = repeats or self._has_repeated_lanes(op, len(part), place, keep)
        return _Accessed(np.concatenate(places), np.concatenate(programs), repeats)

    def _has_repeated_lanes(self, op: Access, count: int, place: Array, keep: Array | None) -> bool:
        """Whether two lanes have the same element at a point."""
        lanes = self._lanes(op)
        rows = place.reshape(count, lanes) if keep is None else np.empty((count, lanes), np.int64)
        if keep is not None:  # other lanes have elements of their own
            rows[:] = place.min(initial=0) - 1 - np.arange(lanes)
            rows[keep.reshape(count, lanes)] = place
        rows = np.sort(rows, axis=1)
        return bool(np.any(rows[:, 1:] == rows[:, :-1]))


class _Tiles:
    """Tiles of integers at some points: the first axis of their arrays is that of points."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._known: dict[Value, Array] = {}

    def accessed(self, op: Access) -> tuple[Array, Array | None]:
        """The elements that an access touches, and in which lanes it does; None is all."""
        places, keep = self.value(op.ptr), None
        if op.mask is not None:
            keep = self.value(op.mask).astype(bool)
            places = places[keep]
        return places.ravel(), keep

    def value(self, value: Value) -> Array:
        """A tile or scalar at each point; of a pointer, the distance from its array's begin.

        Raises:
            UnknownNumber: it is not known before the launch.
        """
        if not shape_of(value.type) and not is_pointer(value.type):
            return self._points.value(value)
        if value not in self._known:
            self._known[value] = np.broadcast_to(self._computed(value), self._lengths(value))
        return self._known[value]

    def _lengths(self, value: Value) -> tuple[int, ...]:
        return self._points.count, *shape_of(value.type)

    def _computed(self, value: Value) -> Array:
        op = value.op
        match op:
            case None if is_pointer(value.type) and value.owner.parent is None:
                return np.zeros(1, np.int64)
            case None | For():
                return self._points.carried(value, self.value)
            case AddPtr(pointer, offset):
                return self.value(pointer) + self.value(offset).astype(np.int64)
            case _ if casts_integers(op):
                return self.value(op.src)
            case Constant(number):
                return np.array(number, numpy_of(value.type))
            case Arange(start, end):
                return np.arange(start, end, dtype=numpy_of(value.type))[None]
            case View() if len(op.operands) == 1:
                return _viewed(op, value.index, self.value(op.src))
            case Load():
                return self._loaded(op).astype(numpy_of(value.type))
            case _ if op.elementwise and is_int(value.type):
                operands = [self.value(v) for v in op.operands]
                with np.errstate(all="ignore"):
                    return np.asarray(op.evaluate(*operands))
            case _:
                raise UnknownNumber(f"it depends on {op.name}")

    def _loaded(self, op: Load) -> Array:
        index = self.value(op.ptr)  # of a pointer that is not cast to another type
        mask = np.array(True) if op.mask is None else self.value(op.mask).astype(bool)
        other = np.array(0) if op.other is None else self.value(op.other)
        base = None if op.volatile else base_of(op.ptr)
        return self._points.read(base, index, mask, other)


def _viewed(op: View, index: int, src: Array) -> Array:
    """A result of a view of tiles, each at a point: the permutation does not depend on their
    values."""
    lengths = shape_of(op.src.type)
    places = np.arange(prod(lengths), dtype=np.int64).reshape(lengths)
    found = op.evaluate(places)
    taken = np.asarray(found[index] if isinstance(found, tuple) else found)
    return src.reshape(len(src), prod(lengths))[:, taken.ravel()].reshape(len(src), *taken.shape)

"""Few of all combinations of values, among which a fault of two or three values is still found.

    @pytest.mark.parametrize(("layout", "kind", "machine"), covering(LAYOUTS, KINDS, MACHINES))

Each value of an axis meets each value of every other axis, as most faults that depend on
combinations depend on two values, or three. What is known to be special is a case of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product
from typing import Any

Row = list[int | None]


def covering(*axes: Collection[Any], strength: int = 2) -> list[tuple[Any, ...]]:
    """Combinations of a value of each axis, in which all values of any `strength` axes meet.

    Begins with all combinations of the longest axes and adds the others one by one: to each row
    the value that makes the most new meetings, then rows for meetings that are missing.
    """
    longest = sorted(range(len(axes)), key=lambda axis: -len(axes[axis]))
    sizes = [len(axes[axis]) for axis in longest]
    rows: list[Row] = [list(row) for row in product(*map(range, sizes[:strength]))]
    for axis in range(strength, len(axes)):
        missing = _meetings(sizes[: axis + 1], strength)
        for number, row in enumerate(rows):
            values = [(number + i) % sizes[axis] for i in range(sizes[axis])]
            row.append(max(values, key=lambda v: len(missing & _met([*row, v], strength))))
            missing -= _met(row, strength)
        rows += _rows_of(missing, axis + 1)
        for number, row in enumerate(rows):
            row[:] = [number % n if v is None else v for v, n in zip(row, sizes, strict=False)]
    values = [list(axis) for axis in axes]
    found: list[tuple[Any, ...]] = []
    for row in rows:
        chosen = dict(zip(longest, row, strict=True))
        found.append(tuple(of[chosen[axis] or 0] for axis, of in enumerate(values)))
    return found


Meeting = tuple[tuple[int, int | None], ...]
"""Pairs of an axis and a value's number."""


def _meetings(sizes: list[int], strength: int) -> set[Meeting]:
    """Those of the last axis with others."""
    last = len(sizes) - 1
    return {
        (*zip(others, numbers[:-1], strict=True), (last, numbers[-1]))
        for others in combinations(range(last), strength - 1)
        for numbers in product(*(range(sizes[axis]) for axis in (*others, last)))
    }


def _met(row: Row, strength: int) -> set[Meeting]:
    """The meetings of the last axis of a row."""
    *others, last = enumerate(row)
    return {(*some, last) for some in combinations(others, strength - 1)}


def _rows_of(missing: set[Meeting], width: int) -> list[Row]:
    """Rows in which these meetings are; values that may be any are None."""
    rows: list[Row] = []
    row: Row | None
    for meeting in sorted(missing):
        fitting = (r for r in rows if all(r[axis] in (None, v) for axis, v in meeting))
        row = next(fitting, None)
        if row is None:
            rows.append(row := [None] * width)
        for axis, value in meeting:
            row[axis] = value
    return rows

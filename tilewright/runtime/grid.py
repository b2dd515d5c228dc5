"""Launch grids."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Grid = tuple[int, int, int]


def computed(compute: Callable[[dict[str, Any]], Any], named: Mapping[str, Any]) -> Any:
    """A grid, or another value of a launch, computed by a function of the arguments by name. A
    KeyError gets a note with the names that there are."""
    try:
        return compute(dict(named))
    except KeyError as error:
        error.add_note(f"The arguments of the launch are {', '.join(named)}.")
        raise


def extents_of(grid: Any) -> Grid:
    """The three extents of a launch grid.

    Raises:
        TypeError: it is not a tuple or list of ints.
        ValueError: it does not have one to three extents, or has a negative one. Further extents
            may be 1, as programs for Triton have them, which does not read them.
    """
    # Fast path for the common case.
    if type(grid) is tuple and 1 <= len(grid) <= 3:
        x, y, z = grid if len(grid) == 3 else (*grid, 1) if len(grid) == 2 else (grid[0], 1, 1)
        if type(x) is int and type(y) is int and type(z) is int and x >= 0 and y >= 0 and z >= 0:
            return x, y, z
    return _checked_extents(grid)


def _checked_extents(grid: Any) -> Grid:
    if type(grid) not in (tuple, list) and not _is_sequence(grid):
        along_x = f"; along one axis, ({grid},)" if isinstance(grid, int) else ""
        raise TypeError(
            "a grid is a tuple of one to three ints, or a function that returns one, not "
            f"{grid!r}{along_x}"
        )
    # Slowly from the fourth on: it may be a range of a million.
    if not len(grid) or any(_extent("beyond z", extent) != 1 for extent in grid[3:]):
        raise ValueError(f"a grid has one to three axes, not {len(grid)}: {grid!r}")
    axes = [_extent(axis, n) for axis, n in zip("xyz", grid, strict=False)]
    x, y, z = (*axes, 1, 1)[:3]
    return x, y, z


def _extent(axis: str, value: Any) -> int:
    """An extent from anything that Python takes as an index, such as a NumPy integer or an integer
    tensor of one element."""
    try:
        extent = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        message = f"axis {axis} of the grid is {value!r}, a {kind}, not an int"
        raise TypeError(message) from None
    if extent < 0:
        raise ValueError(f"axis {axis} of the grid is {extent}, which is negative")
    return extent


def _is_sequence(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)

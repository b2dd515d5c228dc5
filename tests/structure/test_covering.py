"""Combinations that stand for all of them: any two values, or three, meet in one."""

from __future__ import annotations

from itertools import combinations, product
from math import prod

import pytest

from tests.covering import covering


@pytest.mark.parametrize(
    ("sizes", "strength", "most"),
    [
        ((4, 8, 4), 2, 32),
        ((3, 3, 3, 3), 2, 9),
        ((5, 1, 7), 2, 35),
        ((2,) * 8, 2, 9),
        ((4, 8, 4, 6), 3, 192),
        ((4, 3, 4, 4, 2), 3, 80),
        ((2, 3), 2, 6),
    ],
)
def test_all_values_of_some_axes_meet(sizes: tuple[int, ...], strength: int, most: int) -> None:
    axes = [[f"{axis}.{value}" for value in range(size)] for axis, size in enumerate(sizes)]
    rows = covering(*axes, strength=strength)
    assert len(set(rows)) == len(rows) <= min(most, prod(sizes))
    for chosen in combinations(range(len(axes)), strength):
        met = {tuple(row[axis] for axis in chosen) for row in rows}
        assert met == set(product(*(axes[axis] for axis in chosen)))

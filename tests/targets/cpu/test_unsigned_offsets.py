"""Unsigned offsets wrap where an index is below 0, and one comparison tests both of its bounds."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

LENGTH = 256


@tw.jit
def shifted(x, y, n, shift, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if KIND == "cast":
        j = (i - shift).to(tl.uint32)
    elif KIND == "difference":
        j = i.to(tl.uint32) - shift.to(tl.uint32)
    else:
        j = i.to(tl.uint32) - 3
    found = tl.load(x + j, mask=j < n, other=-1)
    tl.store(y + i, found)
    tl.store(y + 256 + j, found, mask=j < n)


@pytest.mark.parametrize("shift", [3, 8, -5, -8])
@pytest.mark.parametrize("kind", ["cast", "difference", "constant"])
def test_elements_below_the_first_are_masked_off(kind: str, shift: int) -> None:
    n = 200
    x = np.arange(LENGTH, dtype=np.int32) + 7
    y = np.full(2 * LENGTH, -9, np.int32)
    shifted[(4,)](x, y, n, shift, KIND=kind, BLOCK=64)
    j = np.arange(LENGTH) - (3 if kind == "constant" else shift)
    inside = (j >= 0) & (j < n)
    expected = np.full(2 * LENGTH, -9, np.int32)
    expected[:LENGTH] = np.where(inside, x[np.clip(j, 0, n - 1)], -1)
    expected[LENGTH + j[inside]] = x[j[inside]]
    np.testing.assert_array_equal(y, expected)

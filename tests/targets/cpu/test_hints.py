"""Hints of contiguity that are false where indices wrap around or reach their bound.

Kernels for GPUs are full of them: `max_contiguous(i % n, BLOCK)` is true only if `n` is a multiple
of the block. No GPU tells, as its accesses have 16 bytes; a vector of the CPU is longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.fence import fenced_copy

BLOCK = 128


@tw.jit
def index(i, n, KIND: tl.constexpr):
    if KIND == "remainder":
        j = i % n
    elif KIND == "minimum":
        j = tl.minimum(i, n - 1)
    else:
        j = tl.where(i < n, i, 0)
    return tl.max_contiguous(tl.multiple_of(j, i.shape[0]), i.shape[0])


@tw.jit
def gathered(x, y, n, KIND: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = index(i, n, KIND)
    found = tl.load(x + j, mask=i % 3 != 0, other=-1) if MASKED else tl.load(x + j)
    tl.store(y + i, found)


@tw.jit
def scattered(x, y, n, KIND: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = (i < n) & (i % 3 != 0) if MASKED else i < n
    tl.store(y + index(i, n, KIND), tl.load(x + i), mask=first)


@tw.jit
def product(a, b, c, m, n, k, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row, column = index(i, m, "remainder"), index(j, n, "remainder")
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, 16):
        at = start + tl.arange(0, 16)
        left = tl.load(a + row[:, None] + at[None, :] * m)
        right = tl.load(b + at[:, None] * n + column[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(c + i[:, None] * n + j[None, :], sums, mask=(i < m)[:, None] & (j < n)[None, :])


def _indices(n: int, kind: str) -> Any:
    i = np.arange(2 * BLOCK)
    return {"remainder": i % n, "minimum": np.minimum(i, n - 1), "choice": np.where(i < n, i, 0)}[
        kind
    ]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["remainder", "minimum", "choice"])
@pytest.mark.parametrize("n", [128, 100, 37])
def test_loads_at_indices_that_are_said_to_be_contiguous(n: int, kind: str, masked: bool) -> None:
    x, y = fenced_copy(np.arange(n, dtype=np.float32)), np.zeros(2 * BLOCK, np.float32)
    gathered[(2,)](x, y, n, KIND=kind, MASKED=masked, BLOCK=BLOCK)
    expected = x[_indices(n, kind)]
    if masked:
        expected[::3] = -1
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["remainder", "minimum", "choice"])
def test_stores_at_indices_that_are_said_to_be_contiguous(kind: str, masked: bool) -> None:
    n = 100
    x = np.arange(1, 2 * BLOCK + 1, dtype=np.float32)
    y = fenced_copy(np.zeros(n, np.float32))
    scattered[(2,)](x, y, n, KIND=kind, MASKED=masked, BLOCK=BLOCK)
    expected = x[:n].copy()
    if masked:
        expected[::3] = 0
    np.testing.assert_array_equal(y, expected)


def test_products_of_rows_that_are_said_to_be_contiguous() -> None:
    m, n, k = 40, 100, 32
    rng = np.random.default_rng(0)
    a, b = (fenced_copy(rng.integers(-4, 4, (k, s)).astype(np.float32)) for s in (m, n))
    c = np.zeros((m, n), np.float32)
    product[(1, 2)](a, b, c, m, n, k, BLOCK=64)
    np.testing.assert_array_equal(c, a.T @ b)

"""Tiles of pointers as integers: compared, subtracted, and made pointers again.

LLVM ends the process where vectors of pointers with a common base are compared as integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

LENGTH = 32


@tw.jit
def linear(x, indices, out, n):
    i = tl.arange(0, 32)
    p, q = x + i, x + 2 * i + n
    tl.store(out + i, p.to(tl.int64) == q.to(tl.int64))
    tl.store(out + 32 + i, q.to(tl.int64) - p.to(tl.int64))
    tl.store(out + 64 + i, p.to(tl.uint64) < q.to(tl.uint64))


@tw.jit
def indexed(x, indices, out, n):
    i = tl.arange(0, 32)
    j = tl.load(indices + i)
    p, q = x + n + j, x + (31 - j)
    tl.store(out + i, p.to(tl.int64) == q.to(tl.int64))
    tl.store(out + 32 + i, q.to(tl.int64) - p.to(tl.int64))
    tl.store(out + 64 + i, p.to(tl.uint64) < q.to(tl.uint64))


@tw.jit
def chosen(x, indices, out, n):
    i = tl.arange(0, 32)
    j = tl.load(indices + i)
    base = x if n > 2 else x + 32
    p, q = tl.where(j > 9, base + n + j, x + i), tl.where(j > 20, x + 2 * i, base + (31 - j))
    tl.store(out + i, p.to(tl.int64) == q.to(tl.int64))
    tl.store(out + 32 + i, q.to(tl.int64) - p.to(tl.int64))
    tl.store(out + 64 + i, p.to(tl.uint64) < q.to(tl.uint64))


def _places(name: str, j: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the elements that p and q of a kernel point to."""
    i = np.arange(LENGTH)
    if name == "linear":
        return i, 2 * i + n
    if name == "indexed":
        return n + j, 31 - j
    base = 0 if n > 2 else 32
    return np.where(j > 9, base + n + j, i), np.where(j > 20, 2 * i, base + 31 - j)


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("dtype", ["int8", "uint32", "float64"])
@pytest.mark.parametrize("kernel", [linear, indexed, chosen], ids=lambda k: k.fn.__name__)
def test_addresses_are_compared_and_subtracted(kernel: Any, dtype: str, n: int) -> None:
    j = np.random.default_rng(n).integers(0, 28, LENGTH).astype(np.int32)
    x, out = np.zeros(128, dtype), np.zeros(3 * LENGTH, np.int64)
    kernel[(1,)](x, j, out, n)
    p, q = _places(kernel.fn.__name__, j, n)
    np.testing.assert_array_equal(out, np.concatenate([p == q, (q - p) * x.itemsize, p < q]))


@tw.jit
def moved_in_bytes(x, indices, out, n):
    i = tl.arange(0, 32)
    p = x + tl.load(indices + i)
    q = (p.to(tl.int64) + 4 * n).to(tl.pointer_type(tl.int32))
    tl.store(out + i, tl.load(q) + tl.load((x + i).to(tl.int64).to(tl.pointer_type(tl.int32))))


def test_an_integer_is_a_pointer_again() -> None:
    j = np.random.default_rng(0).integers(0, 32, LENGTH).astype(np.int32)
    x, out = np.arange(64, dtype=np.int32) ** 2, np.zeros(LENGTH, np.int32)
    moved_in_bytes[(1,)](x, j, out, 7)
    np.testing.assert_array_equal(out, x[j + 7] + x[:LENGTH])


@tw.jit
def rows_of_blocks(x, out, row):
    for i in range(16):
        tl.store(out + i, tl.load(x + (row * 16 + i) * 4))


@pytest.mark.parametrize("row", [0, 1, 5, -1, 2**26, 2**26 - 1, -(2**26) + 1, 2**27 + 3])
def test_products_that_wrap_are_of_a_row_and_a_loop(row: int) -> None:
    """Both are extended to 64 bits on their own, and the product for the row wraps."""
    x, out = np.arange(1024, dtype=np.int32), np.zeros(16, np.int32)
    middle = 256
    rows_of_blocks[(1,)](x[middle:], out, row)
    start = (row * 64 + 2**31) % 2**32 - 2**31
    assert np.array_equal(out, middle + start + 4 * np.arange(16))

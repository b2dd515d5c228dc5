"""The k greatest values of each row, with their columns. Needs only NumPy: python examples/top_k.py

`tl.topk` returns values without their indices. So a value and its column are packed into one 64-bit
integer, a *key*: the value in the high half, the column in the low half. Keys are ordered by value,
equal values by column; the result is unpacked at the end.

The bits of positive floats are ordered like the floats. Those of negative floats are ordered in
reverse, so all bits but the sign are inverted. The column is inverted as well: among equal values
the leftmost has the greatest key. (-0.0 is less than 0.0. NaN is greater than all numbers if its
sign bit is 0, and less otherwise.)

A row is processed in blocks. A block is sorted only if its greatest key exceeds the least of the k
best so far, which is rare after the first blocks.
"""

from __future__ import annotations

import numpy as np
from report import QUICK, check, compare_speed

import tilewright as tw
import tilewright.language as tl

BLOCK = 256


@tw.jit
def to_key(x, column):
    bits = x.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - column)


@tw.jit
def from_key(key):
    ordered = (key >> 32).to(tl.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    column = 0x7FFFFFFF - (key & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True), column.to(tl.int32)


@tw.jit
def top_k_kernel(
    x_ptr, value_ptr, column_ptr, x_stride, columns, k, K: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    # Less than every key: only column 2^31 - 1 has this key.
    best = tl.full((K,), -(2**63), tl.int64)
    least = tl.min(best, axis=0)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + column, mask=column < columns, other=0.0)
        key = tl.where(column < columns, to_key(x, column), -(2**63))
        if tl.max(key, axis=0) > least:
            # The K best of the block and the K best so far, in any order.
            both = tl.join(best, tl.topk(key, K))
            best = tl.topk(both.reshape(2 * K), K)
            least = tl.min(best, axis=0)
    value, place = from_key(best)
    out = tl.arange(0, K)
    tl.store(value_ptr + row * k + out, value, mask=out < k)
    tl.store(column_ptr + row * k + out, place, mask=out < k)


__tilewright_signatures__ = {
    "top_k_kernel": (
        "x_ptr=*fp32:16, value_ptr=*fp32:16, column_ptr=*i32:16, x_stride=i32, columns=i32, k=i32",
        {"K": 8, "BLOCK": BLOCK},
    ),
}


def top_k(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The `k` greatest values of each row of `x` (fp32), in descending order, and their columns.

    Rows must be contiguous and have at least `k` elements; `k` may be any positive number.
    """
    rows, columns = x.shape
    if not 0 < k <= columns:
        raise ValueError(f"k is {k}, and rows have {columns} elements")
    values, places = np.empty((rows, k), np.float32), np.empty((rows, k), np.int32)
    width = tw.next_power_of_2(k)
    constants = {"K": width, "BLOCK": max(BLOCK, width)}
    stride = x.strides[0] // x.itemsize
    top_k_kernel[(rows,)](x, values, places, stride, columns, k, **constants)
    return values, places


def numpy_top_k(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    places = np.argpartition(-x, k - 1, axis=1)[:, :k]
    values = np.take_along_axis(x, places, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(places, order, axis=1)


def main() -> None:
    rows, columns, k = (5, 700, 5) if QUICK else (1000, 10_007, 5)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, columns), dtype=np.float32)
    values, places = top_k(x, k)
    expected = np.argsort(-x, axis=1, kind="stable")[:, :k]
    check(f"top {k} of rows of {columns}", values, np.take_along_axis(x, expected, axis=1), 0)
    check("their columns", places, expected, 0)
    # Many equal values, including zeros: the leftmost come first. Rows are not adjacent.
    few = rng.integers(-2, 3, (7, 300)).astype(np.float32)[:, :77]
    expected = np.argsort(-few, axis=1, kind="stable")[:, :70]
    check("top 70 of 77, with equals", top_k(few, 70)[1], expected, 0)
    compare_speed({"tilewright": lambda: top_k(x, k), "NumPy": lambda: numpy_top_k(x, k)})


if __name__ == "__main__":
    main()

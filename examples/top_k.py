"""The k greatest of each row, with their places. Needs only NumPy: python examples/top_k.py

`tl.topk` sorts values, and says nothing of where they were. So a value and its column are made one
integer of 64 bits, a *key*: the value above, the column below. Keys order as values do, equal
values as their columns do, and what comes out is taken apart again.

The bits of a positive float, read as an integer, order as floats do. Those of a negative one order
the other way round, so all but the sign is turned over. The column is turned over as well: of equal
values the greater key is then the one further left. (-0.0 counts as less than 0.0. NaN comes before
all numbers if its sign is 0, behind them otherwise.)

A row goes through the processor in pieces; of each, only those that are better than the k best so
far remain. Most pieces have none, and then no sorting is needed: the greatest of a piece tells.
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
    # Less than every key: only a column of 2^31 - 1 could give it.
    best = tl.full((K,), -(2**63), tl.int64)
    least = tl.min(best, axis=0)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + column, mask=column < columns, other=0.0)
        key = tl.where(column < columns, to_key(x, column), -(2**63))
        if tl.max(key, axis=0) > least:
            # K of the piece beside the K best so far; which half is which does not matter.
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
    """The `k` greatest of each row of `x`, fp32, the greatest first, and the columns they are in.

    Rows must be contiguous and have at least `k` elements; `k` need not be a power of two.
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
    check("their places", places, expected, 0)
    # Many equal values, zeros among them: the leftmost come first. Rows have a stride of their own.
    few = rng.integers(-2, 3, (7, 300)).astype(np.float32)[:, :77]
    expected = np.argsort(-few, axis=1, kind="stable")[:, :70]
    check("top 70 of 77, with equals", top_k(few, 70)[1], expected, 0)
    compare_speed({"tilewright": lambda: top_k(x, k), "NumPy": lambda: numpy_top_k(x, k)})


if __name__ == "__main__":
    main()

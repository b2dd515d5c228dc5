"""Softmax of the rows of a matrix: one row per program, several, or a row too long for a tile.

The columns of a row are contiguous; rows begin a stride apart.
"""

from __future__ import annotations

import tilewright as triton
import tilewright.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def row_kernel(x_ptr, out_ptr, x_stride, out_stride, columns, BLOCK: tl.constexpr):
    """One row, which the tile holds as a whole."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=-float("inf"))
    weight = tl.exp(x - tl.max(x, axis=0))
    share = weight / tl.sum(weight, axis=0)
    tl.store(out_ptr + row * out_stride + column, share, mask=inside)


@triton.jit
def rows_kernel(
    x_ptr, out_ptr, x_stride, out_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """ROWS rows in one tile of two axes."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    place = row.to(tl.int64)[:, None]
    x = tl.load(x_ptr + place * x_stride + column[None, :], mask=inside, other=-float("inf"))
    # The rows past the last are all -inf: their maximum is replaced by a finite number, so that the
    # difference is not NaN. They are not stored.
    greatest = tl.maximum(tl.max(x, axis=1), -3.0e38)
    weight = tl.exp(x - greatest[:, None])
    share = weight / tl.sum(weight, axis=1)[:, None]
    tl.store(out_ptr + place * out_stride + column[None, :], share, mask=inside)


@triton.jit
def long_row_kernel(x_ptr, out_ptr, x_stride, out_stride, columns, BLOCK: tl.constexpr):
    """One row in two passes: the first computes its maximum and its sum, the second the results.

    Each lane has a separate maximum and sum, so lanes exchange nothing before the end of the first
    pass. The second pass reads the row from the cache; its stores should not evict other rows.
    Powers are of two: the product with log2(e) is one multiplication, and the division one
    subtraction.
    """
    row = tl.program_id(0).to(tl.int64)
    x_row, out_row = x_ptr + row * x_stride, out_ptr + row * out_stride
    lane = tl.arange(0, BLOCK)
    # Finite, so that a lane that has seen only padding subtracts no infinities.
    greatest = tl.full((BLOCK,), -3.0e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        inside = start + lane < columns
        x = tl.load(
            x_row + start + lane, mask=inside, other=-float("inf"), eviction_policy="evict_last"
        )
        x *= LOG2_E
        before = greatest
        greatest = tl.maximum(before, x)
        total = total * tl.exp2(before - greatest) + tl.exp2(x - greatest)
    peak = tl.max(greatest, axis=0)
    peak += tl.log2(tl.sum(total * tl.exp2(greatest - peak), axis=0))
    for start in range(0, columns, BLOCK):
        inside = start + lane < columns
        x = tl.load(x_row + start + lane, mask=inside, other=0.0, eviction_policy="evict_first")
        share = tl.exp2(x * LOG2_E - peak)
        tl.store(out_row + start + lane, share, mask=inside, eviction_policy="evict_first")

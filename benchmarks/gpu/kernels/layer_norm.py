"""Layer normalisation of the rows of a matrix, and its gradient.

For a row x of n columns, with mean m and r = 1 / sqrt(variance + epsilon), and h = (x - m) r:

    y = h w + b
    dx = r (g - mean(g) - h mean(h g)),  with g = dy w
    dw = sum over the rows of dy h,      db = sum over the rows of dy

Everything is computed in fp32. A row is one tile; a matrix has fewer than 2^31 elements.
"""

from __future__ import annotations

import tilewright as triton
import tilewright.language as tl


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, weight_ptr, bias_ptr, mean_ptr, rstd_ptr, stride, columns, epsilon,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    place = row * stride + column
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + place, centred * rstd * weight + bias, mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def backward_kernel(
    x_ptr, dy_ptr, dx_ptr, weight_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr,
    stride, rows, columns, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of the rows of this program, with a grid stride, and their contributions to dw and db.

    The parts of dw and db are rows of two matrices (programs, columns) in fp32, which
    `sum_parts_kernel` adds up: without atomics, so the result is deterministic.
    """
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(program, rows, tl.num_programs(0)):
        place = row * stride + column
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + place, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normal = (x - tl.load(mean_ptr + row)) * rstd
        g = dy * weight  # zero outside, for any value of `normal`
        along = tl.sum(normal * g, axis=0) / columns
        mean_g = tl.sum(g, axis=0) / columns
        tl.store(dx_ptr + place, (g - mean_g - normal * along) * rstd, mask=inside)
        dw += dy * normal
        db += dy
    part = program * columns + column
    tl.store(dw_ptr + part, dw, mask=inside)
    tl.store(db_ptr + part, db, mask=inside)


@triton.jit
def sum_parts_kernel(
    dw_parts_ptr, db_parts_ptr, dw_ptr, db_ptr, parts, columns,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums over the rows of two matrices (parts, columns), for BLOCK columns."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dw = tl.zeros((PARTS, BLOCK), tl.float32)
    db = tl.zeros((PARTS, BLOCK), tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        inside = (part < parts)[:, None] & (column < columns)[None, :]
        place = part[:, None] * columns + column[None, :]
        dw += tl.load(dw_parts_ptr + place, mask=inside, other=0.0)
        db += tl.load(db_parts_ptr + place, mask=inside, other=0.0)
    tl.store(dw_ptr + column, tl.sum(dw, axis=0), mask=column < columns)
    tl.store(db_ptr + column, tl.sum(db, axis=0), mask=column < columns)

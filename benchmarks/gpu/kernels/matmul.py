"""Matrix product through pointers: each program computes one tile of C = A B.

Programs are in grouped order: GROUP adjacent rows of tiles column by column, so that concurrent
programs share few rows of A and few columns of B.
"""

from __future__ import annotations

import tilewright as triton
import tilewright.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k,
    a_row, a_column, b_row, b_column, c_row, c_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C of any type, A and B of one type; integers are summed in int32, floats in fp32.

    The strides `a_row` … are in elements, from a row (or column) to the next. PRECISION is the
    input precision of fp32 products, such as "tf32".
    """
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    in_group = GROUP * tiles_n
    group, position = tl.program_id(0) // in_group, tl.program_id(0) % in_group
    height = min(tiles_m - group * GROUP, GROUP)  # the last group may have fewer rows of tiles
    tile_m, tile_n = group * GROUP + position % height, position // height

    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    # Rows and columns past the last wrap around to the first: only their results are masked off,
    # and the loop needs a mask along K only.
    a_tile = a_ptr + (row % m)[:, None] * a_row + inner[None, :] * a_column
    b_tile = b_ptr + inner[:, None] * b_row + (column % n)[None, :] * b_column

    total = tl.int32 if a_ptr.dtype.element_ty == tl.int8 else tl.float32
    acc = tl.zeros((BLOCK_M, BLOCK_N), total)
    for start in range(0, k, BLOCK_K):
        a = tl.load(a_tile, mask=inner[None, :] < k - start, other=0.0)
        b = tl.load(b_tile, mask=inner[:, None] < k - start, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=total)
        a_tile += BLOCK_K * a_column
        b_tile += BLOCK_K * b_row

    inside = (row < m)[:, None] & (column < n)[None, :]
    c_tile = c_ptr + row[:, None].to(tl.int64) * c_row + column[None, :] * c_column
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=inside)

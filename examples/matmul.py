"""Matrix product with a fused activation. Needs only NumPy: python examples/matmul.py

Each program computes one tile of the result: in a loop over K, it adds the product of a tile of A
and a tile of B to an fp32 accumulator. The activation is applied to the accumulator before it is
stored, so the result is written to memory once.

Programs run roughly in the order of their ids. In *grouped* order, consecutive programs compute the
tiles of GROUP_M rows column by column, so that tiles of A and B are reused while they are in the
cache.
"""

from __future__ import annotations

import numpy as np
from report import QUICK, check, compare_speed

import tilewright as tw
import tilewright.language as tl


def tiles_of(itemsize: int) -> dict[str, int]:
    """Tile sizes for an element size in bytes. The tiles of A and B and the accumulator fit into
    the L2 cache of a core; BLOCK_K is as large as possible, as each step along K reads and writes
    the accumulator."""
    return {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 512 // itemsize, "GROUP_M": 4}


@tw.jit
def identity(x):
    return x


@tw.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@tw.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    a_stride,
    b_stride,
    c_stride,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    in_group = GROUP_M * tiles_n
    group, position = tl.program_id(0) // in_group, tl.program_id(0) % in_group
    first_row = group * GROUP_M
    height = min(tiles_m - first_row, GROUP_M)  # the last group may have fewer rows of tiles
    tile_m, tile_n = first_row + position % height, position // height

    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + row[:, None] * a_stride + inner[None, :]
    b_tile = b_ptr + inner[:, None] * b_stride + column[None, :]

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        a = tl.load(a_tile, mask=(row[:, None] < m) & (inner[None, :] < k - start), other=0.0)
        b = tl.load(b_tile, mask=(inner[:, None] < k - start) & (column[None, :] < n), other=0.0)
        acc = tl.dot(a, b, acc)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * b_stride

    c_tile = c_ptr + row[:, None] * c_stride + column[None, :]
    tl.store(c_tile, ACTIVATION(acc), mask=(row[:, None] < m) & (column[None, :] < n))


__tilewright_signatures__ = {
    "matmul_kernel": (
        "a_ptr=*fp32:16, b_ptr=*fp32:16, c_ptr=*fp32:16, m=i32, n=i32, k=i32, "
        "a_stride=i32:16, b_stride=i32:16, c_stride=i32:16",
        {"ACTIVATION": leaky_relu, **tiles_of(4)},
    ),
}


def matmul(
    a: np.ndarray, b: np.ndarray, out: np.ndarray, activation: tw.JITFunction = identity
) -> np.ndarray:
    """``activation(a @ b)`` into `out`, for matrices with contiguous rows."""
    (m, k), n = a.shape, b.shape[1]
    strides = (t.strides[0] // t.itemsize for t in (a, b, out))
    tiles = tiles_of(a.itemsize)
    grid = (tw.cdiv(m, tiles["BLOCK_M"]) * tw.cdiv(n, tiles["BLOCK_N"]),)
    matmul_kernel[grid](a, b, out, m, n, k, *strides, ACTIVATION=activation, **tiles)
    return out


def main() -> None:
    m, n, k = (65, 130, 77) if QUICK else (1000, 1100, 1200)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k), dtype=np.float32)
    b = rng.standard_normal((k, n), dtype=np.float32)
    out = np.empty((m, n), np.float32)
    exact = a.astype(np.float64) @ b
    check(f"product of {m}x{k} and {k}x{n}", matmul(a, b, out), exact, 2e-4)
    activated = np.where(exact >= 0, exact, 0.01 * exact)
    check("with leaky ReLU", matmul(a, b, out, leaky_relu), activated, 2e-4)

    def numpy() -> None:
        np.matmul(a, b, out=out)
        np.copyto(out, 0.01 * out, where=out < 0)

    compare_speed({"tilewright": lambda: matmul(a, b, out, leaky_relu), "NumPy": numpy})


if __name__ == "__main__":
    main()

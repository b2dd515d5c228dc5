"""Matrix product with 4-bit weights. Needs only NumPy: python examples/quantized_matmul.py

With few rows of activations, a matrix product is limited by the bandwidth at which the weights are
read; in 4 bits they take an eighth of the bytes of fp32. The weights are quantised in groups of 64
along K: each group of each column has a scale, and a weight is its scale times an integer from -8
to 7.

A byte has two weights: in the low nibble one of the first 32 of a group, in the high nibble the one
32 rows further. So the low nibbles of a tile of bytes are a tile of weights without any shuffle;
they are multiplied by the first 32 columns of the activations, the high nibbles by the next 32. The
scale is applied once, to the product of the group.
"""

from __future__ import annotations

import numpy as np
from report import QUICK, check, compare_speed

import tilewright as tw
import tilewright.language as tl

GROUP = 64
TILES = {"BLOCK_M": 16, "BLOCK_N": 128}


@tw.jit
def quantized_matmul_kernel(
    a_ptr, packed_ptr, scale_ptr, out_ptr, m, n, k, a_stride, out_stride,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = GROUP // 2
    row = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    column = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    inner = tl.arange(0, HALF)
    a_tile = a_ptr + row * a_stride + inner[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for group in range(tl.cdiv(k, GROUP)):
        left = group * GROUP + inner[None, :]  # columns of a for the low nibbles
        right = left + HALF
        first = tl.load(a_tile + group * GROUP, mask=(row < m) & (left < k), other=0.0)
        second = tl.load(a_tile + group * GROUP + HALF, mask=(row < m) & (right < k), other=0.0)
        byte = (group * HALF + inner)[:, None]  # in bounds: the last group is padded
        packed = tl.load(packed_ptr + byte * n + column, mask=column < n, other=0)
        low = (packed & 15).to(first.dtype) - 8
        high = (packed >> 4).to(first.dtype) - 8
        product = tl.dot(second, high, tl.dot(first, low))
        scale = tl.load(scale_ptr + group * n + column, mask=column < n, other=0.0)
        acc += product * scale
    tl.store(out_ptr + row * out_stride + column, acc, mask=(row < m) & (column < n))


__tilewright_signatures__ = {
    "quantized_matmul_kernel": (
        "a_ptr=*fp16:16, packed_ptr=*u8:16, scale_ptr=*fp32:16, out_ptr=*fp16:16, m=i32, n=i32:16, "
        "k=i32:16, a_stride=i32:16, out_stride=i32:16",
        {"GROUP": GROUP, **TILES},
    ),
}


def quantize(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantise weights of shape (k, n): uint8 of shape (ceil(k / 64) * 32, n), and fp32 scales of
    shape (ceil(k / 64), n). The last group is padded with zeros."""
    k, n = weights.shape
    groups = tw.cdiv(k, GROUP)
    grouped = np.zeros((groups * GROUP, n), np.float32)
    grouped[:k] = weights
    grouped = grouped.reshape(groups, GROUP, n)
    scale = np.maximum(np.abs(grouped).max(axis=1), 1e-12) / 7
    whole = np.rint(grouped / scale[:, None]).astype(np.int32) + 8
    low, high = whole[:, : GROUP // 2], whole[:, GROUP // 2 :]
    return (low | high << 4).astype(np.uint8).reshape(-1, n), scale.astype(np.float32)


def dequantize(packed: np.ndarray, scale: np.ndarray, k: int) -> np.ndarray:
    """The fp32 weights of shape (k, n) of quantised ones."""
    groups, n = scale.shape
    both = packed.reshape(groups, GROUP // 2, n)
    whole = np.concatenate([both & 15, both >> 4], axis=1).astype(np.float32) - 8
    return (whole * scale[:, None]).reshape(-1, n)[:k]


def quantized_matmul(
    a: np.ndarray, packed: np.ndarray, scale: np.ndarray, out: np.ndarray
) -> np.ndarray:
    """``a @ dequantize(packed, scale, k)`` into `out`; `a` (m, k) and `out` are fp32 or fp16."""
    (m, k), n = a.shape, packed.shape[1]
    a_stride, out_stride = (t.strides[0] // t.itemsize for t in (a, out))
    grid = (tw.cdiv(n, TILES["BLOCK_N"]), tw.cdiv(m, TILES["BLOCK_M"]))
    quantized_matmul_kernel[grid](
        a, packed, scale, out, m, n, k, a_stride, out_stride, GROUP=GROUP, **TILES
    )
    return out


def main() -> None:
    m, n, k = (5, 70, 150) if QUICK else (16, 4001, 4100)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k), dtype=np.float32)
    packed, scale = quantize(rng.standard_normal((k, n), dtype=np.float32))
    weights = dequantize(packed, scale, k)
    out = np.empty((m, n), np.float32)
    exact = a.astype(np.float64) @ weights
    what = f"product of {m}x{k} and {k}x{n}"
    check(f"{what}, fp32", quantized_matmul(a, packed, scale, out), exact, 2e-4)
    half, half_out = a.astype(np.float16), np.empty((m, n), np.float16)
    exact = half.astype(np.float64) @ weights
    check(f"{what}, fp16", quantized_matmul(half, packed, scale, half_out), exact, 2e-3)
    print(f"bytes of weights and scales: {packed.nbytes + scale.nbytes}, in fp32 {weights.nbytes}")
    compare_speed({
        "tilewright": lambda: quantized_matmul(a, packed, scale, out),
        "NumPy": lambda: np.matmul(a, dequantize(packed, scale, k), out=out),
        "NumPy, fp32": lambda: np.matmul(a, weights, out=out),
    })  # fmt: skip


if __name__ == "__main__":
    main()

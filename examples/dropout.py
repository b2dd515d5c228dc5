"""Dropout without a stored mask. Needs only NumPy: python examples/dropout.py

Dropout zeroes each element with probability p, and the gradient needs the same mask again. Here the
mask is a function of a seed and the element's index (the counter-based generator Philox), so it is
recomputed instead of stored: the gradient is the same kernel, applied to dy with the same seed.
"""

from __future__ import annotations

import numpy as np
from report import QUICK, check, compare_speed

import tilewright as tw
import tilewright.language as tl

BLOCK = 4096


@tw.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    kept = tl.rand(seed, index) >= p
    x = tl.load(x_ptr + index, mask=inside)
    # Division by 1 - p preserves the expected value.
    tl.store(out_ptr + index, tl.where(kept, x / (1 - p), 0.0), mask=inside)


__tilewright_signatures__ = {
    "dropout_kernel": (
        "x_ptr=*fp32:16, out_ptr=*fp32:16, n=i32, p=fp32, seed=i32",
        {"BLOCK": BLOCK},
    ),
}


def dropout(x: np.ndarray, p: float, seed: int, out: np.ndarray) -> np.ndarray:
    """Zero each element of `x` with probability `p`, divide the others by 1 - p; into `out`."""
    dropout_kernel[(tw.cdiv(x.size, BLOCK),)](x, out, x.size, p, seed, BLOCK=BLOCK)
    return out


def uniform(seed: int, place: np.ndarray) -> np.ndarray:
    """A reference for `tl.rand`: ten rounds of Philox 4x32 in 64-bit integers.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), section 3.3.
    """
    low = np.uint64(0xFFFFFFFF)
    counter = [place.astype(np.uint64), *(np.zeros(place.shape, np.uint64) for _ in range(3))]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        a, b = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        high = b >> np.uint64(32), a >> np.uint64(32)
        counter = [high[0] ^ counter[1] ^ key[0], b & low, high[1] ^ counter[3] ^ key[1], a & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    bits = counter[0].astype(np.uint32).view(np.int32)
    # Map -x - 1 and x to the same magnitude, below 2^31, and scale it to [0, 1).
    magnitude = np.where(bits < 0, -bits - 1, bits)
    return magnitude.astype(np.float32) * np.float32(4.6566127342e-10)


def main() -> None:
    n, p, seed = 10_007 if QUICK else 4_000_007, 0.3, 2025
    rng = np.random.default_rng(0)
    x = rng.standard_normal(n, dtype=np.float32)
    out = np.empty_like(x)
    scale = np.float32(1) - np.float32(p)
    expected = np.where(uniform(seed, np.arange(n)) >= np.float32(p), x / scale, np.float32(0))
    check(f"dropout of {n} elements", dropout(x, p, seed, out), expected, 1e-6)
    print(f"zeroed: {np.mean(out == 0):.4f} of the elements (p = {p})")
    gradient = dropout(np.ones_like(x), p, seed, np.empty_like(x))
    check("the gradient's mask is the same", (gradient == 0), (expected == 0), 0)

    def numpy() -> None:
        np.multiply(x, rng.random(n, np.float32) >= p, out=out)
        np.divide(out, scale, out=out)

    compare_speed({"tilewright": lambda: dropout(x, p, seed, out), "NumPy": numpy})


if __name__ == "__main__":
    main()

"""Adds two vectors. Needs only NumPy: python examples/vector_add.py

A kernel is a function that many *programs* execute, each on its own part of the data. Here program
p processes the elements p * BLOCK to (p + 1) * BLOCK - 1 as one *tile*: a block of values on which
each operation works as a whole. The last tile may exceed the array: loads and stores are masked.
"""

from __future__ import annotations

import numpy as np
from report import QUICK, check, compare_speed

import tilewright as tw
import tilewright.language as tl

BLOCK = 4096


@tw.jit
def add_kernel(x_ptr, y_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    x = tl.load(x_ptr + index, mask=inside)
    y = tl.load(y_ptr + index, mask=inside)
    tl.store(sum_ptr + index, x + y, mask=inside)


__tilewright_signatures__ = {
    "add_kernel": ("x_ptr=*fp32:16, y_ptr=*fp32:16, sum_ptr=*fp32:16, n=i32", {"BLOCK": BLOCK}),
}


def add(x: np.ndarray, y: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """``x + y`` of two contiguous arrays of one shape and type."""
    out = np.empty_like(x) if out is None else out
    # The grid: the number of programs along each of up to three axes.
    grid = (tw.cdiv(x.size, BLOCK),)
    add_kernel[grid](x, y, out, x.size, BLOCK=BLOCK)
    return out


def main() -> None:
    n = 10_007 if QUICK else 4_000_007
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(n, dtype=np.float32) for _ in range(2))
    out = np.empty_like(x)
    check(f"sum of {n} fp32 elements", add(x, y), x + y, tolerance=0)
    compare_speed(
        {"tilewright": lambda: add(x, y, out), "NumPy": lambda: np.add(x, y, out=out)},
    )


if __name__ == "__main__":
    main()

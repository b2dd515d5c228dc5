"""Softmax of each row of a matrix. Needs only NumPy: python examples/fused_softmax.py

NumPy makes five passes over memory: the maximum, the difference, the exponential, the sum and the
quotient. The kernel reads each row from memory once and writes it once; intermediate results stay
in registers or caches. Rows may have any length: the tile is as long as the next power of two, and
masked elements are -inf, the neutral element of the maximum, whose exponential is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from report import QUICK, check, compare_speed

import tilewright as tw
import tilewright.language as tl


@tw.jit
def softmax_kernel(x_ptr, out_ptr, x_stride, out_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    # exp(x - max) cannot overflow, and the quotient is the same.
    numerator = tl.exp(x - tl.max(x, axis=0))
    result = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * out_stride + column, result, mask=inside)


__tilewright_signatures__ = {
    "softmax_kernel": (
        "x_ptr=*fp32:16, out_ptr=*fp32:16, x_stride=i32, out_stride=i32, columns=i32",
        {"BLOCK": 1024},
    ),
}


def softmax(x: Any, out: Any) -> Any:
    """Softmax of the rows of `x` into `out`: arrays or tensors with contiguous rows."""
    rows, columns = x.shape
    # Strides in elements; NumPy's are in bytes.
    x_stride, out_stride = (
        t.stride(0) if hasattr(t, "stride") else t.strides[0] // t.itemsize for t in (x, out)
    )
    block = tw.next_power_of_2(columns)
    softmax_kernel[(rows,)](x, out, x_stride, out_stride, columns, BLOCK=block)
    return out


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    numerator = np.exp(x - x.max(axis=1, keepdims=True))
    return numerator / numerator.sum(axis=1, keepdims=True)


def main() -> None:
    rows, columns = (37, 781) if QUICK else (4096, 781)
    x = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    out = np.empty_like(x)
    check(f"softmax of {rows} rows of {columns}", softmax(x, out), numpy_softmax(x), 1e-6)
    # A view whose rows are not adjacent needs no copy.
    left = x[:, :100]
    check("softmax of 100 columns", softmax(left, np.empty_like(left)), numpy_softmax(left), 1e-6)
    compare_speed({"tilewright": lambda: softmax(x, out), "NumPy": lambda: numpy_softmax(x)})


if __name__ == "__main__":
    main()

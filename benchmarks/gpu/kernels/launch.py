"""Kernels that finish before the host has launched the next one."""

from __future__ import annotations

import tilewright as triton
import tilewright.language as tl


@triton.jit
def five_arguments_kernel(x_ptr, y_ptr, out_ptr, first, n, BLOCK: tl.constexpr):
    index = first + tl.arange(0, BLOCK)
    inside = index < n
    total = tl.load(x_ptr + index, mask=inside) + tl.load(y_ptr + index, mask=inside)
    tl.store(out_ptr + index, total, mask=inside)


@triton.jit
def nineteen_arguments_kernel(
    a_ptr, b_ptr, c_ptr, d_ptr, e_ptr, f_ptr, g_ptr, out_ptr,
    n, i, j, k, r, s, t, u, v, scale, shift, BLOCK: tl.constexpr,
):  # fmt: skip
    """Eight tensors, nine ints and two floats, each of which the result depends on."""
    index = tl.arange(0, BLOCK)
    inside = index < n
    total = tl.load(a_ptr + index, mask=inside) + tl.load(b_ptr + index, mask=inside)
    total += tl.load(c_ptr + index, mask=inside) + tl.load(d_ptr + index, mask=inside)
    total += tl.load(e_ptr + index, mask=inside) + tl.load(f_ptr + index, mask=inside)
    total += tl.load(g_ptr + index, mask=inside)
    whole = i + j + k + r + s + t + u + v
    tl.store(out_ptr + index, total * scale + shift + whole, mask=inside)

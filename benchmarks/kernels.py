"""Benchmark kernels that are not among the examples."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def multiply_add_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y * z"""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    x = tl.load(x_ptr + index, mask=inside)
    y = tl.load(y_ptr + index, mask=inside)
    z = tl.load(z_ptr + index, mask=inside)
    tl.store(out_ptr + index, x + y * z, mask=inside)


@tw.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x * Φ(x), with Φ the cumulative normal distribution: the exact form of GELU."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    x = tl.load(x_ptr + index, mask=inside)
    tl.store(out_ptr + index, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=inside)


@tw.jit
def five_arguments_kernel(x_ptr, y_ptr, out_ptr, first, n, BLOCK: tl.constexpr):
    """Minimal work, to measure the overhead of a launch."""
    index = first + tl.arange(0, BLOCK)
    inside = index < n
    total = tl.load(x_ptr + index, mask=inside) + tl.load(y_ptr + index, mask=inside)
    tl.store(out_ptr + index, total, mask=inside)

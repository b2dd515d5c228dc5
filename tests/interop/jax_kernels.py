"""Kernels of the tests of JAX."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@tw.jit
def split_kernel(low, high, x, n, at, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    tl.store(low + i, tl.minimum(v, at), i < n)
    tl.store(high + i, tl.maximum(v, at), i < n)


@tw.jit
def scale_kernel(x, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) * factor, i < n)

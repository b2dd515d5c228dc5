"""Small kernels, each with one finding, and a script that launches two of them."""

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, inside) + tl.load(y + i, inside), inside)


@tw.jit
def strided(x, out, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * stride))


@tw.jit
def every_third(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * 3))


@tw.jit
def looked_up(x, places, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.load(places + i)))


@tw.jit
def rows(x, out, row_stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * row_stride + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))


@tw.jit
def positive(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(out + i, value, value > 0)


@tw.jit
def total(x, out, n, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        acc += tl.load(x + start + tl.arange(0, BLOCK))
    tl.store(out + tl.arange(0, BLOCK), acc)


@tw.jit
def chain(x, links, out, steps, BLOCK: tl.constexpr):
    at = 0
    acc = tl.zeros((BLOCK,), tl.float32)
    for _ in range(steps):
        acc += tl.load(x + at + tl.arange(0, BLOCK))
        at = tl.load(links + at)
    tl.store(out + tl.arange(0, BLOCK), acc)


@tw.jit
def product(a, b, out, k, a_stride, b_stride, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        lhs = tl.load(a + row[:, None] * a_stride + start + inner[None, :])
        rhs = tl.load(b + (start + inner[:, None]) * b_stride + column[None, :])
        acc = tl.dot(lhs, rhs, acc)
    tl.store(out + row[:, None] * N + column[None, :], acc)


@tw.jit
def triangle(x, out, BLOCK: tl.constexpr):
    """Program i walks over i + 1 blocks."""
    acc = tl.zeros((BLOCK,), tl.float32)
    for block in tl.range(tl.program_id(0) + 1):
        acc += tl.load(x + block * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), acc)


@tw.jit
def doubled(x):
    return x + x


@tw.jit
def calls(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, doubled(tl.load(x + i)))


__tilewright_signatures__ = {"rows": ("x=*fp32:16,out=*fp32:16,row_stride=i32", {"BLOCK": 64})}

if __name__ == "__main__":
    print("this is what the script prints")
    x = np.ones(1000, np.float32)
    add[(tw.cdiv(1000, 256),)](x, x, np.empty_like(x), 1000, BLOCK=256, num_warps=2)
    raise SystemExit("explaining goes no further than the launch")

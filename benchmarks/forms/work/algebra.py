"""Launches of `kernels/algebra.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("algebra")

HALF = torch.float16
WIDE = torch.bfloat16


def _gram(setting: Setting, batch: int, m: int, k: int, *, combines: bool) -> Prepared:
    batch, m, k = setting.pick(2, batch, batch), setting.pick(150, m, m), setting.pick(150, k, k)
    x = setting.randn(batch, m, k, dtype=WIDE) * k**-0.5
    out = setting.empty(batch, m, m, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.lower_gram[(cdiv(m, 128) * cdiv(m, 128), batch)](
            x, out, m, k, 2.0, -1.5, COMBINES=combines, BM=128, BN=128, BK=64, GROUP=8,
            num_warps=4, num_stages=4,
        ),
        [out],
        tolerance=1e-2,
    )  # fmt: skip


FORMS.add("x x^T of 2048x1024, 8 at once", lambda s: _gram(s, 8, 2048, 1024, combines=False))
FORMS.add("a x x^T + b x, 2048, 4 at once", lambda s: _gram(s, 4, 2048, 2048, combines=True))


@FORMS.form("gradient of weights added in fp32")
def accumulate(setting: Setting) -> Prepared:
    t, k, n = (setting.pick(128, v, v) for v in (8192, 2048, 2048))
    x, dy = setting.randn(t, k, dtype=WIDE), setting.randn(t, n, dtype=WIDE) * 0.02
    dw = torch.zeros(k, n, device=setting.device)
    return Prepared(
        lambda kernels: kernels.accumulate_gradient[(k // 128, n // 128)](
            x, dy, dw, t, k, n, BK=128, BN=128, BT=64, num_warps=8, num_stages=3
        ),
        [dw],
        reset=dw.zero_,
    )


@FORMS.form("x^T x of 262144x128, in parts")
def tall_gram(setting: Setting) -> Prepared:
    rows, programs = setting.pick(300, 262144, 262144), setting.pick(3, 264, 264)
    x = setting.randn(rows, 128, dtype=WIDE)
    out = torch.zeros(128, 128, device=setting.device)
    return Prepared(
        lambda kernels: kernels.gram_in_parts[(programs,)](
            x, out, rows, BM=64, N=128, num_warps=8, num_stages=4
        ),
        [out],
        reset=out.zero_,
    )


@FORMS.form("nearest of 4096 centroids")
def nearest(setting: Setting) -> Prepared:
    n, count, d = setting.pick(100, 65536, 65536), setting.pick(200, 4096, 4096), 64
    x, centroids = setting.randn(n, d, dtype=HALF), setting.randn(count, d, dtype=HALF)
    norms = (centroids.float() ** 2).sum(1)
    labels = torch.empty(n, dtype=torch.int32, device=setting.device)
    distances = setting.empty(n)
    return Prepared(
        lambda kernels: kernels.nearest[(cdiv(n, 128),)](
            x, centroids, norms, labels, distances, n, count, D=d, BM=128, BN=64,
            num_warps=4, num_stages=3,
        ),
        [distances],
    )  # fmt: skip


@FORMS.form("sums by a Gaussian kernel, D 64")
def kernel_sum(setting: Setting) -> Prepared:
    n, m, d = setting.pick(100, 16384, 16384), setting.pick(150, 8192, 8192), 64
    x, y, v = (setting.randn(rows, d, dtype=HALF) * 0.3 for rows in (n, m, m))
    out = setting.empty(n, d)
    return Prepared(
        lambda kernels: kernels.kernel_sum[(cdiv(n, 128),)](
            x, y, v, out, n, m, 0.5, D=d, DV=d, BM=128, BN=64, num_warps=4, num_stages=3
        ),
        [out],
        tolerance=1e-2,
    )


@FORMS.form("complex product of 2048")
def complex_product(setting: Setting) -> Prepared:
    size = setting.pick(128, 2048, 2048)
    ar, ai, br, bi = (setting.randn(size, size, dtype=HALF) for _ in range(4))
    cr, ci = setting.empty(size, size), setting.empty(size, size)
    return Prepared(
        lambda kernels: kernels.complex_product[(cdiv(size, 64), cdiv(size, 64))](
            ar, ai, br, bi, cr, ci, size, size, size, BM=64, BN=64, BK=32,
            num_warps=4, num_stages=3,
        ),
        [cr, ci],
        tolerance=1e-2,
    )  # fmt: skip


@FORMS.form("product with sums of fp16, NT")
def short_sums(setting: Setting) -> Prepared:
    size = setting.pick(128, 4096, 4096)
    a, b = setting.randn(size, size, dtype=HALF), setting.randn(size, size, dtype=HALF) * 0.02
    c = setting.empty(size, size, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.short_sums[(size // 128, size // 128)](
            a, b, c, size, size, size, BM=128, BN=128, BK=64, num_warps=4, num_stages=3
        ),
        [c],
        tolerance=2e-2,
    )


@FORMS.form("65536 products 16x16x16, 8 at once")
def several(setting: Setting) -> Prepared:
    count = setting.pick(32, 65536, 65536)
    a, b = setting.randn(count, 16, 16, dtype=HALF), setting.randn(count, 16, 16, dtype=HALF)
    c = setting.empty(count, 16, 16)
    return Prepared(
        lambda kernels: kernels.several_at_once[(count // 8,)](a, b, c, COUNT=8, S=16, num_warps=4),
        [c],
    )


@FORMS.form("rows of 128 times signs")
def hadamard(setting: Setting) -> Prepared:
    rows = setting.pick(100, 262144, 262144)
    x = setting.randn(rows, 128, dtype=WIDE)
    signs = torch.randint(0, 2, (128, 128), device=setting.device).to(WIDE) * 2 - 1
    y = setting.empty(rows, 128, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.hadamard[(cdiv(rows, 128),)](
            x, signs, y, rows, 128**-0.5, N=128, BM=128, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("a b + c of 1024, TN, with factors")
def scaled(setting: Setting) -> Prepared:
    m, n, k = (setting.pick(v // 8, v, v) for v in (1024, 1024, 1024))
    a, b = setting.randn(k, m, dtype=HALF), setting.randn(k, n, dtype=HALF)
    c, d = setting.randn(m, n, dtype=HALF), setting.empty(m, n, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.scaled_and_added[(cdiv(m, 64), cdiv(n, 64))](
            a, b, c, d, m, n, k, 0.5, 2.0, BM=64, BN=64, BK=32, num_warps=4, num_stages=4
        ),
        [d],
    )


@FORMS.form("conjugate gradients of 64 rows, tf32")
def solve_rows(setting: Setting) -> Prepared:
    count, rows, n = setting.pick(2, 64, 64), setting.pick(100, 1024, 1024), 128
    a = setting.randn(count, n, n) * (0.2 / n**0.5)
    a = a + a.transpose(1, 2) + torch.eye(n, device=setting.device)
    b, x = setting.randn(count, rows, n, dtype=torch.bfloat16), setting.empty(count, rows, n)
    return Prepared(
        lambda kernels: kernels.solve_rows[(cdiv(rows, 64), count)](
            a, b, x, rows, STEPS=8, N=n, BM=64, num_warps=4
        ),
        [x],
        tolerance=1e-2,
    )

"""Launches of `kernels/numerics.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("numerics")
WIDE = torch.bfloat16


@FORMS.form("stencil of 7 points, 256 x 256 x 256")
def stencil(setting: Setting) -> Prepared:
    n = setting.pick(20, 256, 256)
    x, y = setting.randn(n, n, n), setting.empty(n, n, n)
    return Prepared(
        lambda kernels: kernels.stencil[(cdiv(n, 64), cdiv(n, 8), n)](
            x, y, n, n, n, 0.4, 0.1, BY=8, BZ=64, num_warps=4
        ),
        [y],
        tolerance=1e-5,
    )


@FORMS.form("depthwise convolution 3x3")
def depthwise(setting: Setting) -> Prepared:
    images, size, channels = setting.pick(1, 32, 32), setting.pick(10, 56, 56), 256
    half = torch.float16
    x = setting.randn(images, size, size, channels, dtype=half)
    weight, y = setting.randn(9, channels, dtype=half), torch.empty_like(x)
    return Prepared(
        lambda kernels: kernels.depthwise[(cdiv(size, 8) * (channels // 128), size, images)](
            x, weight, y, size, size, channels, BW=8, BC=128, num_warps=4
        ),
        [y],
    )


@FORMS.form("Cholesky factors 32x32")
def cholesky(setting: Setting) -> Prepared:
    count = setting.pick(3, 8192, 8192)
    x = setting.randn(count, 32, 32)
    x = x @ x.mT + 32 * torch.eye(32, device=setting.device)
    y = torch.empty_like(x)
    return Prepared(
        lambda kernels: kernels.cholesky[(count,)](x, y, N=32, num_warps=1), [y], tolerance=1e-4
    )


@FORMS.form("triangular systems 64x64")
def solve_lower(setting: Setting) -> Prepared:
    count = setting.pick(2, 2048, 2048)
    lower = setting.randn(count, 64, 64).tril() * 0.1 + torch.eye(64, device=setting.device)
    b = setting.randn(count, 64, 64)
    x = torch.empty_like(b)
    return Prepared(
        lambda kernels: kernels.solve_lower[(count, 1)](lower, b, x, 64, N=64, BC=64, num_warps=4),
        [x],
        tolerance=1e-4,
    )


@FORMS.form("Fourier transforms of 1024")
def fourier(setting: Setting) -> Prepared:
    rows = setting.pick(3, 8192, 8192)
    re, im = setting.randn(rows, 1024), setting.randn(rows, 1024)
    out_re, out_im = torch.empty_like(re), torch.empty_like(im)
    return Prepared(
        lambda kernels: kernels.fourier[(rows,)](
            re, im, out_re, out_im, N=1024, STEPS=10, num_warps=4
        ),
        [out_re, out_im],
        tolerance=1e-4,
    )


@FORMS.form("AdamW, bf16 parameters")
def adam(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**26, 2**26)
    p, g = setting.randn(n, dtype=WIDE), setting.randn(n, dtype=WIDE)
    m, v = setting.randn(n) * 0.1, torch.rand(n, device=setting.device)
    first = [tensor.clone() for tensor in (p, m, v)]

    def reset() -> None:
        for tensor, value in zip((p, m, v), first, strict=True):
            tensor.copy_(value)

    return Prepared(
        lambda kernels: kernels.adam[(cdiv(n, 1024),)](
            p, g, m, v, n, 1e-3, 0.9, 0.99, 1e-8, 0.01, 0.5, 0.5, BLOCK=1024, num_warps=4
        ),
        [p, m, v],
        tolerance=4e-3,
        reset=reset,
    )


@FORMS.form("gradient of RMS norm, rows by programs")
def rms_gradient(setting: Setting) -> Prepared:
    rows, columns, per = setting.pick(10, 8192, 8192), setting.pick(200, 4096, 4096), 16
    x, dy = setting.randn(rows, columns, dtype=WIDE), setting.randn(rows, columns, dtype=WIDE)
    weight, rstd = setting.randn(columns, dtype=WIDE), setting.randn(rows)
    dx, dw = torch.empty_like(x), setting.empty(cdiv(rows, per), columns)
    block = setting.pick(256, 4096, 4096)
    return Prepared(
        lambda kernels: kernels.rms_gradient[(cdiv(rows, per),)](
            x, dy, weight, rstd, dx, dw, rows, columns, PER=per, BLOCK=block, num_warps=8
        ),
        [dx, dw],
        tolerance=4e-3,
    )


@FORMS.form("gradient of GEGLU 8192x11008")
def geglu_gradient(setting: Setting) -> Prepared:
    rows, columns = setting.pick(10, 8192, 8192), setting.pick(200, 11008, 11008)
    dy, x = setting.randn(rows, columns, dtype=WIDE), setting.randn(rows, 2 * columns, dtype=WIDE)
    dx = torch.empty_like(x)
    return Prepared(
        lambda kernels: kernels.geglu_gradient[(rows, cdiv(columns, 1024))](
            dy, x, dx, columns, BLOCK=1024, num_warps=4
        ),
        [dx],
        tolerance=4e-3,
    )


@FORMS.form("cross-entropy of a linear layer")
def linear_loss(setting: Setting) -> Prepared:
    tokens, k, words = setting.pick(128, 2048, 2048), setting.pick(128, 2048, 2048), 32000
    words = setting.pick(1000, words, words)
    x, w = setting.randn(tokens, k, dtype=WIDE), setting.randn(words, k, dtype=WIDE) * 0.02
    targets = setting.integers(0, words, tokens, dtype=torch.int64)
    blocks = cdiv(words, 128)
    largest, totals = setting.empty(tokens, blocks), setting.empty(tokens, blocks)
    picked = setting.empty(tokens)
    return Prepared(
        lambda kernels: kernels.linear_loss[(tokens // 128, blocks)](
            x, w, targets, largest, totals, picked, words, k, BM=128, BN=128, BK=64,
            num_warps=8, num_stages=3,
        ),
        [largest, totals, picked],
        tolerance=1e-3,
    )  # fmt: skip

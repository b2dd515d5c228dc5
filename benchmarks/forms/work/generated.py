"""Launches of `kernels/generated.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("generated")
HALF = torch.bfloat16


def _two_layouts(yblock: int, xblock: int, warps: int) -> None:
    @FORMS.form(f"generated: channels last and first added, {xblock}x{yblock}")
    def prepare(setting: Setting) -> Prepared:
        images, pixels = setting.pick(1, 64, 64), setting.pick(60, 3136, 3136)
        x = setting.randn(images, pixels, 64, dtype=HALF)
        residual = setting.randn(images, 64, pixels, dtype=HALF)
        scale, shift = setting.randn(64), setting.randn(64)
        out = torch.empty_like(residual)
        grid = cdiv(pixels, xblock), cdiv(images * 64, yblock)
        return Prepared(
            lambda kernels: kernels.add_relu_of_two_layouts[grid](
                x, scale, shift, residual, out, images * 64, pixels,
                YBLOCK=yblock, XBLOCK=xblock, num_warps=warps,
            ),
            [out],
        )  # fmt: skip


_two_layouts(64, 64, 8)
_two_layouts(32, 32, 4)
_two_layouts(16, 256, 4)


@FORMS.form("generated: batch norm and ReLU by a flat index")
def normalised(setting: Setting) -> Prepared:
    n = setting.pick(1, 64, 64) * 256 * 3136
    x = setting.randn(n, dtype=HALF)
    mean, weight, bias = (setting.randn(256) for _ in range(3))
    variance, out = setting.randn(256).abs(), torch.empty_like(x)
    return Prepared(
        lambda kernels: kernels.normalise_channels[(cdiv(n, 1024),)](
            x, mean, variance, weight, bias, out, n, XBLOCK=1024, num_warps=4
        ),
        [out],
    )


def _statistics(xblock: int, rblock: int, warps: int) -> None:
    @FORMS.form(f"generated: statistics of channels, last, {xblock}x{rblock}")
    def prepare(setting: Setting) -> Prepared:
        parts, pixels = setting.pick(2, 392, 392), setting.pick(50, 512, 512)
        x = setting.randn(parts * pixels * 256, dtype=HALF)
        sums, squares = setting.empty(parts * 256), setting.empty(parts * 256)
        return Prepared(
            lambda kernels: kernels.statistics_of_channels_last[(cdiv(parts * 256, xblock),)](
                x, sums, squares, parts * 256, pixels,
                XBLOCK=xblock, R0_BLOCK=rblock, num_warps=warps,
            ),
            [sums, squares],
        )  # fmt: skip


_statistics(128, 8, 8)
_statistics(64, 64, 16)
_statistics(8, 128, 4)


def _layer_norm(xblock: int, warps: int) -> None:
    @FORMS.form(f"generated: residual and layer norm of 768, {xblock} rows")
    def prepare(setting: Setting) -> Prepared:
        rows = setting.pick(5, 32768, 32768)
        start = setting.randn(rows, 768, dtype=HALF)
        inout, residual = start.clone(), setting.randn(rows, 768, dtype=HALF)
        weight, bias = setting.randn(768), setting.randn(768)
        out = torch.empty_like(inout)
        return Prepared(
            lambda kernels: kernels.layer_norm_persistent[(cdiv(rows, xblock),)](
                inout, residual, weight, bias, out, rows,
                XBLOCK=xblock, R0_BLOCK=1024, num_warps=warps,
            ),
            [inout, out],
            tolerance=4e-3,
            reset=lambda: inout.copy_(start),
        )  # fmt: skip


_layer_norm(1, 8)
_layer_norm(2, 4)


def _log_softmax(xblock: int, rblock: int, warps: int) -> None:
    @FORMS.form(f"generated: log-softmax of 50257, {xblock}x{rblock}")
    def forward(setting: Setting) -> Prepared:
        rows, columns = setting.pick(3, 4096, 4096), setting.pick(500, 50257, 50257)
        x, out = setting.randn(rows, columns, dtype=HALF), setting.empty(rows, columns)
        return Prepared(
            lambda kernels: kernels.log_softmax_looped[(cdiv(rows, xblock),)](
                x, out, rows, columns, XBLOCK=xblock, R0_BLOCK=rblock, num_warps=warps
            ),
            [out],
        )

    @FORMS.form(f"generated: gradient of log-softmax of 50257, {xblock}x{rblock}")
    def backward(setting: Setting) -> Prepared:
        rows, columns = setting.pick(3, 4096, 4096), setting.pick(500, 50257, 50257)
        dy, y = (setting.randn(rows, columns, dtype=HALF) for _ in range(2))
        out = torch.empty_like(y)
        return Prepared(
            lambda kernels: kernels.softmax_gradient_looped[(cdiv(rows, xblock),)](
                dy, y, out, rows, columns, XBLOCK=xblock, R0_BLOCK=rblock, num_warps=warps
            ),
            [out],
            tolerance=4e-3,
        )


_log_softmax(1, 2048, 16)
_log_softmax(1, 4096, 8)


@FORMS.form("generated: GELU by erf")
def gelu(setting: Setting) -> Prepared:
    n = setting.pick(5000, 1 << 26, 1 << 26)
    x = setting.randn(n, dtype=HALF)
    out = torch.empty_like(x)
    return Prepared(
        lambda kernels: kernels.gelu_by_erf[(cdiv(n, 1024),)](x, out, n, XBLOCK=1024, num_warps=4),
        [out],
    )


@FORMS.form("generated: rows of a table by a flat index")
def gathered(setting: Setting) -> Prepared:
    rows, words = setting.pick(7, 32768, 32768), setting.pick(20, 50257, 50257)
    n = rows * 768
    indices = setting.integers(-words, words, rows, dtype=torch.int64)
    table, out = setting.randn(words, 768, dtype=HALF), setting.empty(rows, 768, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.gather_rows[(cdiv(n, 1024),)](
            indices, table, out, n, ROWS=words, XBLOCK=1024, num_warps=4
        ),
        [out],
        tolerance=0.0,
    )


@FORMS.form("generated: three matrices side by side")
def side_by_side(setting: Setting) -> Prepared:
    rows = setting.pick(9, 65536, 65536)
    a, b, c = (setting.randn(rows, 512, dtype=HALF) for _ in range(3))
    out = setting.empty(rows, 1536, dtype=HALF)
    n = rows * 1536
    return Prepared(
        lambda kernels: kernels.concatenated[(cdiv(n, 1024),)](
            a, b, c, out, n, XBLOCK=1024, num_warps=4
        ),
        [out],
        tolerance=0.0,
    )


@FORMS.form("generated: max pooling of 2x2, channels last")
def pooled(setting: Setting) -> Prepared:
    images = setting.pick(1, 64, 64)
    x = setting.randn(images, 112, 112, 64, dtype=HALF)
    out = setting.empty(images, 56, 56, 64, dtype=HALF)
    place = setting.empty(images, 56, 56, 64, dtype=torch.int8)
    n = out.numel()
    return Prepared(
        lambda kernels: kernels.greatest_of_windows[(cdiv(n, 512),)](
            x, out, place, n, XBLOCK=512, num_warps=4
        ),
        [out, place],
        tolerance=0.0,
    )


@FORMS.form("generated: dropout by a stored seed")
def dropout(setting: Setting) -> Prepared:
    n = setting.pick(3000, 1 << 26, 1 << 26)
    x = setting.randn(n, dtype=HALF)
    seed, out = setting.integers(0, 1 << 30, 1, dtype=torch.int64), torch.empty_like(x)
    return Prepared(
        lambda kernels: kernels.random_dropout[(cdiv(n, 1024),)](
            seed, x, out, n, XBLOCK=1024, num_warps=4
        ),
        [out],
    )

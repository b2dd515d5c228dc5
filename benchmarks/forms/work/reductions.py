"""Launches of `kernels/reductions.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv, next_power_of_2

FORMS = Forms("reductions")
WIDE = torch.bfloat16


def _rows_at_once(setting: Setting, columns: int, xblock: int, warps: int) -> Prepared:
    rows = setting.pick(30, 16384, 16384)
    x, y = setting.randn(rows, columns, dtype=WIDE), setting.empty(rows, columns, dtype=WIDE)
    weight, bias = setting.randn(columns), setting.randn(columns)
    means, scales = setting.empty(rows), setting.empty(rows)
    return Prepared(
        lambda kernels: kernels.norm_rows_at_once[(cdiv(rows, xblock),)](
            x, weight, bias, y, means, scales, rows, columns, XBLOCK=xblock,
            RBLOCK=next_power_of_2(columns), num_warps=warps, num_stages=1,
        ),
        [y, means, scales],
        tolerance=4e-3,
    )  # fmt: skip


FORMS.add("layer norm of 8 rows of 256 at once", lambda s: _rows_at_once(s, 256, 8, 8))
FORMS.add("layer norm of a row of 768 at once", lambda s: _rows_at_once(s, 768, 1, 2))
FORMS.add("layer norm of a row of 1024 at once", lambda s: _rows_at_once(s, 1024, 1, 8))


def _by_statistics(setting: Setting, columns: int, xblock: int, rblock: int) -> Prepared:
    rows, columns = setting.pick(6, 4096, 4096), setting.pick(500, columns, columns)
    x, y = setting.randn(rows, columns, dtype=WIDE), setting.empty(rows, columns, dtype=WIDE)
    weight, bias = setting.randn(columns), setting.randn(columns)
    return Prepared(
        lambda kernels: kernels.norm_rows_by_statistics[(cdiv(rows, xblock),)](
            x, weight, bias, y, rows, columns, XBLOCK=xblock, RBLOCK=rblock,
            num_warps=16, num_stages=1,
        ),
        [y],
        tolerance=4e-3,
    )  # fmt: skip


FORMS.add("layer norm by statistics, 8192", lambda s: _by_statistics(s, 8192, 1, 4096))
FORMS.add("layer norm by statistics, 5120", lambda s: _by_statistics(s, 5120, 2, 1024))


@FORMS.form("sums of columns, in 64 parts")
def sums_of_columns(setting: Setting) -> Prepared:
    rows, columns, parts = setting.pick(200, 32768, 32768), setting.pick(128, 4096, 4096), 64
    x, y = setting.randn(rows, columns, dtype=WIDE), setting.empty(parts, columns)
    return Prepared(
        lambda kernels: kernels.sums_of_columns[(parts * columns // 64,)](
            x, y, rows, columns, cdiv(rows, parts), XBLOCK=64, RBLOCK=64, num_warps=16,
            num_stages=1,
        ),
        [y],
        tolerance=1e-5,
    )  # fmt: skip


@FORMS.form("statistics of channels")
def statistics_of_channels(setting: Setting) -> Prepared:
    images, channels, pixels = setting.pick(2, 32, 32), setting.pick(5, 256, 256), 56 * 56
    pixels = setting.pick(100, pixels, pixels)
    x = setting.randn(images, channels, pixels, dtype=WIDE)
    means, variances = setting.empty(channels), setting.empty(channels)
    return Prepared(
        lambda kernels: kernels.statistics_of_channels[(channels,)](
            x, means, variances, images, channels, pixels, XBLOCK=1, RBLOCK=2048,
            num_warps=16, num_stages=1,
        ),
        [means, variances],
        tolerance=1e-4,
    )  # fmt: skip


@FORMS.form("largest index of rows of 128256")
def largest_index(setting: Setting) -> Prepared:
    rows, columns = setting.pick(4, 512, 512), setting.pick(3000, 128256, 128256)
    x = setting.randn(rows, columns, dtype=WIDE)
    y = torch.zeros(rows, dtype=torch.int64, device=setting.device)
    return Prepared(
        lambda kernels: kernels.largest_index[(rows,)](
            x, y, columns, XBLOCK=1, RBLOCK=2048, num_warps=16, num_stages=1
        ),
        [y],
        tolerance=0.0,
    )


@FORMS.form("token by Gumbel noise, 128256")
def sample_by_noise(setting: Setting) -> Prepared:
    rows, columns = setting.pick(4, 256, 256), setting.pick(3000, 128256, 128256)
    logits = setting.randn(rows, columns, dtype=WIDE)
    chosen = torch.zeros(rows, dtype=torch.int32, device=setting.device)
    return Prepared(
        lambda kernels: kernels.sample_by_noise[(rows,)](
            logits, chosen, columns, 42, 0.8, BLOCK=2048, num_warps=8
        ),
        [chosen],
        tolerance=0.1,
    )


@FORMS.form("normal noise")
def normal_noise(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**26, 2**26)
    x, y = setting.randn(n), setting.empty(n)
    return Prepared(
        lambda kernels: kernels.normal_noise[(cdiv(n, 4096),)](
            x, y, n, 7, 0.1, BLOCK=1024, num_warps=8
        ),
        [y],
    )


@FORMS.form("rounding by chance")
def round_by_chance(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**26, 2**26)
    x, y = setting.randn(n), setting.empty(n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.round_by_chance[(cdiv(n, 1024),)](
            x, y, n, 7, BLOCK=1024, num_warps=4
        ),
        [y],
        tolerance=0.0,
    )


@FORMS.form("dropout by seeds of rows")
def dropout_rows(setting: Setting) -> Prepared:
    rows, columns = setting.pick(30, 8192, 8192), setting.pick(300, 4096, 4096)
    x, y = setting.randn(rows, columns), setting.empty(rows, columns)
    seeds = setting.integers(0, 10**6, rows, dtype=torch.int32)
    return Prepared(
        lambda kernels: kernels.dropout_rows[(cdiv(rows, 16), cdiv(columns, 128))](
            x, y, seeds, rows, columns, 0.3, BM=16, BN=128, num_warps=4
        ),
        [y],
        tolerance=1e-6,
    )


def _norm_rows(setting: Setting, columns: int) -> Prepared:
    rows, columns = setting.pick(8, 4096, 4096), setting.pick(300, columns, columns)
    half = torch.float16
    x, y = setting.randn(rows, columns, dtype=half), setting.empty(rows, columns, dtype=half)
    weight, bias = setting.randn(columns, dtype=half), setting.randn(columns, dtype=half)
    means, rstds = setting.empty(rows), setting.empty(rows)
    block = next_power_of_2(columns)
    return Prepared(
        lambda kernels: kernels.norm_rows[(rows,)](
            x, y, weight, bias, means, rstds, columns, columns, 1e-5, BLOCK=block,
            num_warps=min(max(block // 256, 1), 8), num_ctas=1,
        ),
        [y, means, rstds],
    )  # fmt: skip


FORMS.add("layer norm in loops, 4096x1024", lambda s: _norm_rows(s, 1024))
FORMS.add("layer norm in loops, 4096x8192", lambda s: _norm_rows(s, 8192))
FORMS.add("layer norm in loops, 4096x15872", lambda s: _norm_rows(s, 15872))


@FORMS.form("layers weighted by scores, 8 of 2048")
def weighted_layers(setting: Setting) -> Prepared:
    tokens, layers, d = setting.pick(30, 4096, 4096), setting.pick(5, 8, 8), 2048
    x, query = setting.randn(layers, tokens, d, dtype=WIDE), setting.randn(d, dtype=WIDE) * 0.02
    y = setting.empty(tokens, d, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.weighted_layers[(tokens,)](
            x, query, y, tokens, layers, D=d, BL=4, num_warps=4, num_stages=2
        ),
        [y],
        tolerance=4e-3,
    )

"""Launches of `kernels/streams.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("streams")
WIDE = torch.bfloat16
FP8 = torch.float8_e4m3fn


@FORMS.form("rotary embedding of adjacent pairs")
def rotate_pairs(setting: Setting) -> Prepared:
    tokens, heads, d = setting.pick(5, 8192, 8192), setting.pick(3, 32, 32), 128
    x, y = setting.randn(tokens, heads, d, dtype=WIDE), setting.empty(tokens, heads, d, dtype=WIDE)
    cos, sin = setting.randn(tokens, d // 2), setting.randn(tokens, d // 2)
    return Prepared(
        lambda kernels: kernels.rotate_pairs[(tokens, cdiv(heads, 16))](
            x, cos, sin, y, heads, D=d, BH=16, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("residual, RMS norm, fp8 by tokens")
def add_norm_fp8(setting: Setting) -> Prepared:
    rows, columns = setting.pick(16, 8192, 8192), setting.pick(256, 4096, 4096)
    x, residual = setting.randn(rows, columns, dtype=WIDE), setting.randn(rows, columns, dtype=WIDE)
    weight, first = setting.randn(columns, dtype=WIDE), residual.clone()
    y, scales = setting.empty(rows, columns, dtype=FP8), setting.empty(rows)
    x *= 1e-3
    return Prepared(
        lambda kernels: kernels.add_norm_fp8[(rows,)](
            x, residual, weight, y, scales, columns, 1e-6, BLOCK=columns, num_warps=8
        ),
        [residual, y, scales],
        tolerance=4e-3,
        reset=lambda: residual.copy_(first),
    )


@FORMS.form("RMS norm of heads of 128")
def norm_heads(setting: Setting) -> Prepared:
    rows, d = setting.pick(50, 2**18, 2**18), 128
    x, y = setting.randn(rows, d, dtype=WIDE), setting.empty(rows, d, dtype=WIDE)
    weight = setting.randn(d, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.norm_heads[(cdiv(rows, 16),)](
            x, weight, y, rows, 1e-6, D=d, BR=16, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("Adam with states of bytes")
def adam_int8(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**26, 2**26)
    blocks = cdiv(n, 2048)
    p, g = setting.randn(n, dtype=WIDE), setting.randn(n, dtype=WIDE)
    m = setting.integers(-127, 128, n, dtype=torch.int8)
    v = setting.integers(0, 128, n, dtype=torch.int8)
    scales_m, scales_v = setting.randn(blocks).abs() + 0.01, setting.randn(blocks).abs() + 0.01
    state = [p, m, v, scales_m, scales_v]
    first = [t.clone() for t in state]
    return Prepared(
        lambda kernels: kernels.adam_int8[(blocks,)](
            p, g, m, v, scales_m, scales_v, n, 1e-3, 0.5, 0.7, BLOCK=2048, num_warps=8
        ),
        state,
        tolerance=1e-2,
        reset=lambda: [t.copy_(old) for t, old in zip(state, first, strict=True)],
    )


@FORMS.form("Lion, bf16")
def lion(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**26, 2**26)
    p, g, m = (setting.randn(n, dtype=WIDE) for _ in range(3))
    first = p.clone(), m.clone()
    return Prepared(
        lambda kernels: kernels.lion[(cdiv(n, 1024),)](
            p, g, m, n, 1e-4, 0.1, BLOCK=1024, num_warps=4
        ),
        [p, m],
        tolerance=4e-3,
        reset=lambda: (p.copy_(first[0]), m.copy_(first[1])),
    )


@FORMS.form("signs packed into words")
def pack_signs(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**27, 2**27)
    x, words = setting.randn(n, dtype=torch.float16), setting.empty(cdiv(n, 32), dtype=torch.int32)
    return Prepared(
        lambda kernels: kernels.pack_signs[(cdiv(n, 4096),)](x, words, n, BLOCK=128, num_warps=4),
        [words],
        tolerance=0.0,
    )


@FORMS.form("signs from words")
def unpack_signs(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**27, 2**27)
    words = setting.integers(-(2**31), 2**31, cdiv(n, 32), dtype=torch.int32)
    y = setting.empty(n, dtype=torch.float16)
    return Prepared(
        lambda kernels: kernels.unpack_signs[(cdiv(n, 2048),)](
            words, y, n, BLOCK=2048, num_warps=4
        ),
        [y],
        tolerance=0.0,
    )


@FORMS.form("divergence of rows of 32000")
def divergence(setting: Setting) -> Prepared:
    rows, columns = setting.pick(6, 4096, 4096), setting.pick(500, 32000, 32000)
    logp = setting.randn(rows, columns, dtype=WIDE)
    target = setting.randn(rows, columns, dtype=WIDE).abs()
    losses = setting.empty(rows)
    return Prepared(
        lambda kernels: kernels.divergence[(rows,)](
            logp, target, losses, columns, BLOCK=4096, num_warps=8
        ),
        [losses],
    )


@FORMS.form("symmetric divergence with its gradient")
def symmetric_divergence(setting: Setting) -> Prepared:
    rows, columns = setting.pick(6, 2048, 2048), setting.pick(500, 32000, 32000)
    p, q = setting.randn(rows, columns, dtype=WIDE), setting.randn(rows, columns, dtype=WIDE)
    losses, grads = setting.empty(rows, columns), setting.empty(rows, columns, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.symmetric_divergence[(rows,)](
            p, q, losses, grads, rows, columns, BLOCK=4096, num_warps=16
        ),
        [losses, grads],
        tolerance=4e-3,
    )


@FORMS.form("capped cross-entropy, gradient in place")
def loss_in_place(setting: Setting) -> Prepared:
    rows, columns = setting.pick(6, 4096, 4096), setting.pick(500, 32000, 32000)
    logits = setting.randn(rows, columns, dtype=WIDE)
    labels = setting.integers(0, columns, rows, dtype=torch.int64)
    losses, first = setting.empty(rows), logits.clone()
    return Prepared(
        lambda kernels: kernels.loss_in_place[(rows,)](
            logits, labels, losses, columns, 30.0, BLOCK=8192, num_warps=16
        ),
        [losses, logits],
        tolerance=4e-3,
        reset=lambda: logits.copy_(first),
    )


@FORMS.form("rows of 8 experts added")
def sum_of_experts(setting: Setting) -> Prepared:
    tokens, columns, top = setting.pick(9, 4096, 4096), setting.pick(300, 4096, 4096), 8
    rows = setting.randn(tokens * top, columns, dtype=WIDE)
    places = setting.integers(0, tokens * top, tokens, top, dtype=torch.int32)
    weights, y = setting.randn(tokens, top), setting.empty(tokens, columns, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.sum_of_experts[(tokens, cdiv(columns, 1024))](
            rows, places, weights, y, columns, TOP=top, BLOCK=1024, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("tokens mixed with those before")
def shift_tokens(setting: Setting) -> Prepared:
    tokens, columns = setting.pick(9, 16384, 16384), setting.pick(300, 4096, 4096)
    x, y = setting.randn(tokens, columns, dtype=WIDE), setting.empty(tokens, columns, dtype=WIDE)
    mix = setting.randn(columns, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.shift_tokens[(tokens, cdiv(columns, 2048))](
            x, mix, y, setting.pick(4, 4096, 4096), columns, BLOCK=2048, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("dynamic tanh")
def dynamic_tanh(setting: Setting) -> Prepared:
    rows, columns = setting.pick(9, 16384, 16384), setting.pick(300, 4096, 4096)
    x, y = setting.randn(rows, columns, dtype=WIDE), setting.empty(rows, columns, dtype=WIDE)
    weight, bias = setting.randn(columns, dtype=WIDE), setting.randn(columns, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.dynamic_tanh[(cdiv(columns, 1024), rows)](
            x, weight, bias, y, columns, 0.5, BLOCK=1024, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("bilinear interpolation to twice the size")
def twice_as_large(setting: Setting) -> Prepared:
    planes, h, w = setting.pick(2, 256, 256), setting.pick(7, 128, 128), setting.pick(9, 128, 128)
    x, y = setting.randn(planes, h, w), setting.empty(planes, 2 * h, 2 * w)
    n = planes * 4 * h * w
    return Prepared(
        lambda kernels: kernels.twice_as_large[(cdiv(n, 1024),)](
            x, y, h, w, n, BLOCK=1024, num_warps=4
        ),
        [y],
    )


@FORMS.form("numbers above 0 side by side")
def keep_positive(setting: Setting) -> Prepared:
    n, block = setting.pick(5000, 2**26, 2**26), 1024
    x, y = setting.randn(n), setting.empty(n)
    kept = torch.nn.functional.pad((x > 0).int(), (0, -n % block)).view(-1, block)
    sums = kept.sum(1, dtype=torch.int32)
    offsets = (sums.cumsum(0) - sums).to(torch.int32)
    return Prepared(
        lambda kernels: kernels.keep_positive[(cdiv(n, block),)](
            x, y, offsets, n, BLOCK=block, num_warps=4
        ),
        [y],
        tolerance=0.0,
        reset=lambda: y.zero_(),
    )


@FORMS.form("rows added to rows of a table")
def add_rows(setting: Setting) -> Prepared:
    n, columns, words = setting.pick(40, 16384, 16384), setting.pick(300, 1024, 1024), 4096
    ids = setting.integers(0, words, n, dtype=torch.int32)
    table, rows = setting.empty(words, columns), setting.randn(n, columns)
    return Prepared(
        lambda kernels: kernels.add_rows[(n, cdiv(columns, 1024))](
            table, ids, rows, columns, BLOCK=1024, num_warps=4
        ),
        [table],
        reset=lambda: table.zero_(),
    )


@FORMS.form("fp8 of SwiGLU by groups of 128")
def silu_fp8_by_groups(setting: Setting) -> Prepared:
    rows, columns = setting.pick(9, 8192, 8192), setting.pick(384, 7168, 7168)
    x = setting.randn(rows, 2 * columns, dtype=WIDE)
    y, scales = setting.empty(rows, columns, dtype=FP8), setting.empty(rows, columns // 128)
    return Prepared(
        lambda kernels: kernels.silu_fp8_by_groups[(rows, cdiv(columns, 1024))](
            x, y, scales, columns, GROUP=128, BR=8, num_warps=4
        ),
        [y, scales],
        tolerance=4e-3,
    )

"""Launches of `kernels/layers.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("layers")

HALF = torch.float16
WIDE = torch.bfloat16
FP8 = torch.float8_e4m3fn


@FORMS.form("RMS norm and product")
def normed(setting: Setting) -> Prepared:
    m, n, k = (setting.pick(128, v, v) for v in (2048, 4096, 4096))
    x, w = setting.randn(m, k, dtype=WIDE), setting.randn(n, k, dtype=WIDE) * 0.02
    gain, y = setting.randn(k, dtype=WIDE), setting.empty(m, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.normed_product[(m // 128, n // 128)](
            x, gain, w, y, m, n, k, 1e-5, BM=128, BN=128, BK=64, num_warps=8, num_stages=3
        ),
        [y],
        tolerance=1e-2,
    )


def _experts(setting: Setting, tokens: int, block: tuple[int, int, int], warps: int) -> Prepared:
    tokens, count = setting.pick(16, tokens, tokens), setting.pick(4, 16, 16)
    n, k, (bm, bn, bk) = setting.pick(128, 2048, 2048), setting.pick(128, 1024, 1024), block
    slots = tokens * 2
    each = cdiv(slots, count)
    blocks = cdiv(each, bm)
    at = torch.arange(count * blocks * bm, device=setting.device)
    within, first = at % (blocks * bm), at // (blocks * bm) * each
    known = (within < each) & (first + within < slots)
    shuffled = torch.randperm(slots, device=setting.device)
    ids = torch.where(known, shuffled[(first + within).clamp(max=slots - 1)], slots)
    ids = ids.to(torch.int32)
    of = (torch.arange(count * blocks, device=setting.device) // blocks).to(torch.int32)
    h, w = setting.randn(slots, k, dtype=WIDE), setting.randn(count, n, k, dtype=WIDE) * 0.02
    weights = torch.rand(slots, device=setting.device)
    out = torch.zeros(tokens, n, device=setting.device)
    return Prepared(
        lambda kernels: kernels.experts_down[(len(of), n // bn)](
            h, w, out, weights, ids, of, n, k, slots, BM=bm, BN=bn, BK=bk,
            num_warps=warps, num_stages=3,
        ),
        [out],
        reset=out.zero_,
    )  # fmt: skip


FORMS.add("second product of experts, 64 tokens", lambda s: _experts(s, 64, (16, 64, 128), 4))
FORMS.add("second product of experts, 4096 tokens", lambda s: _experts(s, 4096, (64, 128, 64), 4))


@FORMS.form("gradient of 16 experts' weights")
def expert_gradient(setting: Setting) -> Prepared:
    count, k, n = setting.pick(3, 16, 16), *(setting.pick(128, v, v) for v in (1024, 2048))
    sizes = torch.randint(0, setting.pick(90, 1024, 1024), (count,), device=setting.device)
    ends = sizes.cumsum(0).to(torch.int32)
    rows = int(ends[-1]) if ends.device.type != "meta" else 8192
    x, dy = setting.randn(rows, k, dtype=WIDE), setting.randn(rows, n, dtype=WIDE) * 0.1
    dw = setting.empty(count, k, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.gradient_of_experts[(k // 128 * (n // 128), count)](
            x, dy, dw, ends, k, n, BK=128, BN=128, BT=32, num_warps=8, num_stages=3
        ),
        [dw],
        tolerance=4e-3,
    )


@FORMS.form("sparse convolution of 27 taps")
def sparse_convolution(setting: Setting) -> Prepared:
    n, ci, co, taps = setting.pick(100, 65536, 65536), 64, 64, setting.pick(3, 27, 27)
    x, w = setting.randn(n, ci, dtype=HALF), setting.randn(taps * ci, co, dtype=HALF) * 0.05
    neighbours = setting.integers(-n, n, n, taps, dtype=torch.int32).clamp(min=-1)
    y = setting.empty(n, co, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.sparse_convolution[(cdiv(n, 128), 1)](
            x, w, neighbours, y, n, CI=ci, CO=co, TAPS=taps, BM=128, BN=64, BK=32,
            num_warps=4, num_stages=4,
        ),
        [y],
        tolerance=4e-3,
    )  # fmt: skip


@FORMS.form("gradient of a 3x3 convolution's weights")
def convolution_gradient(setting: Setting) -> Prepared:
    images, size, c = setting.pick(1, 16, 16), setting.pick(8, 56, 56), 128
    pixels, parts = images * size * size, setting.pick(2, 16, 16)
    x, dy = (setting.randn(pixels, c, dtype=HALF) for _ in range(2))
    dw = torch.zeros(9, c, c, device=setting.device)
    part = cdiv(cdiv(pixels, parts), 32) * 32
    return Prepared(
        lambda kernels: kernels.gradient_of_convolution[(9, parts, 4)](
            x, dy, dw, size, size, pixels, part, CI=c, CO=c, BI=64, BO=64, BP=32,
            num_warps=4, num_stages=3,
        ),
        [dw],
        reset=dw.zero_,
    )  # fmt: skip


@FORMS.form("1x1 convolution, channels first")
def pointwise(setting: Setting) -> Prepared:
    z, ci, co, s = setting.pick(2, 32, 32), *(setting.pick(64, v, v) for v in (256, 512, 784))
    x, w = setting.randn(z, ci, s, dtype=HALF), setting.randn(co, ci, dtype=HALF) * 0.05
    bias, residual = setting.randn(co, dtype=HALF), setting.randn(z, co, s, dtype=HALF)
    y = setting.empty(z, co, s, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.pointwise_convolution[(co // 64, cdiv(s, 128), z)](
            x, w, bias, residual, y, ci, co, s, BM=64, BN=128, BK=32, num_warps=4, num_stages=3
        ),
        [y],
    )


def _ternary(setting: Setting, rows: int, block: tuple[int, int, int]) -> Prepared:
    m, n, k = setting.pick(min(rows, 20), rows, rows), *(setting.pick(128, 4096, 4096),) * 2
    bm, bn, bk = block
    x = setting.integers(-127, 128, m, k, dtype=torch.int8)
    packed = setting.integers(0, 171, n, k // 4, dtype=torch.uint8) & 0xAA
    scales, y = torch.rand(m, device=setting.device), setting.empty(m, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.ternary_weights[(cdiv(m, bm), n // bn)](
            x, packed, y, scales, 0.01, m, n, k, BM=bm, BN=bn, BK=bk, num_warps=4, num_stages=3
        ),
        [y],
    )


FORMS.add("ternary weights, 16 rows", lambda s: _ternary(s, 16, (16, 32, 128)))
FORMS.add("ternary weights, 1024 rows", lambda s: _ternary(s, 1024, (64, 64, 128)))


def _codebook(setting: Setting, rows: int, block: tuple[int, int, int]) -> Prepared:
    m, n, k = setting.pick(min(rows, 20), rows, rows), *(setting.pick(128, 4096, 4096),) * 2
    bm, bn, bk = block
    x = setting.randn(m, k, dtype=WIDE)
    packed = setting.integers(0, 255, n, k // 2, dtype=torch.uint8)
    codebook, scales = setting.randn(16), setting.randn(n, k // 64) * 0.02
    y = setting.empty(m, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.weights_by_codebook[(cdiv(m, bm), n // bn)](
            x, packed, codebook, scales, y, m, n, k, BM=bm, BN=bn, BK=bk, GROUP=64,
            num_warps=4, num_stages=3,
        ),
        [y],
        tolerance=1e-2,
    )  # fmt: skip


FORMS.add("weights by a codebook of 16, 16 rows", lambda s: _codebook(s, 16, (16, 32, 64)))
FORMS.add("weights by a codebook of 16, 512 rows", lambda s: _codebook(s, 512, (64, 64, 64)))


@FORMS.form("int8 product with zero points")
def with_zeros(setting: Setting) -> Prepared:
    m, n, k = (setting.pick(128, v, v) for v in (2048, 4096, 4096))
    a = setting.integers(-128, 128, m, k, dtype=torch.int8)
    b = setting.integers(-128, 128, n, k, dtype=torch.int8)
    zeros = setting.integers(-20, 20, m, dtype=torch.int32)
    sums = b.sum(1, dtype=torch.int32)
    rows, columns = torch.rand(m, device=setting.device), torch.rand(n, device=setting.device)
    c = setting.empty(m, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.int8_with_zeros[(m // 128, n // 128)](
            a, b, c, rows, zeros, columns, sums, m, n, k, BM=128, BN=128, BK=128,
            num_warps=4, num_stages=3,
        ),
        [c],
    )  # fmt: skip


@FORMS.form("scores of rotated queries and keys")
def rotated(setting: Setting) -> Prepared:
    heads, t, d = setting.pick(1, 16, 16), setting.pick(128, 2048, 2048), 128
    q, k = (setting.randn(heads, t, d, dtype=WIDE) for _ in range(2))
    cos, sin = setting.randn(t, d // 2), setting.randn(t, d // 2)
    out = setting.empty(heads, t, t, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.rotated_scores[(t // 128, t // 128, heads)](
            q, k, cos, sin, out, t, d**-0.5, D=d, BM=128, BN=128, num_warps=8
        ),
        [out],
        tolerance=1e-2,
    )


def _microscaled(setting: Setting, pack: int, format: str) -> Prepared:
    m, n, k = (setting.pick(128, v, v) for v in (2048, 2048, 2048))
    a = setting.randn(m, k).to(FP8)
    if pack == 2:
        b = setting.integers(0, 255, n, k // 2, dtype=torch.uint8)
    else:
        b = setting.randn(n, k).to(FP8)
    scales = [setting.integers(120, 132, rows, k // 32, dtype=torch.uint8) for rows in (m, n)]
    c = setting.empty(m, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.microscaled[(m // 128, n // 128)](
            a, scales[0], b, scales[1], c, m, n, k, BM=128, BN=128, BK=128, FORMAT=format,
            PACK=pack, num_warps=8, num_stages=2,
        ),
        [c],
        tolerance=1e-2,
    )  # fmt: skip


FORMS.add("product of fp8 with scales by 32", lambda s: _microscaled(s, 1, "e4m3"))
FORMS.add("product of fp8 and fp4 with scales by 32", lambda s: _microscaled(s, 2, "e2m1"))


@FORMS.form("4 rows by a matrix, without instructions for products")
def few_rows(setting: Setting) -> Prepared:
    n, k = (setting.pick(256, v, v) for v in (8192, 4096))
    x, w = setting.randn(4, k, dtype=WIDE), setting.randn(n, k, dtype=WIDE) * 0.02
    y = setting.empty(4, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.rows_by_few[(n // 8,)](x, w, y, n, k, M=4, BN=8, BK=256),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("a row by a matrix along its columns, in parts")
def columns(setting: Setting) -> Prepared:
    n, k, part = (setting.pick(256, v, v) for v in (8192, 8192, 1024))
    x, w = setting.randn(k, dtype=WIDE), setting.randn(k, n, dtype=WIDE) * 0.02
    y = torch.zeros(n, device=setting.device)
    return Prepared(
        lambda kernels: kernels.columns_in_parts[(n // 128, k // part)](
            x, w, y, n, k, part, BN=128, BK=32, num_warps=4
        ),
        [y],
        reset=y.zero_,
    )

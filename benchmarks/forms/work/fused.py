"""Launches of `kernels/fused.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("fused")

HALF = torch.float16
WIDE = torch.bfloat16
Block = tuple[int, int, int]


def _sizes(setting: Setting, m: int, n: int = 4096, k: int = 4096) -> Block:
    return setting.pick(min(m, 64), m, m), setting.pick(256, n, n), setting.pick(256, k, k)


def _by_groups(
    setting: Setting, rows: int, block: Block, stages: int, *, zeros: bool, fp8: bool = False
) -> Prepared:
    (m, n, k), (bm, bn, bk) = _sizes(setting, rows), block
    x = setting.randn(m, k, dtype=WIDE if fp8 else HALF)
    w = setting.integers(0, 255, n, k, dtype=torch.uint8)
    if fp8:
        w = setting.randn(n, k).to(torch.float8_e4m3fn)
    scales = setting.randn(n, k // 128, dtype=x.dtype) * 0.02
    offsets = setting.integers(0, 255, n, k // 128, dtype=x.dtype)
    y = setting.empty(m, n, dtype=x.dtype)
    return Prepared(
        lambda kernels: kernels.weights_by_groups[(cdiv(m, bm) * cdiv(n, bn),)](
            x, w, scales, offsets, y, m, n, k, GROUP=128, ZEROS=zeros, BM=bm, BN=bn, BK=bk,
            num_warps=4, num_stages=stages,
        ),
        [y],
        tolerance=4e-3,
    )  # fmt: skip


FORMS.add(
    "8-bit weights by groups, 16 rows", lambda s: _by_groups(s, 16, (16, 64, 128), 4, zeros=True)
)
FORMS.add(
    "8-bit weights by groups, 1024 rows",
    lambda s: _by_groups(s, 1024, (64, 128, 64), 3, zeros=True),
)
FORMS.add(
    "fp8 weights by groups, 16 rows",
    lambda s: _by_groups(s, 16, (16, 64, 128), 4, zeros=False, fp8=True),
)
FORMS.add(
    "fp8 weights by groups, 1024 rows",
    lambda s: _by_groups(s, 1024, (64, 128, 64), 3, zeros=False, fp8=True),
)


def _swiglu(setting: Setting, rows: int, block: Block, warps: int) -> Prepared:
    (m, n, k), (bm, bn, bk) = _sizes(setting, rows), block
    x, w = setting.randn(m, k, dtype=WIDE), setting.randn(2 * n, k, dtype=WIDE) * 0.02
    y = setting.empty(m, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.swiglu_products[(cdiv(m, bm) * cdiv(n, bn),)](
            x, w, y, m, n, k, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=3
        ),
        [y],
        tolerance=4e-3,
    )


FORMS.add("SwiGLU of two products, 32 rows", lambda s: _swiglu(s, 32, (32, 64, 64), 4))
FORMS.add("SwiGLU of two products, 2048 rows", lambda s: _swiglu(s, 2048, (128, 128, 64), 8))


@FORMS.form("product with a correction of rank 16")
def low_rank_product(setting: Setting) -> Prepared:
    m, n, k = _sizes(setting, 2048)
    x, w = setting.randn(m, k, dtype=WIDE), setting.randn(k, n, dtype=WIDE) * 0.02
    down, up = setting.randn(k, 16, dtype=WIDE) * 0.02, setting.randn(16, n, dtype=WIDE)
    y = setting.empty(m, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.low_rank_product[(cdiv(m, 64), n // 128)](
            x, w, down, up, y, m, n, k, R=16, BM=64, BN=128, BK=64, num_warps=4, num_stages=3
        ),
        [y],
        tolerance=4e-3,
    )


def _strided(
    setting: Setting, sizes: tuple[int, int, int, int], block: Block, warps: int,
    dtype: torch.dtype = HALF, precision: str | None = None, order: str = "NN",
) -> Prepared:  # fmt: skip
    z, m, n, k = (setting.pick(min(size, 100 + i), size, size) for i, size in enumerate(sizes))
    bm, bn, bk = block
    a = setting.randn(z, m, k, dtype=dtype)
    b = setting.randn(z, k, n, dtype=dtype)
    if order[0] == "T":
        a = setting.randn(z, k, m, dtype=dtype).transpose(1, 2)
    if order[1] == "T":
        b = setting.randn(z, n, k, dtype=dtype).transpose(1, 2)
    c = setting.empty(z, m, n, dtype=dtype)
    return Prepared(
        lambda kernels: kernels.strided_product[(cdiv(m, bm), cdiv(n, bn), z)](
            a, b, c, m, n, k, *a.stride()[1:], *b.stride()[1:], *c.stride()[1:],
            a.stride(0), b.stride(0), c.stride(0), PRECISION=precision, BM=bm, BN=bn, BK=bk,
            num_warps=warps, num_stages=3,
        ),
        [c],
    )  # fmt: skip


FORMS.add(
    "product of odd sizes 1999x2001x1003",
    lambda s: _strided(s, (1, 1999, 2001, 1003), (128, 128, 32), 8),
)
FORMS.add("product with K of 1000", lambda s: _strided(s, (1, 2048, 2048, 1000), (128, 128, 64), 8))
FORMS.add(
    "256 products 128x128x64, TN",
    lambda s: _strided(s, (256, 128, 128, 64), (64, 64, 32), 4, order="TN"),
)
FORMS.add(
    "512 products 64x64x256, TT",
    lambda s: _strided(s, (512, 64, 64, 256), (64, 64, 32), 4, order="TT"),
)
FORMS.add(
    "fp32 product by tf32, NT",
    lambda s: _strided(
        s, (1, 2048, 2048, 2048), (128, 128, 32), 8, torch.float32, "tf32", order="NT"
    ),
)
FORMS.add(
    "fp32 product by three of tf32",
    lambda s: _strided(s, (1, 1024, 1024, 1024), (64, 64, 32), 4, torch.float32, "tf32x3"),
)
FORMS.add(
    "fp32 product by three of bf16",
    lambda s: _strided(s, (1, 2048, 2048, 2048), (64, 128, 32), 4, torch.float32, "bf16x3"),
)
FORMS.add(
    "fp32 product, ieee",
    lambda s: _strided(s, (1, 1024, 1024, 1024), (64, 64, 16), 4, torch.float32, "ieee"),
)


@FORMS.form("product by stream-K 1536x1536x4096")
def stream_k(setting: Setting) -> Prepared:
    m, n, k = setting.pick(256, 1536, 1536), setting.pick(256, 1536, 1536), 4096
    k, programs = setting.pick(256, k, k), setting.pick(3, 264, 264)
    a, b = setting.randn(m, k, dtype=HALF), setting.randn(k, n, dtype=HALF) * 0.02
    c = torch.zeros(m, n, device=setting.device)
    steps = cdiv((m // 128) * (n // 128) * (k // 64), programs)
    return Prepared(
        lambda kernels: kernels.stream_k[(programs,)](
            a, b, c, m, n, k, STEPS=steps, BM=128, BN=128, BK=64, num_warps=8, num_stages=3
        ),
        [c],
        reset=c.zero_,
    )


def _values(setting: Setting, warps: int, stages: int) -> Prepared:
    batch, steps, heads = setting.pick(1, 4, 4), setting.pick(128, 4096, 4096), 8
    heads, d = setting.pick(2, heads, heads), 128
    k, v = (setting.randn(batch, steps, heads, d, dtype=WIDE) * d**-0.5 for _ in range(2))
    beta = torch.rand(batch, steps, heads, device=setting.device).to(WIDE)
    a = setting.randn(batch, steps, heads, 64, dtype=WIDE)
    g = -torch.rand(batch, steps, heads, device=setting.device)
    w, u = torch.empty_like(k), torch.empty_like(v)
    return Prepared(
        lambda kernels: kernels.values_of_chunks[(cdiv(steps, 64), batch * heads)](
            k, v, beta, a, g, w, u, steps, HEADS=heads, K=d, V=d, BT=64, BK=64, BV=64,
            num_warps=warps, num_stages=stages,
        ),
        [w, u],
        tolerance=1e-2,
    )  # fmt: skip


FORMS.add("values of a delta rule's chunks, 4 warps", lambda s: _values(s, 4, 3))
FORMS.add("values of a delta rule's chunks, 2 warps", lambda s: _values(s, 2, 2))


@FORMS.form("gradients of values in chunks")
def gradients_of_values(setting: Setting) -> Prepared:
    batch, steps, heads = setting.pick(1, 4, 4), setting.pick(128, 4096, 4096), 8
    heads, d = setting.pick(2, heads, heads), 128
    q, k, do = (setting.randn(batch, steps, heads, d, dtype=WIDE) * 0.3 for _ in range(3))
    g = -torch.rand(batch, steps // 64, 64, heads, device=setting.device).cumsum(2) * 0.1
    dv = torch.empty_like(do)
    return Prepared(
        lambda kernels: kernels.gradients_of_values[(cdiv(steps, 64), batch * heads)](
            q,
            k,
            g,
            do,
            dv,
            d**-0.5,
            steps,
            HEADS=heads,
            K=d,
            V=d,
            BT=64,
            BK=64,
            BV=64,
            num_warps=4,
            num_stages=3,
        ),
        [dv],
        tolerance=1e-2,
    )


def _slopes(setting: Setting, d: int, *, drop: bool) -> Prepared:
    heads, steps = setting.pick(2, 32, 32), setting.pick(100, 2048, 2048)
    q, k, v = (setting.randn(heads, steps, d, dtype=HALF) for _ in range(3))
    slopes = setting.randn(heads).abs() * 0.1
    out = torch.empty_like(q)
    return Prepared(
        lambda kernels: kernels.attend_slopes[(cdiv(steps, 128), heads)](
            q, k, v, out, slopes, d**-0.5, steps, 7, 0.1, D=d, DROP=drop, BM=128, BN=64,
            num_warps=4 if d == 64 else 8, num_stages=3,
        ),
        [out],
        tolerance=4e-3,
    )  # fmt: skip


FORMS.add("attention with linear biases, D64", lambda s: _slopes(s, 64, drop=False))
FORMS.add("attention with linear biases, D128", lambda s: _slopes(s, 128, drop=False))
FORMS.add("attention with dropout, D64", lambda s: _slopes(s, 64, drop=True))

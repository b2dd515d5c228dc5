"""Launches of `kernels/products.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("products")

Block = tuple[int, int, int]


def _sizes(setting: Setting, m: int, n: int = 4096, k: int = 4096) -> tuple[int, int, int]:
    return setting.pick(min(m, 64), m, m), setting.pick(256, n, n), setting.pick(256, k, k)


def _int8_weights(setting: Setting, rows: int, block: Block, warps: int, stages: int) -> Prepared:
    m, n, k = _sizes(setting, rows)
    x = setting.randn(m, k, dtype=torch.float16)
    w = setting.integers(-100, 100, k, n, dtype=torch.int8)
    scales, y = setting.randn(n), setting.empty(m, n, dtype=torch.float16)
    bm, bn, bk = block
    return Prepared(
        lambda kernels: kernels.int8_weights[(cdiv(m, bm), n // bn)](
            x, w, scales, y, m, n, k, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages
        ),
        [y],
    )


FORMS.add("int8 weights 16x64x64", lambda s: _int8_weights(s, 16, (16, 64, 64), 4, 4))
FORMS.add("int8 weights 64x128x64", lambda s: _int8_weights(s, 1024, (64, 128, 64), 4, 3))
FORMS.add("int8 weights 128x128x64", lambda s: _int8_weights(s, 2048, (128, 128, 64), 8, 3))


def _int4_weights(setting: Setting, rows: int, block: Block, warps: int, stages: int) -> Prepared:
    m, n, k = _sizes(setting, rows)
    x = setting.randn(m, k, dtype=torch.float16)
    w = setting.integers(-(2**31), 2**31 - 1, k // 8, n, dtype=torch.int32)
    scales = setting.randn(k // 128, n, dtype=torch.float16)
    zeros = setting.integers(0, 15, k // 128, n, dtype=torch.float16)
    y = setting.empty(m, n, dtype=torch.float16)
    bm, bn, bk = block
    return Prepared(
        lambda kernels: kernels.int4_weights[(cdiv(m, bm), n // bn)](
            x, w, scales, zeros, y, m, n, k, GROUP=128, BM=bm, BN=bn, BK=bk,
            num_warps=warps, num_stages=stages,
        ),
        [y],
    )  # fmt: skip


FORMS.add("int4 weights 16x64x64", lambda s: _int4_weights(s, 16, (16, 64, 64), 4, 4))
FORMS.add("int4 weights 64x128x64", lambda s: _int4_weights(s, 1024, (64, 128, 64), 4, 3))


@FORMS.form("fp8 product, scales by blocks of 128")
def fp8_by_blocks(setting: Setting) -> Prepared:
    m, n, k = _sizes(setting, 2048)
    a = setting.randn(m, k).to(torch.float8_e4m3fn)
    b = setting.randn(n, k).to(torch.float8_e4m3fn)
    scales_a, scales_b = setting.randn(m, k // 128), setting.randn(n // 128, k // 128)
    c = setting.empty(m, n, dtype=torch.bfloat16)
    return Prepared(
        lambda kernels: kernels.fp8_by_blocks[(cdiv(m, 64), cdiv(n, 128))](
            a, b, scales_a, scales_b, c, m, n, k, BM=64, BN=128, BK=128, num_warps=4, num_stages=3
        ),
        [c],
        tolerance=1e-2,
    )


@FORMS.form("int8 product, scales of rows and columns")
def int8_scaled(setting: Setting) -> Prepared:
    m, n, k = _sizes(setting, 2048)
    a = setting.integers(-100, 100, m, k, dtype=torch.int8)
    b = setting.integers(-100, 100, n, k, dtype=torch.int8)
    scales_a, scales_b = setting.randn(m), setting.randn(n)
    bias, c = setting.randn(n, dtype=torch.bfloat16), setting.empty(m, n, dtype=torch.bfloat16)
    return Prepared(
        lambda kernels: kernels.int8_scaled[(cdiv(m, 128), n // 128)](
            a, b, scales_a, scales_b, bias, c, m, n, k, BM=128, BN=128, BK=128,
            num_warps=8, num_stages=3,
        ),
        [c],
        tolerance=4e-3,
    )  # fmt: skip


@FORMS.form("product, bias, GELU, residual")
def bias_gelu_residual(setting: Setting) -> Prepared:
    m, n, k = _sizes(setting, 2048)
    wide = torch.bfloat16
    a, b = setting.randn(m, k, dtype=wide), setting.randn(k, n, dtype=wide) * 0.02
    bias, residual = setting.randn(n, dtype=wide), setting.randn(m, n, dtype=wide)
    c = setting.empty(m, n, dtype=wide)
    return Prepared(
        lambda kernels: kernels.bias_gelu_residual[(cdiv(m, 128) * cdiv(n, 128),)](
            a, b, bias, residual, c, m, n, k, *a.stride(), *b.stride(), BM=128, BN=128, BK=64,
            GROUP=8, num_warps=8, num_stages=3,
        ),
        [c],
        tolerance=4e-3,
    )  # fmt: skip


def _addresses(tensors: list[torch.Tensor]) -> torch.Tensor:
    device = tensors[0].device
    found = [0 if device.type == "meta" else tensor.data_ptr() for tensor in tensors]
    return torch.tensor(found, dtype=torch.int64, device=device)


@FORMS.form("16 products by tables of pointers")
def by_pointers(setting: Setting) -> Prepared:
    most, n, k = _sizes(setting, 512, 2048, 2048)
    groups = setting.pick(2, 16, 16)
    half = torch.float16
    rows = [most - 16 * i for i in range(groups)]
    a = [setting.randn(m, k, dtype=half) for m in rows]
    b = [setting.randn(k, n, dtype=half) for _ in rows]
    c = [setting.empty(m, n, dtype=half) for m in rows]
    sizes = torch.tensor(rows, dtype=torch.int32, device=setting.device)
    groups_of = a, b, c  # the launch keeps all of them alive

    def launch(kernels):
        tables = [_addresses(group) for group in groups_of]
        return kernels.by_pointers[(cdiv(most, 64), n // 128, groups)](
            *tables, sizes, n, k, BM=64, BN=128, BK=64, num_warps=4, num_stages=3
        )

    return Prepared(launch, c)


def _experts(setting: Setting, tokens: int, block: Block, warps: int, stages: int) -> Prepared:
    tokens, n, k = _sizes(setting, tokens, 2048, 2048)
    count, top = setting.pick(4, 16, 16), 2
    bm, bn, bk = block
    wide = torch.bfloat16
    x, w = setting.randn(tokens, k, dtype=wide), setting.randn(count, n, k, dtype=wide) * 0.02
    weights = torch.rand(tokens * top, device=setting.device)
    # As many tokens for each expert, in blocks that are padded with an id out of range.
    each = cdiv(tokens * top, count)
    blocks = cdiv(each, bm)
    ids = torch.arange(count * blocks * bm, device=setting.device)
    within = ids % (blocks * bm)
    real = torch.randperm(tokens * top, device=setting.device)
    at = (ids // (blocks * bm) * each + within).clamp(max=tokens * top - 1)
    ids = torch.where(within < each, real[at], tokens * top).to(torch.int32)
    of = (torch.arange(count * blocks, device=setting.device) // blocks).to(torch.int32)
    padded = torch.full((1,), count * blocks * bm, dtype=torch.int32, device=setting.device)
    y = setting.empty(tokens * top, n, dtype=wide)
    return Prepared(
        lambda kernels: kernels.experts[(count * blocks * cdiv(n, bn),)](
            x, w, y, weights, ids, of, padded, tokens, n, k, TOP=top, BM=bm, BN=bn, BK=bk,
            num_warps=warps, num_stages=stages,
        ),
        [y],
        tolerance=4e-3,
    )  # fmt: skip


FORMS.add("products of 16 experts, 64 tokens", lambda s: _experts(s, 64, (16, 64, 128), 4, 4))
FORMS.add("products of 16 experts, 2048 tokens", lambda s: _experts(s, 2048, (64, 128, 64), 4, 3))

"""Launches of `kernels/weights.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("weights")

HALF = torch.float16
WIDE = torch.bfloat16
Block = tuple[int, int, int]


def _words(setting: Setting, *shape: int) -> torch.Tensor:
    return setting.integers(-(2**31), 2**31 - 1, *shape, dtype=torch.int32)


def _sizes(setting: Setting, m: int, n: int = 4096, k: int = 4096) -> Block:
    return setting.pick(min(m, 40), m, m), setting.pick(256, n, n), setting.pick(256, k, k)


def _by_table(setting: Setting, rows: int, block: Block, warps: int, stages: int) -> Prepared:
    (m, n, k), (bm, bn, bk) = _sizes(setting, rows), block
    x, packed = setting.randn(m, k, dtype=HALF), _words(setting, k // 8, n)
    scales, zeros = setting.randn(k // 128, n, dtype=HALF), _words(setting, k // 128, n // 8)
    groups = (torch.arange(k, device=setting.device) // 128).to(torch.int32)
    y = setting.empty(m, n, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.weights_by_table[(cdiv(m, bm) * cdiv(n, bn),)](
            x, packed, scales, zeros, groups, y, m, n, k, BM=bm, BN=bn, BK=bk,
            num_warps=warps, num_stages=stages,
        ),
        [y],
    )  # fmt: skip


FORMS.add("weights by a table of groups, 16", lambda s: _by_table(s, 16, (16, 64, 64), 4, 4))
FORMS.add("weights by a table of groups, 1024", lambda s: _by_table(s, 1024, (64, 128, 32), 4, 2))


def _interleaved(setting: Setting, rows: int, block: Block, splits: int) -> Prepared:
    (m, n, k), (bm, bn, bk) = _sizes(setting, rows), block
    x, packed = setting.randn(m, k, dtype=HALF), _words(setting, k, n // 8)
    scales, zeros = setting.randn(k // 128, n, dtype=HALF), _words(setting, k // 128, n // 8)
    y = setting.empty(splits, m, n, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.weights_interleaved[(cdiv(m, bm) * cdiv(n, bn), splits)](
            x, packed, scales, zeros, y, m, n, k, GROUP=128, SPLITS=splits, BM=bm, BN=bn, BK=bk
        ),
        [y],
    )


FORMS.add("interleaved weights, 16 rows", lambda s: _interleaved(s, 16, (32, 32, 32), 8))
FORMS.add("interleaved weights, 512 rows", lambda s: _interleaved(s, 512, (64, 64, 32), 1))


@FORMS.form("interleaved weights to fp16")
def convert_interleaved(setting: Setting) -> Prepared:
    rows, words = setting.pick(128, 8192, 8192), setting.pick(40, 1024, 1024)
    packed, zeros = _words(setting, rows, words), _words(setting, rows // 128, words)
    scales = setting.randn(rows // 128, words * 8, dtype=HALF)
    y = setting.empty(rows, words * 8, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.convert_interleaved[(cdiv(words, 32), cdiv(rows, 32))](
            packed, scales, zeros, y, rows, words, GROUP=128, BX=32, BY=32
        ),
        [y],
    )


def _routed(
    setting: Setting, tokens: int, count: int, bm: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two experts for each token: ids of tokens in padded blocks, and the expert of each block."""
    each = cdiv(tokens * 2, count)
    blocks = cdiv(each, bm)
    ids = torch.arange(count * blocks * bm, device=setting.device)
    within = ids % (blocks * bm)
    real = torch.randperm(tokens * 2, device=setting.device)
    at = (ids // (blocks * bm) * each + within).clamp(max=tokens * 2 - 1)
    known = (within < each) & (ids // (blocks * bm) * each + within < tokens * 2)
    ids = torch.where(known, real[at], tokens * 2).to(torch.int32)
    of = (torch.arange(count * blocks, device=setting.device) // blocks).to(torch.int32)
    return ids, of


def _experts_int4(setting: Setting, tokens: int, block: Block, warps: int, stages: int) -> Prepared:
    (tokens, n, k), (bm, bn, bk) = _sizes(setting, tokens, 2048, 2048), block
    count = setting.pick(4, 16, 16)
    x = setting.randn(tokens, k, dtype=WIDE)
    packed = setting.integers(0, 255, count, n, k // 2, dtype=torch.uint8)
    scales = setting.randn(count, n, k // 128, dtype=WIDE) * 0.02
    ids, of = _routed(setting, tokens, count, bm)
    y = setting.empty(tokens * 2, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.experts_int4[(len(of) * cdiv(n, bn),)](
            x, packed, scales, y, ids, of, tokens, n, k, TOP=2, GROUP=128, BM=bm, BN=bn, BK=bk,
            num_warps=warps, num_stages=stages,
        ),
        [y],
        tolerance=4e-3,
    )  # fmt: skip


FORMS.add("int4 experts, 64 tokens", lambda s: _experts_int4(s, 64, (16, 64, 128), 4, 3))
FORMS.add("int4 experts, 2048 tokens", lambda s: _experts_int4(s, 2048, (64, 128, 64), 4, 3))


def _experts_fp8(setting: Setting, tokens: int, block: Block, warps: int, stages: int) -> Prepared:
    (tokens, n, k), (bm, bn, bk) = _sizes(setting, tokens, 2048, 2048), block
    count = setting.pick(4, 16, 16)
    x = setting.randn(tokens, k).to(torch.float8_e4m3fn)
    w = setting.randn(count, n, k).to(torch.float8_e4m3fn)
    scales_x, scales_w = setting.randn(tokens, k // 128), setting.randn(count, n // 128, k // 128)
    ids, of = _routed(setting, tokens, count, bm)
    y = setting.empty(tokens * 2, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.experts_fp8[(len(of) * cdiv(n, bn),)](
            x, w, scales_x, scales_w, y, ids, of, tokens, n, k, TOP=2, BM=bm, BN=bn, BK=bk,
            num_warps=warps, num_stages=stages,
        ),
        [y],
        tolerance=4e-3,
    )  # fmt: skip


FORMS.add("fp8 experts, 64 tokens", lambda s: _experts_fp8(s, 64, (16, 128, 128), 4, 4))
FORMS.add("fp8 experts, 4096 tokens", lambda s: _experts_fp8(s, 4096, (64, 128, 128), 4, 3))


def _fp4(setting: Setting, rows: int, block: Block, warps: int, stages: int) -> Prepared:
    (m, n, k), (bm, bn, bk) = _sizes(setting, rows), block
    m = cdiv(m, bm) * bm
    x = setting.randn(m, k, dtype=WIDE)
    packed = setting.integers(0, 255, n, k // 2, dtype=torch.uint8)
    scales = setting.integers(118, 126, n, k // 32, dtype=torch.uint8)
    y = setting.empty(m, n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.weights_fp4[(m // bm, n // bn)](
            x, packed, scales, y, m, n, k, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages
        ),
        [y],
        tolerance=4e-3,
    )


FORMS.add("fp4 weights, 16 rows", lambda s: _fp4(s, 16, (16, 128, 128), 4, 3))
FORMS.add("fp4 weights, 1024 rows", lambda s: _fp4(s, 1024, (128, 128, 128), 8, 3))


def _sparse(setting: Setting, size: int, block: int, warps: int, stages: int) -> Prepared:
    rows, n = setting.pick(256, 4096, 4096), setting.pick(128, 4096, 4096)
    count = rows // size
    dense = torch.rand(count, count) < 0.2
    dense[:, 0] = True
    starts = torch.tensor([0, *dense.sum(1).cumsum(0).tolist()], dtype=torch.int32)
    starts, columns = starts.to(setting.device), dense.nonzero()[:, 1].to(torch.int32)
    columns = columns.to(setting.device)
    values = setting.randn(len(columns), size, size, dtype=HALF) * 0.1
    b, y = setting.randn(rows, n, dtype=HALF), setting.empty(rows, n, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.sparse_blocks[(count, n // block)](
            values, starts, columns, b, y, n, SIZE=size, BN=block, num_warps=warps,
            num_stages=stages,
        ),
        [y],
    )  # fmt: skip


FORMS.add("sparse blocks of 32", lambda s: _sparse(s, 32, 64, 4, 3))
FORMS.add("sparse blocks of 64", lambda s: _sparse(s, 64, 128, 4, 3))


def _convolution(setting: Setting, size: int, channels: int, block: Block, warps: int) -> Prepared:
    images, size = setting.pick(1, 32, 32), setting.pick(8, size, size)
    channels, (bm, bn, bk) = setting.pick(64, channels, channels), block
    x = setting.randn(images, size, size, channels, dtype=HALF)
    weight = setting.randn(3, 3, channels, channels, dtype=HALF) * 0.05
    y = torch.empty_like(x)
    grid = images * size * size // bm, cdiv(channels, bn)
    return Prepared(
        lambda kernels: kernels.convolution[grid](
            x, weight, y, size, size, channels, channels, size, size, R=3, S=3, PAD=1,
            BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=3,
        ),
        [y],
    )  # fmt: skip


FORMS.add("convolution 3x3 of 128 channels", lambda s: _convolution(s, 56, 128, (64, 64, 64), 4))
FORMS.add("convolution 3x3 of 256 channels", lambda s: _convolution(s, 32, 256, (64, 128, 32), 8))


def _split(setting: Setting, sizes: Block, block: Block, splits: int, stages: int) -> Prepared:
    (m, n, k), (bm, bn, bk) = (setting.pick(min(256, size), size, size) for size in sizes), block
    a, b = setting.randn(m, k, dtype=HALF), setting.randn(k, n, dtype=HALF) * 0.02
    c = torch.zeros(m, n, device=setting.device)
    return Prepared(
        lambda kernels: kernels.split_product[(cdiv(m, bm) * cdiv(n, bn), splits)](
            a, b, c, m, n, k, SPLITS=splits, BM=bm, BN=bn, BK=bk, num_warps=4, num_stages=stages
        ),
        [c],
        reset=c.zero_,
    )


FORMS.add("split product 16x4096x8192", lambda s: _split(s, (16, 4096, 8192), (16, 64, 128), 4, 4))
FORMS.add("split product 512x512x16384", lambda s: _split(s, (512, 512, 16384), (64, 64, 64), 8, 4))

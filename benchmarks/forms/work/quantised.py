"""Launches of `kernels/quantised.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("quantised")


@FORMS.form("GEMV int4, groups of 128, 8192x8192")
def gemv_int4(setting: Setting) -> Prepared:
    n = setting.pick(256, 8192, 8192)
    weights = setting.integers(-(2**31), 2**31 - 1, n, n // 8, dtype=torch.int32)
    scales = setting.randn(n, n // 128, dtype=torch.float16) * 0.01
    zeros = setting.integers(0, 15, n, n // 128, dtype=torch.float16)
    x, y = setting.randn(n, dtype=torch.float16), setting.empty(n, dtype=torch.float16)
    return Prepared(
        lambda kernels: kernels.gemv_int4[(n // 16,)](
            x, weights, scales, zeros, y, n, n, GROUP=128, BN=16, BK=128, num_warps=4
        ),
        [y],
    )


def _gemv_int8(setting: Setting, block_n: int, block_k: int, warps: int) -> Prepared:
    n = setting.pick(256, 8192, 8192)
    weights = setting.integers(-100, 100, n, n, dtype=torch.int8)
    scales, x = setting.randn(n), setting.randn(n, dtype=torch.float16)
    y = setting.empty(n, dtype=torch.float16)
    return Prepared(
        lambda kernels: kernels.gemv_int8[(n // block_n,)](
            x, weights, scales, y, n, n, BN=block_n, BK=block_k, num_warps=warps
        ),
        [y],
    )


FORMS.add("GEMV int8 8192x8192, 16x256", lambda setting: _gemv_int8(setting, 16, 256, 4))
FORMS.add("GEMV int8 8192x8192, 4x1024", lambda setting: _gemv_int8(setting, 4, 1024, 4))


@FORMS.form("fp8 by groups of 128")
def to_fp8_by_group(setting: Setting) -> Prepared:
    rows, columns = setting.pick(64, 8192, 8192), setting.pick(256, 4096, 4096)
    x = setting.randn(rows, columns, dtype=torch.bfloat16)
    y = setting.empty(rows, columns, dtype=torch.float8_e4m3fn)
    scales = setting.empty(rows, columns // 128)
    return Prepared(
        lambda kernels: kernels.to_fp8_by_group[(rows * columns // 128,)](
            x, y, scales, columns, 1e-10, GROUP=128, num_warps=1
        ),
        [y, scales],
    )


@FORMS.form("fp8 by tokens")
def to_fp8_by_token(setting: Setting) -> Prepared:
    rows, columns = setting.pick(64, 8192, 8192), setting.pick(300, 7168, 7168)
    x = setting.randn(rows, columns, dtype=torch.bfloat16)
    y = setting.empty(rows, columns, dtype=torch.float8_e4m3fn)
    scales = setting.empty(rows)
    return Prepared(
        lambda kernels: kernels.to_fp8_by_token[(rows,)](
            x, y, scales, columns, BLOCK=1024, num_warps=4
        ),
        [y, scales],
        tolerance=5e-3,
    )


@FORMS.form("int8 to fp16 by columns")
def from_int8(setting: Setting) -> Prepared:
    n = setting.pick(256, 8192, 8192)
    x = setting.integers(-100, 100, n, n, dtype=torch.int8)
    scales, y = setting.randn(n, dtype=torch.float16), setting.empty(n, n, dtype=torch.float16)
    return Prepared(
        lambda kernels: kernels.from_int8[(cdiv(n * n, 1024),)](x, scales, y, n * n, n, BLOCK=1024),
        [y],
    )


@FORMS.form("int4 to fp16 by groups")
def from_int4(setting: Setting) -> Prepared:
    n = setting.pick(512, 8192, 8192)
    x = setting.integers(0, 255, n, n // 2, dtype=torch.uint8)
    scales = setting.randn(n, n // 128, dtype=torch.float16)
    y = setting.empty(n, n, dtype=torch.float16)
    return Prepared(
        lambda kernels: kernels.from_int4[(n, n // 512)](
            x, scales, y, n, GROUP=128, BLOCK=256, num_warps=4
        ),
        [y],
    )

"""Operands of small products are copied to shared memory 16 bytes at a time."""

from __future__ import annotations

import re

import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets.nvidia.lowered import ptx_of
from tilewright.targets.nvidia.target import NvidiaTarget
from tilewright.tools.signature import source_of


@tw.jit
def product_kernel(
    a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr
):
    """All tiles may have one shape; that of the result limits its stores to 4 elements."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    sums = tl.zeros((M, N), OUT)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + n[None, :] * K + (start + k)[:, None])
        sums = tl.dot(x, y, sums)
    tl.store(c + m[:, None] * N + n[None, :], sums)


@pytest.mark.parametrize(
    ("type", "M", "N", "BK", "warps"),
    [
        ("fp8e4nv", 64, 64, 64, 8),
        ("fp8e5", 64, 64, 64, 4),
        ("fp16", 32, 32, 32, 4),
        ("fp16", 16, 64, 64, 4),
        ("bf16", 64, 64, 64, 8),
        ("i8", 64, 64, 64, 8),
    ],
)
@pytest.mark.parametrize("arch", [89, 90])
def test_copies_have_16_bytes(type: str, M: int, N: int, BK: int, warps: int, arch: int) -> None:
    out = "i32" if type == "i8" else "fp32"
    constants = {"M": M, "N": N, "BK": BK, "OUT": tl.int32 if type == "i8" else tl.float32}
    source = source_of(product_kernel, f"*{type}:16, *{type}:16, *{out}:16, i32:16", constants)
    target = NvidiaTarget(arch)
    module = source.module(target.frontend_options(target.parse_options({})))
    ptx = ptx_of(module, arch, num_warps=warps, num_stages=3)
    assert "ld.global" not in ptx
    widths = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^;]*?, (\d+)", ptx)
    assert set(widths) <= {"16"}
    assert widths or "cp.async.bulk.tensor" in ptx

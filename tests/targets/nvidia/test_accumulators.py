"""Accumulators that a loop carries in other places: ptxas must not serialise their products."""

from __future__ import annotations

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.compiler.driver import compile
from tilewright.targets.nvidia.assemble import Ptxas, find_assembler
from tilewright.targets.protocol import GPUTarget
from tilewright.tools.signature import source_of


@tw.jit
def exchanged(x, y, z, out, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Two sums that change places in each iteration, one of them through arithmetic."""
    rows, inner, columns = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    first, second = tl.full((M, N), 1.0, tl.float32), tl.zeros((M, N), tl.float32)
    x = tl.load(x + rows[:, None] * K + inner[None, :])
    z = tl.load(z + inner[:, None] * N + columns[None, :])
    for i in range(n):
        y_tile = tl.load(y + i * K * K + inner[:, None] * K + inner[None, :])
        product = tl.dot(x, y_tile).to(tl.bfloat16)
        first, second = tl.dot(product, z, second), first
        second = tl.where(second > 4096, 1.0, second)
    tl.store(out + rows[:, None] * N + columns[None, :], first)
    tl.store(out + M * N + rows[:, None] * N + columns[None, :], second)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_sums_that_change_places(stages: int) -> None:
    """Tests fail where products are serialised: see `tests/conftest.py`."""
    if not isinstance(find_assembler(), Ptxas):
        pytest.skip("needs ptxas")
    source = source_of(
        exchanged,
        "*bf16:16, *bf16:16, *bf16:16, *fp32:16, i32:16",
        {"M": 128, "N": 32, "K": 64},
    )
    compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 8, "num_stages": stages})

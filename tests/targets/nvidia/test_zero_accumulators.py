"""Products that start at zero: the first instruction of each sum does not read the accumulators."""

from __future__ import annotations

import re

import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets.nvidia.lowered import ptx_of
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.source import ASTSource
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.passes import run
from tilewright.targets.gpu.codegen import thread_code
from tilewright.targets.nvidia.notes import held_registers
from tilewright.targets.nvidia.target import NvidiaTarget
from tilewright.tools.signature import source_of

START = "setp.ne.b32 p, 0, 0; "
NEXT = "setp.eq.b32 p, 0, 0; "


@tw.jit
def squares(x, y, out, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ZERO: tl.constexpr):
    """Sums of squares of the rows of a product, a tile of columns in each iteration."""
    rows, inner = tl.arange(0, M), tl.arange(0, K)
    a = tl.load(x + rows[:, None] * K + inner[None, :])
    total = tl.zeros((M,), tl.float32)
    for j in range(0, n, N):
        columns = j + tl.arange(0, N)
        b = tl.load(y + columns[None, :] * K + inner[:, None])
        s = tl.dot(a, b, tl.full((M, N), ZERO, tl.float32))
        total += tl.sum(s * s, 1)
    tl.store(out + rows, total)


def source_with(zero: float, m: int) -> ASTSource:
    constants = {"M": m, "N": 64, "K": 64, "ZERO": zero}
    return source_of(squares, "*fp16:16, *fp16:16, *fp32:16, i32:16", constants)


def products(zero: float, m: int, warps: int) -> list[str]:
    """The instructions, each with what sets its predicate."""
    text = ptx_of(source_with(zero, m).module(FrontendOptions()), num_warps=warps)
    return re.findall(r"\{ \.reg \.pred p; (.*wgmma\.mma_async.*)\}", text)


@pytest.mark.parametrize(("m", "warps", "blocks"), [(64, 4, 1), (128, 4, 2), (128, 8, 1)])
def test_only_the_first_instruction_starts_at_zero(m: int, warps: int, blocks: int) -> None:
    """With zeros in registers, ptxas ends the first block before it starts the second."""
    found = products(0.0, m, warps)
    steps = 4  # of 16 elements along K
    assert [text.startswith(START) for text in found] == [True, *[False] * (steps - 1)] * blocks
    assert all(text.startswith((START, NEXT)) for text in found)


@pytest.mark.parametrize(
    ("zero", "m", "warps", "held"), [(0.0, 64, 4, 36), (0.0, 128, 4, 70), (1.0, 64, 4, 0)]
)
def test_results_are_held_with_what_a_loop_carries_past_them(
    zero: float, m: int, warps: int, held: int
) -> None:
    """Of 64 rows, a thread has 32 results and two sums; there are a slot and its parity, too."""
    module = source_with(zero, m).module(FrontendOptions())
    target = NvidiaTarget(90)
    options = target.parse_options({"num_warps": warps})
    ctx = context_for(target, options)
    run(module, pipeline(target), ctx)
    assert held_registers(thread_code(module, target, ctx, options).notes) == held


@pytest.mark.parametrize("zero", [-0.0, 1.0])
def test_other_sums_read_the_accumulators(zero: float) -> None:
    assert all(text.startswith(NEXT) for text in products(zero, 128, 4))

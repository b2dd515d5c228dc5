"""Stores to shared memory: of some threads, few are predicated and many are branched around; those
of operands of asynchronous products are published."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from benchmarks.compile_forms import FORMS
from tests.targets.nvidia.lowered import ptx_of
from tilewright.compiler.source import ASTSource
from tilewright.frontend.options import FrontendOptions
from tilewright.targets.nvidia.target import NvidiaTarget
from tilewright.tools.signature import source_of

PREDICATED = re.compile(r"@%p\d+ st\.shared\S*")
BRANCH = re.compile(r"^\t(?:@!?%p\d+ )?bra", re.MULTILINE)


@tw.jit
def columns_kernel(x, o, M: tl.constexpr, N: tl.constexpr):
    tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(o + tl.arange(0, N), tl.sum(tile, 0))


def ptx_of_columns(type: str, n: int) -> str:
    constants: dict[str, Any] = {"M": 64, "N": n}
    aligned = {(k,): [["tt.divisibility", 16]] for k in (0, 1)}
    source = ASTSource(columns_kernel, {"x": f"*{type}", "o": f"*{type}"}, constants, aligned)
    return ptx_of(source.module(FrontendOptions(backend_name="cuda", num_warps=4)))


@pytest.mark.parametrize("steps", [1, 20])
def test_sums_in_a_row_are_one_basic_block(steps: int) -> None:
    """Time of LLVM's passes grows with the square of the number of branches on one condition."""
    module = FORMS["sums"].source(steps).module(FrontendOptions(backend_name="cuda"))
    text = ptx_of(module)
    assert len(PREDICATED.findall(text)) == steps
    assert not BRANCH.search(text)


@pytest.mark.parametrize(
    ("type", "store"),
    [("fp32", "b32"), ("fp64", "b64"), ("fp16", "b16"), ("bf16", "b16")],
)
def test_stores_have_the_size_of_the_element(type: str, store: str) -> None:
    found = PREDICATED.findall(ptx_of_columns(type, 4))
    assert found
    assert all(instruction.endswith(f" st.shared.{store}") for instruction in found)


def test_many_stores_are_branched_around() -> None:
    text = ptx_of_columns("fp16", 64)
    assert BRANCH.search(text)
    assert not PREDICATED.search(text)


def test_conversions_store_vectors() -> None:
    """A split leaves half of the lanes without elements of their own; the others store pairs."""
    module = FORMS["shapes"].source(2).module(FrontendOptions(backend_name="cuda"))
    text = ptx_of(module)
    assert PREDICATED.search(text)
    assert not BRANCH.search(text)


@tw.jit
def strided_product(a, b, c, K, s, t, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    """The elements of both operands are not adjacent, so threads store them."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * s + (start + k)[None, :] * t)
        y = tl.load(b + n[None, :] * t + (start + k)[:, None] * s)
        sums = tl.dot(x, y, sums)
    tl.store(c + m[:, None] * N + n[None, :], sums)


def test_operands_of_a_product_are_published_together() -> None:
    constants = {"M": 64, "N": 32, "BK": 32}
    source = source_of(strided_product, "*fp16:16, *fp16:16, *fp32:16, i32, i32, i32", constants)
    target = NvidiaTarget(90)
    module = source.module(target.frontend_options(target.parse_options({})))
    ptx = ptx_of(module, 90, num_warps=4)
    last_store = max(at.start() for at in re.finditer(r"st\.shared", ptx[: ptx.index("wgmma.mma")]))
    fences = [at.start() for at in re.finditer(r"fence\.proxy\.async", ptx)]
    assert len(fences) == 1
    assert last_store < fences[0] < ptx.index("bar.sync", fences[0]) < ptx.index("wgmma.mma")

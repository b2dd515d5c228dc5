"""Reductions of many rows over many warps are completed by all threads, with the same results."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.lowering.simt.harness import assert_same, laid_out
from tests.targets.nvidia.lowered import ptx_of
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ops.reduce import Reduce
from tilewright.passes import spread_reductions
from tilewright.tools.signature import source_of


@tw.jit
def columns_kernel(x, out, R: tl.constexpr, C: tl.constexpr):
    """Sums, extrema with places, and a sum that all threads use."""
    r, c = tl.arange(0, R), tl.arange(0, C)
    v = tl.load(x + r[:, None] * C + c[None, :])
    most, place = tl.max(v, 0, return_indices=True)
    total = tl.sum(v, 0)
    tl.store(out + c, total)
    tl.store(out + C + c, most)
    tl.store(out + 2 * C + c, place.to(tl.float32))
    tl.store(out + 3 * C + r[:, None] * C + c[None, :], v - total[None, :])


@tw.jit
def planes_kernel(x, out, A: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """Reduces the axis in the middle of a transposed tile, in a loop."""
    a, r, c = tl.arange(0, A), tl.arange(0, R), tl.arange(0, C)
    at = a[:, None, None] * R * C + r[None, :, None] * C + c[None, None, :]
    for i in range(2):
        v = tl.permute(tl.load(x + i * A * R * C + at), (2, 1, 0))
        index = c[:, None] * A + a[None, :]
        tl.store(out + i * A * C + index, tl.xor_sum(v.to(tl.int32), 1).to(tl.float32))


def module_of(kernel: Any, **constants: int) -> Module:
    return source_of(kernel, "*fp32:16, *fp32:16", constants).module(FrontendOptions())


def reductions(module: Module) -> int:
    return sum(isinstance(op, Reduce) for op in module.entry.walk())


MACHINES = [{"lanes": 8, "warps": 4}, {"lanes": 8, "warps": 16}, {"lanes": 32, "warps": 8}]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread_reductions, "LEAST_WARPS", 2)
    monkeypatch.setattr(spread_reductions, "LEAST_READ", 4)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("extents", [(256, 4), (128, 16), (64, 64), (512, 1)])
def test_columns(machine: dict[str, Any], extents: tuple[int, int]) -> None:
    rows, columns = extents
    module = module_of(columns_kernel, R=rows, C=columns)
    plain = laid_out(module, disabled=frozenset([spread_reductions.NAME]), **machine)
    assert reductions(laid_out(module, **machine)) >= reductions(plain) + 2
    x = np.random.default_rng(0).integers(-99, 99, rows * columns).astype(np.float32)
    out = np.zeros(3 * columns + rows * columns, np.float32)
    assert_same(module, (1, 1, 1), [x, out], **machine)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("extents", [(2, 64, 4), (4, 16, 16), (1, 128, 8)])
def test_axis_in_the_middle(machine: dict[str, Any], extents: tuple[int, int, int]) -> None:
    planes, rows, columns = extents
    module = module_of(planes_kernel, A=planes, R=rows, C=columns)
    x = np.random.default_rng(1).integers(-99, 99, 2 * planes * rows * columns).astype(np.float32)
    out = np.zeros(2 * planes * columns, np.float32)
    assert_same(module, (1, 1, 1), [x, out], **machine)


def test_few_numbers_are_read_by_each_warp() -> None:
    """64 columns of 16 warps: 1,024 partial results, of which each thread adds two."""
    module = module_of(columns_kernel, R=64, C=64)
    text = ptx_of(module, num_warps=16)
    vectors = re.findall(r"ld\.shared\.v(\d)", text)
    scalars = len(re.findall(r"ld\.shared\.b?[uf]?32", text))
    assert sum(map(int, vectors)) + scalars < 100


def test_lanes_exchange_what_registers_have_reduced() -> None:
    """Each of the 8 warps has every eighth row, so that registers and lanes have two runs of bits
    of the axis. Reduced by lanes first, 16 rows of each thread took 390 shuffles."""
    module = module_of(columns_kernel, R=512, C=64)
    text = ptx_of(module, num_warps=8)
    assert text.count("shfl.sync.bfly") < 60

"""Sums that pick an element by its number, on the emulated GPU."""

# pyright: reportIndexIssue=false
from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.lowering.simt.harness import assert_same
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.lowering.simt import reduce
from tilewright.tools.signature import source_of


@tw.jit
def rows_kernel(x, numbers, y, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    """The row or column with each number, and one element of it."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + i[:, None] * N + j[None, :])
    for k in range(6):
        number = tl.load(numbers + k)
        if AXIS == 0:
            row = tl.sum(tl.where((i == number)[:, None], a, 0), 0)
            tl.store(y + k * (N + 1) + j, row)
            tl.store(y + k * (N + 1) + N, tl.sum(tl.where(number == j, row, 0), 0))
        else:
            row = tl.sum(tl.where(number == j[None, :], a, 0), 1)
            tl.store(y + k * (M + 1) + i, row)
            tl.store(y + k * (M + 1) + M, tl.sum(tl.where(i == number, row, 0), 0))


def _module(type: str, m: int, n: int, axis: int) -> Module:
    constants = {"M": m, "N": n, "AXIS": axis}
    source = source_of(rows_kernel, f"*{type}:16, *i32:16, *{type}:16", constants)
    return source.module(FrontendOptions())


def _args(type: str, m: int, n: int, axis: int) -> list[np.ndarray]:
    rng = np.random.default_rng(m + n)
    x = rng.integers(-99, 99, (m, n)).astype(np.float32 if type == "fp32" else np.int32)
    if type == "fp32":
        x.flat[::5] = -0.0
        x.flat[1::7] = np.inf
        x.flat[2::9] = np.nan
    extent = m if axis == 0 else n
    numbers = np.array([0, extent - 1, extent // 2, -1, extent, 2**31 - 1], np.int32)
    y = np.full((6, (n if axis == 0 else m) + 1), 7, x.dtype)
    return [x, numbers, y]


@pytest.mark.parametrize("type", ["fp32", "i32"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("m", "n"), [(2, 2), (8, 4), (4, 32), (32, 16), (64, 64), (1, 8)])
def test_rows_by_their_numbers(
    type: str, axis: int, m: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    picks: list[bool] = []
    original = reduce.picked

    def recorded(*args):
        picks.append(original(*args) is not None)
        return original(*args)

    monkeypatch.setattr(reduce, "picked", recorded)
    for warps, lanes in ((1, 8), (4, 8), (2, 32)):
        assert_same(
            _module(type, m, n, axis), (1, 1, 1), _args(type, m, n, axis), warps=warps, lanes=lanes
        )
    assert picks
    assert all(picks)


@tw.jit
def others_kernel(x, y, N: tl.constexpr, OTHER: tl.constexpr):
    """Sums that add up more than one element, or products of them."""
    i = tl.arange(0, N)
    a = tl.load(x + i)
    number = tl.load(x + 3).to(tl.int32)
    tl.store(y, tl.sum(tl.where(i <= number, a, 0), 0))
    tl.store(y + 1, tl.sum(tl.where(i // 2 == number, a, 0), 0))
    tl.store(y + 2, tl.sum(tl.where(i == number, a, 1), 0))
    tl.store(y + 3, tl.max(tl.where(i == number, a, 0), 0))
    tl.store(y + 4, tl.sum(tl.where(i != number, a, 0), 0))


def test_other_sums_are_accumulated() -> None:
    constants = {"N": 32, "OTHER": 0}
    module = source_of(others_kernel, "*fp32:16, *fp32:16", constants).module(FrontendOptions())
    x = np.arange(32, dtype=np.float32)
    assert_same(module, (1, 1, 1), [x, np.zeros(5, np.float32)], warps=2, lanes=8)

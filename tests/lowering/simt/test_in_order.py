"""Reductions with the index of each element, on the emulated GPU."""

# pyright: reportIndexIssue=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.lowering.simt.emulator import EmulatedHardware
from tests.lowering.simt.harness import assert_same, laid_out
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.lowering.simt import reduce
from tilewright.lowering.simt.kernel import Kernel
from tilewright.tools.signature import source_of


@tw.jit
def extrema_kernel(x, y, at, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    """The extrema of rows or columns, with their places: of equal ones the first."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + i[:, None] * N + j[None, :])
    least, first = tl.min(a, AXIS, return_indices=True)
    most, place = tl.max(a, AXIS, return_indices=True)
    k = j if AXIS == 0 else i
    tl.store(y + k, least)
    tl.store(at + k, first)
    tl.store(y + M + N + k, most)
    tl.store(at + M + N + k, place)


@tw.jit
def later(a, i, b, j):
    """The larger one, of equal ones the one with the larger index."""
    left = (a > b) | ((a == b) & (j <= i))
    return tl.where(left, a, b), tl.where(left, i, j)


@tw.jit
def last_kernel(x, y, at, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    """The last of the largest elements of rows, whose indices have a start and a stride."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + i[:, None] * N + j[None, :])
    numbers = tl.broadcast_to((tl.load(at) * 0 + 5 - 3 * j)[None, :] * -1, (M, N))
    most, place = tl.reduce((a, numbers), 1, later)
    tl.store(y + i, most)
    tl.store(at + i, place)


@tw.jit
def wrapping_kernel(x, y, at, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    """Indices that wrap: there is no order of registers."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + i[:, None] * N + j[None, :])
    numbers = tl.broadcast_to((j + 2147483647 - N // 2)[None, :], (M, N))
    most, place = tl.reduce((a, numbers), 1, later)
    tl.store(y + i, most)
    tl.store(at + i, place)


def _module(kernel: Any, type: str, m: int, n: int, axis: int) -> Module:
    constants = {"M": m, "N": n, "AXIS": axis}
    source = source_of(kernel, f"*{type}:16, *{type}:16, *i32:16", constants)
    return source.module(FrontendOptions())


def _args(type: str, m: int, n: int) -> list[np.ndarray]:
    x = np.random.default_rng(m + n).integers(-3, 3, (m, n))
    x = x.astype(np.float32 if type == "fp32" else np.int32)
    return [x, np.zeros(2 * (m + n), x.dtype), np.zeros(2 * (m + n), np.int32)]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, int]]:
    """The strides that are found in the reductions of a test."""
    strides: list[dict[int, int]] = []
    original = reduce.strides_of_indices

    def recorded(op: Any) -> dict[int, int]:
        strides.append(original(op))
        return strides[-1]

    monkeypatch.setattr(reduce, "strides_of_indices", recorded)
    return strides


def _check(kernel: Any, type: str, m: int, n: int, axis: int) -> None:
    for warps, lanes in ((1, 8), (4, 8), (2, 32)):
        module = _module(kernel, type, m, n, axis)
        assert_same(module, (1, 1, 1), _args(type, m, n), warps=warps, lanes=lanes)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("type", ["fp32", "i32"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("m", "n"), [(2, 2), (8, 4), (4, 64), (64, 16), (64, 64), (1, 8)])
def test_extrema_and_their_places(
    type: str, axis: int, m: int, n: int, found: list[dict[int, int]]
) -> None:
    _check(extrema_kernel, type, m, n, axis)
    assert (m, n) != (64, 64) or {1: 1} in found


@pytest.mark.parametrize(("m", "n"), [(8, 32), (64, 64)])
def test_indices_with_a_start_and_a_stride(m: int, n: int, found: list[dict[int, int]]) -> None:
    _check(last_kernel, "i32", m, n, 1)
    assert {1: 3} in found


def test_indices_that_wrap_are_compared(found: list[dict[int, int]]) -> None:
    _check(wrapping_kernel, "i32", 8, 64, 1)
    assert found
    assert not any(found)


def _comparisons() -> int:
    module = laid_out(_module(extrema_kernel, "fp32", 64, 64, 1), warps=1, lanes=8)
    (fn,) = module.functions.values()
    return Kernel(fn, EmulatedHardware(8), 1).emit().count("icmp slt")


def test_a_thread_does_not_compare_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    between_lanes = _comparisons()
    monkeypatch.setattr(reduce, "strides_of_indices", lambda op: {})
    assert 0 < 3 * between_lanes < _comparisons()

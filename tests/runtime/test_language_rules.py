"""Rules of the language that span front end and launch, compiled for the CPU and interpreted."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.language_programs import annotated, cut, first_above, streams
from tilewright.base import knobs


@pytest.fixture(params=["cpu", "interpreter"])
def jit(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """The decorator, for the CPU or for the interpreter."""

    def decorate(fn: Any) -> Any:
        with knobs.runtime.scope():
            knobs.runtime.interpret = request.param == "interpreter"
            return tilewright.jit(fn)

    return decorate


def test_aggregates_of_pointers_and_tiles(jit: Any) -> None:
    kernel = jit(streams)
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 24)).astype(np.float32)
    out = np.zeros(8, np.float32)
    kernel[(1,)](out, x, y, 3, size=8)
    expected = np.zeros(8, np.float32)
    totals = [expected, expected]
    for i in range(3):
        totals = [t + v[8 * i : 8 * i + 8] for t, v in zip(totals, (x, y), strict=True)]
    np.testing.assert_array_equal(out, totals[0] + totals[1])
    kernel[(1,)](out, x, y, 2, size=8)
    np.testing.assert_array_equal(out, x[:8] + x[8:16])


def test_numbers_have_the_types_of_their_annotations(jit: Any) -> None:
    kernel = jit(annotated)
    out = np.zeros(2, np.int64)
    kernel[(1,)](out, 1, 1, 1, 1)  # also numbers that variants are specialised for
    assert out.tolist() == [(1 << 32) + 1, 2]
    kernel[(1,)](out, 2, 1 << 40, 2, 3)
    assert out.tolist() == [(1 << 33) + (1 << 40), 22]


class Slot(NamedTuple):
    pointer: Any
    bias: Any


def _all_kinds(out, slot, *rest, scale, N: "tl.constexpr" = 2):  # pyright: ignore[reportArgumentType]
    total = tl.load(slot.pointer) + slot.bias
    for i in tl.static_range(len(rest)):
        total += rest[i]
    tl.store(out + tl.arange(0, N), total * scale)


def test_kinds_of_parameters(jit: Any) -> None:
    kernel = jit(_all_kinds)
    out, x = np.zeros(4, np.int32), np.array([100], np.int32)
    kernel[(1,)](out, Slot(x, 5), 1, 2, 30, scale=2)
    assert out.tolist() == [276, 276, 0, 0]
    kernel[(1,)](out, Slot(bias=1, pointer=x), scale=3, N=4)
    assert out.tolist() == [303] * 4


def test_loops_over_tiles_break(jit: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (6, 5, 8)).astype(np.float32)
    x[1, 2] = -np.abs(x[1, 2])
    x[4] = np.minimum(x[4], 0.5)
    out = np.zeros((6, 2, 8), np.float32)
    jit(first_above)[(6,)](out, x, 5, 0.9, N=8)
    expected = np.zeros_like(out)
    for row in range(6):
        total = np.zeros(8, np.float32)
        for values in x[row]:
            if values.max() < 0:
                continue
            total = total + values
            if values.max() > np.float32(0.9):
                expected[row] = total, total + 1
                break
    assert (expected[[0, 4], 0, 0] == 0).any()
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("i", [2, 5])
def test_tiles_are_indexed_and_sliced(jit: Any, i: int) -> None:
    x = np.arange(64, dtype=np.int32).reshape(8, 8) * 7
    out = np.zeros(40, np.int32)
    jit(cut)[(1,)](out, x, i, N=8)
    expected = np.zeros(40, np.int32)
    expected[:8], expected[8:16] = x[i], x[:, -2]
    expected[16:20], expected[20:24] = x[3, ::2], x[4:, i]
    expected[24], expected[25] = x[i, 1] + x[0, i], x[-1, 2]
    expected[32 + i] = i
    np.testing.assert_array_equal(out, expected)

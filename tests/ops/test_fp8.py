"""Conversions from and to the five kinds of fp8, all of them, against a list of their values."""

import numpy as np
import pytest

from tests.ops.exact import FORMATS
from tests.ops.fp8_reference import FP8, WIDER, canonical, inputs, narrowed, values
from tests.ops.harness import run_op
from tilewright.ir import types as ir
from tilewright.ir.numbers import array_of, first_number
from tilewright.ops.arith import Cast


def cast(numbers: np.ndarray, source: ir.DType, to: ir.DType, rounding: str) -> np.ndarray:
    tile = ir.Tile(numbers.shape, source)
    (found,) = run_op(Cast, [tile], [numbers], to=to, rounding=rounding)
    return found


@pytest.mark.parametrize("to", WIDER, ids=str)
@pytest.mark.parametrize("source", FP8, ids=str)
def test_every_fp8_number_widens_exactly(source: ir.DType, to: ir.DType) -> None:
    numbers = np.arange(256, dtype=np.uint8).view(source.numpy)
    found = cast(numbers, source, to, "rtne").astype(np.float64)
    expected = values(FORMATS[source.short])
    np.testing.assert_array_equal(found, expected)
    known = ~np.isnan(expected)
    assert (np.signbit(found) == np.signbit(expected))[known].all()


@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("to", FP8, ids=str)
@pytest.mark.parametrize("source", WIDER, ids=str)
def test_narrowing_to_fp8(source: ir.DType, to: ir.DType, rounding: str) -> None:
    numbers = inputs(source, to)
    found = cast(numbers, source, to, rounding).view(np.uint8)
    expected = narrowed(numbers, to, rounding)
    wrong = np.nonzero(canonical(found, to) != expected)[0]
    assert not wrong.size, f"{len(wrong)}, first {numbers[wrong[0]]!r}"


def test_fp8e4b15_has_no_nan_and_no_infinity() -> None:
    f = FORMATS["fp8e4b15"]
    assert np.isfinite(values(f)).all()
    assert values(f).max() == 1.875
    odd = np.array([np.inf, -np.inf, np.nan, -np.nan, 1e30, -0.0], np.float32)
    found = cast(odd, ir.FP32, ir.FP8E4B15, "rtne").view(np.uint8)
    assert found.tolist() == [0x7F, 0xFF, 0x7F, 0x7F, 0x7F, 0x80]


def test_fp8e4b15_truncates_to_fp16_before_it_rounds() -> None:
    """1 + 1/16 is half way between two of its numbers; what fp16 does not hold does not count."""
    number = np.array([1 + 2**-4, 1 + 2**-4 + 2**-20, 1 + 2**-4 + 2**-10], np.float32)
    found = cast(number, ir.FP32, ir.FP8E4B15, "rtne").view(np.uint8)
    assert found.tolist() == [0x78, 0x78, 0x79]


@pytest.mark.parametrize("pattern", range(256))
def test_fp8e4b15_as_python_numbers(pattern: int) -> None:
    value = FORMATS["fp8e4b15"].decode(pattern)
    array = array_of(value, ir.FP8E4B15)
    assert array.view(np.uint8) == pattern
    assert first_number(array, ir.FP8E4B15) == value

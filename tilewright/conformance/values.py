"""Inputs with special values, and comparison of results by bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.numbers import decode, encode
from tilewright.ir.types import E4B15, DType, Type, dtype_of, shape_of


def floats_in(values: Any, element: DType) -> np.ndarray:
    """Numbers as an array of the element type, which NumPy lacks for one of them."""
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if element.numpy == E4B15:
            return encode(values.astype(np.float16))
        return values.astype(element.numpy)


def numbers(array: np.ndarray) -> np.ndarray:
    """An array in a type that NumPy computes with."""
    return decode(array) if array.dtype == E4B15 else array


def special_values(element: DType) -> list[Any]:
    """Values that most often break an identity: zeros of both signs, infinities, NaN, extremes."""
    if element.is_bool():
        return [False, True]
    if element.is_int():
        low, high = element.get_int_min_value(), element.get_int_max_value()
        return [0, 1, high, low, high - 1, low + 1, element.primitive_bitwidth]
    tiny = 2.0 ** (1 - element.exponent_bias - element.fp_mantissa_width)
    return [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), tiny, -tiny, 0.5]


def random_array(type: Type, rng: np.random.Generator, *, small: bool = False) -> np.ndarray:
    """An array of the type: a third special values, the rest random.

    With `small`, integers are from 0 to 7, as fits offsets and counts.
    """
    element, shape = dtype_of(type), shape_of(type)
    if element.is_bool():
        return np.asarray(rng.random(shape) < 0.5)
    if element.is_int() and small:
        return np.asarray(rng.integers(0, 8, shape), element.numpy)
    if element.is_int():
        low, high = element.get_int_min_value(), element.get_int_max_value()
        values = rng.integers(low, high, shape, element.numpy, endpoint=True)
        near = rng.integers(-9 if low < 0 else 0, 10, shape, np.int64).astype(element.numpy)
        values = np.where(rng.random(shape) < 0.5, values, near)
    else:
        normal = rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 8, shape)
        values = floats_in(normal, element)
    specials = floats_in(special_values(element), element)
    picked = specials[rng.integers(0, len(specials), shape)]
    return np.asarray(np.where(rng.random(shape) < 0.35, picked, values), element.numpy)


def same_bits(a: np.ndarray, b: np.ndarray, *, close: bool = False) -> bool:
    """Whether two arrays are equal bit for bit, with all NaNs equal.

    With `close`, floats may differ by 1 part in 100.
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "biu" or a.dtype == E4B15:
        return bool(np.array_equal(a, b))
    with np.errstate(invalid="ignore"):  # signalling NaN
        a_nan, b_nan = a != a, b != b
    if close:
        x, y = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(all="ignore"):
            return bool(np.allclose(x, y, rtol=1e-2, atol=1e-2, equal_nan=True))
    bits = f"u{a.dtype.itemsize}"
    raw_a, raw_b = (np.ascontiguousarray(np.atleast_1d(x)).view(bits) for x in (a, b))
    equal = (raw_a == raw_b).reshape(np.atleast_1d(a).shape)
    return bool(np.all(equal | np.atleast_1d(a_nan & b_nan)))

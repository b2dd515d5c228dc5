"""Comparison of arrays with what is expected, by bits or within a number of last places."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.conformance.values import numbers
from tilewright.ir.types import SCALARS

Array = np.ndarray[Any, Any]

_ELEMENTS = {t.numpy: t for t in reversed(SCALARS)}


def difference(found: Array, expected: Array, ulp: float = 0) -> str:
    """The difference between two arrays of one type in words; "" if there is none.

    NaN equals NaN, whatever its bits; zeros of different signs differ.

    Args:
        ulp: by how many units in the last place of the expected value floats may differ.
    """
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype} of shape {found.shape}, not {expected.dtype} of {expected.shape}"
    right = _equal(found, expected)
    element = _ELEMENTS[expected.dtype]
    if ulp and element.is_floating():
        right |= _near(found, expected, ulp)
    wrong = np.argwhere(~right)
    if not len(wrong):
        return ""
    at = tuple(int(i) for i in wrong[0])
    count, total = len(wrong), right.size
    values = [numbers(np.atleast_1d(a))[at] for a in (found, expected)]
    bound = f" within {ulp:g} units in the last place" if ulp else ""
    first = f"the first at {at}: {values[0]}, not {values[1]}{bound}"
    return f"{count} of {total} elements differ, {first}"


def _equal(found: Array, expected: Array) -> Array:
    raw = f"u{found.itemsize}"
    x, y = (np.ascontiguousarray(np.atleast_1d(a)) for a in (found, expected))
    equal = np.asarray(x.view(raw) == y.view(raw))
    if not _ELEMENTS[found.dtype].is_floating():
        return equal
    with np.errstate(invalid="ignore"):  # signalling NaN
        a, b = (numbers(v).astype(np.float64) for v in (x, y))
    return equal | (np.isnan(a) & np.isnan(b))


def _near(found: Array, expected: Array, ulp: float) -> Array:
    element = _ELEMENTS[expected.dtype]
    with np.errstate(all="ignore"):
        x, y = (numbers(np.atleast_1d(v)).astype(np.float64) for v in (found, expected))
        smallest = 2.0 ** (1 - element.exponent_bias)
        unit = 2.0**-element.fp_mantissa_width * np.maximum(np.abs(y), smallest)
        return np.abs(x - y) <= ulp * unit

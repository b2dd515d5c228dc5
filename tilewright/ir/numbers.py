"""Element values in NumPy arrays, and conversions of fp8e4b15, which NumPy lacks.

NumPy and ml_dtypes provide all other element types. An array of fp8e4b15 holds the bit patterns
under a structured dtype (`E4B15`) for which NumPy defines no arithmetic, so that a missing
conversion is an error rather than a wrong result. `with_numbers` adapts the `evaluate` of an op to
such arrays.

fp8e4b15 has a sign bit, 4 exponent bits with bias 15 and 3 mantissa bits. It has neither infinities
nor NaN: 0x7F is its largest value, 1.875. Other floats are truncated to fp16 and then rounded to
fp8e4b15; larger values saturate, and NaN becomes 1.875.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.types import E4B15, Pointer, Type, element_of, numpy_of

if TYPE_CHECKING:
    from tilewright.ir.core import Op

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]

_LARGEST_FP16 = 0x3F80  # 1.875
_DROPPED = 7  # mantissa bits of fp16 beyond those of fp8e4b15


def decode(array: Array) -> Array:
    """Convert fp8e4b15 to fp16. It is exact, because the two exponents have the same bias."""
    bits = array.view(np.uint8).astype(np.uint16)
    return ((bits & 0x80) << 8 | (bits & 0x7F) << _DROPPED).view(np.float16)


def encode(numbers: Array, *, toward_zero: bool = False) -> Array:
    """Convert floats to fp8e4b15.

    Args:
        numbers: floats of any type whose values are representable in fp16.
        toward_zero: round toward zero instead of to nearest, ties to even.
    """
    bits = np.atleast_1d(numbers.astype(np.float16)).view(np.uint16)
    magnitude = np.minimum(bits & 0x7FFF, _LARGEST_FP16)
    if not toward_zero:
        magnitude = magnitude + (1 << (_DROPPED - 1)) - 1 + (magnitude >> _DROPPED & 1)
    packed = magnitude >> _DROPPED | bits >> 8 & 0x80
    packed = np.where(bits & 0x7FFF > 0x7C00, 0x7F, packed)
    return packed.astype(np.uint8).view(E4B15).reshape(numbers.shape)


def array_of(value: Any, type: Type) -> Array:
    """A number that the element type represents exactly, as an array of shape ()."""
    if numpy_of(type) is E4B15:
        return encode(np.array(value, np.float16))
    return np.array(value, numpy_of(type))


def first_number(array: Array, type: Type) -> bool | int | float:
    """The first element as a Python number. A pointer is its address."""
    element = element_of(type)
    if array.dtype == E4B15:
        array = decode(array)
    found = array.reshape(-1)[0]
    if isinstance(element, Pointer):
        return int(found)
    if element.is_bool():
        return bool(found)
    return float(found) if element.is_floating() else int(found)


def with_numbers(op: Op) -> Callable[..., Any]:
    """The op's `evaluate`, adapted to arrays of `E4B15`: they are converted to fp32 and back."""
    if op.takes_bits or not any(numpy_of(v.type) is E4B15 for v in (*op.operands, *op.results)):
        return op.evaluate

    def evaluate(*operands: Array) -> Any:
        wide = [decode(a).astype(np.float32) if a.dtype == E4B15 else a for a in operands]
        found = op.evaluate(*wide)
        several = found if isinstance(found, tuple) else (found,)
        # The round trip through fp32 preserves the bits of elements that the op only moves.
        results = tuple(
            encode(array) if numpy_of(v.type) is E4B15 and array.dtype != E4B15 else array
            for v, array in zip(op.results, map(np.asarray, several), strict=True)
        )
        return results if isinstance(found, tuple) else results[0]

    return evaluate

"""Elements as NumPy holds them, and the type for which NumPy has none: fp8e4b15.

NumPy and ml_dtypes have every other element type. An array of fp8e4b15 has elements of one byte,
the bits, under a type of its own (`E4B15`) on which NumPy computes nothing: so a forgotten
conversion is an error and never a wrong number. `with_numbers` makes the meaning of an op, which is
written for numbers, one for such arrays.

fp8e4b15 has 4 bits of exponent with bias 15 and 3 of mantissa; it has neither infinities nor NaN,
so that 0x7F is its largest number, 1.875. A number comes into it by way of fp16: truncated to fp16
first, then rounded. What is too large becomes the largest number, and NaN the positive one.
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
_DROPPED = 7  # bits of an fp16's mantissa that fp8e4b15 has not


def decode(array: Array) -> Array:
    """fp8e4b15 as fp16, exactly: the exponents of the two have the same bias."""
    bits = array.view(np.uint8).astype(np.uint16)
    return ((bits & 0x80) << 8 | (bits & 0x7F) << _DROPPED).view(np.float16)


def encode(numbers: Array, *, toward_zero: bool = False) -> Array:
    """Floats as fp8e4b15. They must have been truncated to fp16, in whatever type they are now."""
    bits = np.atleast_1d(numbers.astype(np.float16)).view(np.uint16)
    magnitude = np.minimum(bits & 0x7FFF, _LARGEST_FP16)
    if not toward_zero:
        magnitude = magnitude + (1 << (_DROPPED - 1)) - 1 + (magnitude >> _DROPPED & 1)
    packed = magnitude >> _DROPPED | bits >> 8 & 0x80
    packed = np.where(bits & 0x7FFF > 0x7C00, 0x7F, packed)
    return packed.astype(np.uint8).view(E4B15).reshape(numbers.shape)


def array_of(value: Any, type: Type) -> Array:
    """A number that the element type holds exactly, as an array of shape ()."""
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
    """The op's `evaluate`, for operands as arrays hold them."""
    if op.takes_bits or not any(numpy_of(v.type) is E4B15 for v in (*op.operands, *op.results)):
        return op.evaluate

    def evaluate(*operands: Array) -> Any:
        wide = [decode(a).astype(np.float32) if a.dtype == E4B15 else a for a in operands]
        found = op.evaluate(*wide)
        several = found if isinstance(found, tuple) else (found,)
        # what an op only moves comes back as fp32, and goes back to the same bits
        results = tuple(
            encode(array) if numpy_of(v.type) is E4B15 and array.dtype != E4B15 else array
            for v, array in zip(op.results, map(np.asarray, several), strict=True)
        )
        return results if isinstance(found, tuple) else results[0]

    return evaluate

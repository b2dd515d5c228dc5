"""NumPy helpers for the semantics of ops: arithmetic, integer division, conversions, fma."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.lazy_import import lazy_import
from tilewright.ir.numbers import encode
from tilewright.ir.types import FP8E4B8, FP8E4B15, FP8E5B16, FP16, FP32, FP64, DType

if TYPE_CHECKING:
    import fractions
else:
    fractions = lazy_import("fractions")


Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]


def arithmetic(
    function: Callable[[Array, Array], Array], lhs: Array, rhs: Array, element: DType
) -> Array:
    """Integer arithmetic that wraps, or float arithmetic that rounds. fp8 is computed in fp32 and
    converted back, which saturates."""
    if element.is_fp8():
        wide = function(lhs.astype(np.float32), rhs.astype(np.float32))
        return float_to_float(wide, element, "rtne")
    return function(lhs, rhs)


def unwrapped(function: np.ufunc, lhs: Array, rhs: Array, element: DType) -> Array | None:
    """The result without wrap-around, for signed integers of fewer than 64 bits; None for others.

    Unsigned overflow is not an error: kernels use unsigned types where wrap-around is intended, as
    in hash functions.
    """
    if not element.is_int_signed() or lhs.dtype.itemsize >= 8:
        return None
    return function(lhs.astype(np.int64), rhs.astype(np.int64))


def shift_count(rhs: Array, bits: int) -> tuple[Array, Array]:
    """The shift count, 0 where it is out of range, and the mask of lanes where it is. The count is
    unsigned, regardless of its type."""
    count = rhs.view(f"u{rhs.dtype.itemsize}") if rhs.dtype.kind == "i" else rhs
    too_large = count >= bits
    return np.where(too_large, 0, count).astype(rhs.dtype), too_large


def extremum(a: Array, b: Array, better: np.ufunc, propagate_nan: bool) -> Array:
    """The operand that is `better` (`np.less` or `np.greater`), with -0.0 less than 0.0; of a
    number and a NaN the number, or NaN with `propagate_nan`."""
    if a.dtype.kind in "iu":
        return np.where(better(a, b), a, b)
    # True is greater than False, as 0.0 is than -0.0.
    tie = better(~np.signbit(a), ~np.signbit(b))
    pick_a = better(a, b) | ((a == b) & tie)
    picked = np.where(pick_a, a, b)
    a_nan, b_nan = a != a, b != b
    if propagate_nan:
        return np.where(a_nan, a, np.where(b_nan, b, picked))
    return np.where(b_nan, a, np.where(a_nan, b, picked))


def high_product(a: Array, b: Array) -> Array:
    """The high half of the product of two uint64."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> shift, b & low, b >> shift
    middle = a1 * b0 + ((a0 * b0) >> shift)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> shift) + (other >> shift)


def truncating_divide(a: Array, b: Array) -> Array:
    """Integer quotient rounded toward zero. x / 0 is 0; MIN / -1 wraps to MIN."""
    divisor = np.where(b == 0, np.ones_like(b), b)
    quotient = a // divisor
    if a.dtype.kind == "i":
        inexact = (a - quotient * divisor) != 0
        quotient = quotient + (inexact & ((a < 0) != (divisor < 0))).astype(a.dtype)
    return np.where(b == 0, np.zeros_like(a), quotient).astype(a.dtype)


def truncating_remainder(a: Array, b: Array) -> Array:
    """a - trunc(a / b) * b, with the sign of `a`. x % 0 is 0."""
    quotient = truncating_divide(a, b)
    return np.where(b == 0, np.zeros_like(a), a - quotient * b).astype(a.dtype)


def float_to_int(x: Array, to: DType) -> Array:
    """Truncate toward zero and saturate to the range of `to`; NaN becomes 0."""
    wide = np.trunc(x.astype(np.float64))
    low, high = to.get_int_min_value(), to.get_int_max_value()
    clipped = np.clip(wide, float(low), float(high))
    # float(high) may round up to a value beyond `high`, so lanes at or above it are set separately.
    safe = np.where(np.isnan(wide) | (wide >= float(high)), 0.0, clipped).astype(to.numpy)
    return np.where(wide >= float(high), np.array(high, to.numpy), safe).astype(to.numpy)


def _next_toward_zero(rounded: Array, exact: Array, to: DType) -> Array:
    """The rounded values, decremented in magnitude where rounding increased it."""
    bits = rounded.view(np.dtype(f"u{rounded.dtype.itemsize}")).copy()
    over = np.abs(rounded.astype(np.float64)) > np.abs(exact.astype(np.float64))
    bits[over] -= 1
    if to in (FP8E4B8, FP8E5B16):  # no -0: its bit pattern is NaN
        bits[over & (bits == 0x80)] = 0
    return bits.view(rounded.dtype)


def float_to_float(x: Array, to: DType, rounding: str) -> Array:
    """Convert between float types. `rounding` is "rtne" or "rtz".

    From fp64 to a 16- or 8-bit type the value is rounded once, not first to fp32. Values beyond the
    range of an fp8 type, including infinities, become its largest finite value.
    """
    if x.dtype == to.numpy:
        return x
    if to == FP8E4B15:
        return encode(float_to_float(x, FP16, "rtz"), toward_zero=rounding == "rtz")
    source = np.atleast_1d(x)
    if to.is_fp8():
        limit = float(np.array(_largest_finite(to)).astype(np.float64))
        wide = source.astype(np.float64)
        source = np.clip(wide, -limit, limit)
        rounded = _round_once(source, to)
    else:
        rounded = _round_once(source, to)
    if rounding == "rtz":
        rounded = _next_toward_zero(rounded, source, to)
    return rounded.reshape(x.shape)


def _round_once(x: Array, to: DType) -> Array:
    """Convert to `to`, to nearest even, without double rounding."""
    if to in (FP16, FP32, FP64) or x.dtype != np.float64:
        return x.astype(to.numpy)
    # ml_dtypes converts fp64 through fp32: round to odd, so that the second rounding is correct.
    narrow = x.astype(np.float32)
    back = narrow.astype(np.float64)
    bits = narrow.view(np.uint32).copy()
    inexact = np.isfinite(back) & (back != x)
    toward_zero = inexact & (np.abs(back) > np.abs(x))
    bits[toward_zero] -= 1
    bits[inexact] |= 1
    return bits.view(np.float32).astype(to.numpy)


def fused_multiply_add(x: Array, y: Array, z: Array, to: DType) -> Array:
    """x * y + z for floats of type `to`, rounded once.

    For types narrower than fp64, the product is exact in fp64, and the sum is rounded to odd: an
    inexact sum is rounded to the neighbour whose last bit is 1. Rounding that to a type with at
    least two bits less is the same as rounding the exact sum once (Boldo and Melquiond, "Emulation
    of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
    """
    with np.errstate(all="ignore"):
        if to == FP64:
            return _fused_in_fp64(x, y, z)
        # Scalars and arrays may be mixed: the interpreter runs scalar regions on whole arrays.
        shape = np.broadcast_shapes(x.shape, y.shape, z.shape)
        product = np.atleast_1d(x.astype(np.float64) * y.astype(np.float64))
        odd = _sum_to_odd(*_two_sum(product, z.astype(np.float64)))
        return float_to_float(odd, to, "rtne").reshape(shape)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its exact error (Knuth's TwoSum)."""
    total = np.asarray(a + b)
    shifted = total - a
    return total, (a - (total - shifted)) + (b - shifted)


def _sum_to_odd(total: Array, error: Array) -> Array:
    """The sum rounded to odd, from the sum rounded to nearest and its error."""
    bits = total.view(np.uint64)
    inexact = np.isfinite(total) & (error != 0)
    above = np.signbit(error) != np.signbit(total)
    odd = np.where(inexact, (bits - above.astype(np.uint64)) | np.uint64(1), bits)
    return odd.view(np.float64)


def _exact_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b and its exact rounding error (Dekker's product with Veltkamp's splitting), unless an
    intermediate result overflows or underflows."""
    split = 2.0**27 + 1
    a_high = split * a - (split * a - a)
    b_high = split * b - (split * b - b)
    a_low, b_low = a - a_high, b - b_high
    product = np.asarray(a * b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def _fused_in_fp64(x: Array, y: Array, z: Array) -> Array:
    """Boldo and Melquiond's fma from error-free products and sums. Lanes where those might overflow
    or underflow are computed with rational numbers."""
    shape = np.broadcast_shapes(x.shape, y.shape, z.shape)
    x, y, z = np.broadcast_arrays(np.atleast_1d(x), np.atleast_1d(y), np.atleast_1d(z))
    product, product_error = _exact_product(x, y)
    low, lowest = _two_sum(z, product_error)
    high, middle = _two_sum(product, low)
    result = high + _sum_to_odd(*_two_sum(lowest, middle))
    safe = (np.abs(z) < 2.0**900) & (np.abs(x) < 2.0**900) & (np.abs(y) < 2.0**900)
    safe &= (np.abs(product) < 2.0**900) & (np.abs(product) > 2.0**-900)
    safe &= (np.abs(result) > 2.0**-900) & (np.abs(result) < 2.0**900)
    underflowed = (product == 0) & (x != 0) & (y != 0)  # z == 0 does not affect the sign
    result = np.where(z == 0, np.where(underflowed, product, product + z), result)
    rest = np.nonzero(~safe & (z != 0))
    if len(rest[0]):
        result[rest] = np.frompyfunc(_exact_fma, 3, 1)(x[rest], y[rest], z[rest])
    return result.reshape(shape)


def _exact_fma(x: float, y: float, z: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y)) or x == 0 or y == 0:
        return x * y + z
    if not math.isfinite(z):
        return z
    exact = fractions.Fraction(x) * fractions.Fraction(y) + fractions.Fraction(z)
    if exact == 0:
        return x * y + z  # determines the sign of the zero
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _largest_finite(t: DType) -> Any:
    limits = {"fp8e5": 57344.0, "fp8e4nv": 448.0, "fp8e4b8": 240.0, "fp8e5b16": 57344.0}
    return limits[t.short]

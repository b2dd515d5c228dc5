"""Conversions between numeric types, with the results of `arith.cast`: one rounding, saturation of
integers and of 8-bit floats, 0 for a NaN that becomes an integer."""

from __future__ import annotations

from tilewright.ir.types import (
    FP8E4B8,
    FP8E4B15,
    FP8E5,
    FP8E5B16,
    FP16,
    FP32,
    FP64,
    I32,
    U8,
    U16,
    DType,
    Scalar,
    dtype_of,
    element_of,
    int_type,
    with_element,
)
from tilewright_triton.ttir.numbers import (
    binary,
    bitcast,
    both,
    compare,
    encoded,
    retyped,
    select,
    widened,
)
from tilewright_triton.ttir.writer import Ref, Writer

LARGEST = {"fp8e5": 57344.0, "fp8e4nv": 448.0, "fp8e4b8": 240.0, "fp8e5b16": 57344.0}
"""The largest finite values of the 8-bit floats."""

WITHOUT_MINUS_ZERO = (FP8E4B8, FP8E5B16)
"""Floats for which the bits of -0 are those of the only NaN."""


def converted(w: Writer, x: Ref, to: Scalar, rounding: str = "rtne") -> Ref:
    """A number in another type; a pointer stays as it is."""
    source = element_of(x.type)
    if source == to:
        return x
    assert isinstance(source, DType)
    assert isinstance(to, DType)
    if to.is_bool():
        return _is_not_zero(w, x)
    if source.is_int():
        return _from_int(w, x, to)
    return _float_to_float(w, x, to, rounding) if to.is_floating() else _float_to_int(w, x, to)


def _is_not_zero(w: Writer, x: Ref) -> Ref:
    x = widened(w, x) if dtype_of(x.type).is_fp8() else x
    zero = 0.0 if dtype_of(x.type).is_floating() else 0
    return compare(w, "ne", x, w.constant(zero, x.type))


# -- from integers --------------------------------------------------------------------------------


def _from_int(w: Writer, x: Ref, to: DType) -> Ref:
    source, result = dtype_of(x.type), with_element(x.type, to)
    if to.is_floating():
        return _int_to_float(w, x, to)
    before, after = source.primitive_bitwidth, to.primitive_bitwidth
    if before == after:
        return retyped(x, to)
    if before > after:
        return w.cast("arith.trunci", x, result)
    return w.cast("arith.extsi" if source.is_int_signed() else "arith.extui", x, result)


def _int_to_float(w: Writer, x: Ref, to: DType) -> Ref:
    """To a float of 16 bits or fewer through one that represents the integer exactly, so that there
    is one rounding. Integers that fp32 rounds are beyond the range of 8-bit floats."""
    source, bits = dtype_of(x.type), to.primitive_bitwidth
    name = "arith.sitofp" if source.is_int_signed() else "arith.uitofp"
    if bits >= 32:
        return w.cast(name, x, with_element(x.type, to))
    wide = FP32 if bits == 8 or source.primitive_bitwidth <= 16 else FP64
    return _float_to_float(w, w.cast(name, x, with_element(x.type, wide)), to, "rtne")


# -- from floats ----------------------------------------------------------------------------------


def _float_to_int(w: Writer, x: Ref, to: DType) -> Ref:
    """Integers of fewer than 32 bits through one of 32 bits, whose conversion is an instruction on
    most machines."""
    x = widened(w, x)
    bits, signed = max(32, to.primitive_bitwidth), to.is_int_signed()
    middle = int_type(bits, signed)
    low, high = to.get_int_min_value(), to.get_int_max_value()
    found = w.cast("arith.fptosi" if signed else "arith.fptoui", x, with_element(x.type, middle))
    # Both bounds are powers of two, which every float type has exactly; the first value above the
    # range is `high` + 1.
    above = compare(w, "ge", x, w.constant(float(high + 1), x.type))
    below = compare(w, "le", x, w.constant(float(low), x.type))
    found = select(w, above, w.constant(high, found.type), found)
    found = select(w, below, w.constant(low, found.type), found)
    nan = compare(w, "ne", x, x)
    return _from_int(w, select(w, nan, w.constant(0, found.type), found), to)


def _float_to_float(w: Writer, x: Ref, to: DType, rounding: str) -> Ref:
    source = dtype_of(x.type)
    if source == to:
        return x
    if to.is_fp8():
        return _to_fp8(w, x, to, rounding)
    x = widened(w, x) if source.primitive_bitwidth <= 16 else x
    source, result = dtype_of(x.type), with_element(x.type, to)
    if source == to:
        return x
    if to.primitive_bitwidth > source.primitive_bitwidth:
        return w.cast("arith.extf", x, result)
    if rounding == "rtz" and source == FP32:
        return w.cast("tt.fp_to_fp", x, result, arrow="->", words=", rounding = rtz")
    rounded = w.cast("arith.truncf", x, result)
    return _next_toward_zero(w, x, rounded) if rounding == "rtz" else rounded


def _to_fp8(w: Writer, x: Ref, to: DType, rounding: str) -> Ref:
    if to == FP8E4B15:
        half = _float_to_float(w, x, FP16, "rtz")
        return encoded(w, half, toward_zero=rounding == "rtz")
    x = _rounded_to_odd(w, x) if dtype_of(x.type) == FP64 else widened(w, x)
    limit = LARGEST[to.short]
    x = binary(w, "arith.minimumf", x, w.constant(limit, x.type))
    x = binary(w, "arith.maximumf", x, w.constant(-limit, x.type))
    result = with_element(x.type, to)
    rounded = w.cast("tt.fp_to_fp", x, result, arrow="->", words=", rounding = rtne")
    return _next_toward_zero(w, x, rounded) if rounding == "rtz" else rounded


def _next_toward_zero(w: Writer, exact: Ref, rounded: Ref) -> Ref:
    """A rounded value, the one before it in magnitude where rounding increased that."""
    element = dtype_of(rounded.type)
    bits = bitcast(w, rounded, int_type(element.primitive_bitwidth, False))
    back = converted(w, rounded, dtype_of(exact.type))
    increased = compare(w, "gt", w.op("math.absf", [back]), w.op("math.absf", [exact]))
    less = binary(w, "arith.subi", bits, w.constant(1, bits.type))
    if element in WITHOUT_MINUS_ZERO:
        nan = compare(w, "eq", less, w.constant(0x80, bits.type))
        less = select(w, nan, w.constant(0, bits.type), less)
    return bitcast(w, select(w, increased, less, bits), element)


def narrowed(w: Writer, x: Ref, to: Scalar) -> Ref:
    """A float that has a value of an 8-bit type, in that: infinities too, which `converted`
    saturates. fp8e5 has the upper bits of fp16."""
    if to != FP8E5:
        return converted(w, x, to)
    bits = bitcast(w, converted(w, x, FP16), U16)
    upper = binary(w, "arith.shrui", bits, w.constant(8, bits.type))
    return bitcast(w, w.cast("arith.trunci", upper, with_element(x.type, U8)), FP8E5)


def _rounded_to_odd(w: Writer, x: Ref) -> Ref:
    """fp64 in fp32, inexact values to the neighbour whose last bit is 1, so that a second rounding
    is correct."""
    narrow = w.cast("arith.truncf", x, with_element(x.type, FP32))
    back = w.cast("arith.extf", narrow, x.type)
    bits = bitcast(w, narrow, I32)
    one = w.constant(1, bits.type)
    magnitude, exact = (w.op("math.absf", [v]) for v in (back, x))
    beyond = compare(w, "gt", magnitude, exact)
    # Rounded away from zero, also to infinity: the neighbour below has the magnitude less 1.
    bits = select(w, beyond, binary(w, "arith.subi", bits, one), bits)
    inexact = both(w, compare(w, "ne", back, x), compare(w, "eq", x, x))
    bits = select(w, inexact, binary(w, "arith.ori", bits, one), bits)
    return bitcast(w, bits, FP32)

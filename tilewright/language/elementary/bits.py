"""Functions on the bit representation of numbers. All of them are exact."""

from __future__ import annotations

from typing import Any

from tilewright.ir.types import FP32, FP64, I32, I64, U32, U64, DType
from tilewright.language.elementary import number
from tilewright.language.elementary.number import (
    Number,
    apply,
    function,
    maximum,
    minimum,
    select,
    where,
)
from tilewright.ops import arith, math

INT_MAX, INT_MIN = 2**31 - 1, -(2**31)

# -- parts of a float ------------------------------------------------------------------------------


def mantissa_bits(x: Number) -> int:
    """The number of explicit mantissa bits of x's type: 23 or 52."""
    return x.element.fp_mantissa_width


def bias(x: Number) -> int:
    """The exponent bias of x's type: 127 or 1023."""
    return x.element.exponent_bias


def power_of_two(exponent: Number, element: DType) -> Number:
    """2**exponent, for exponents of normal numbers, integers of the float's width."""
    shift = element.fp_mantissa_width
    return ((exponent + element.exponent_bias) << shift).bits(element)


def decompose(x: Number) -> tuple[Number, Number]:
    """(m, e) with |x| = m * 2**e and 1 <= m < 2, for finite nonzero x. e is an integer of x's
    width.

    For zeros, infinities and NaN the result is unspecified.
    """
    width, magnitude = mantissa_bits(x), abs(x)
    subnormal = magnitude < 2.0 ** (1 - bias(x))
    bits = where(subnormal, magnitude * 2.0**width, magnitude).bits()
    offset = where(subnormal, bits.constant(bias(x) + width), bias(x))
    mantissa = (bits & ((1 << width) - 1)) | (bias(x) << width)
    return mantissa.bits(x.element), (bits >> width) - offset


def scale(x: Number, exponent: Number) -> Number:
    """x * 2**exponent, rounded once; the exponent is an integer of x's width.

    2**exponent may not be a normal number, so up to two scaling steps precede. A step down is small
    enough that its result is subnormal only if the final result underflows to zero.
    """
    top, down = bias(x), bias(x) - mantissa_bits(x) - 2
    limit = 2 * top + 2 * mantissa_bits(x)
    e = minimum(maximum(exponent, -limit), limit)
    for _ in range(2):
        large, small = e > top, e < 1 - top
        x = x * select(large, x.constant(2.0**top), small, 2.0**-down, 1.0)
        e = e + select(large, e.constant(-top), small, down, 0)
    return x * power_of_two(e, x.element)


def is_finite(x: Number) -> Number:
    """Whether x is neither infinite nor NaN, as a bool."""
    return abs(x) < float("inf")


def neighbour(x: Number, up: bool) -> Number:
    """The next larger (or smaller) number, for finite x, and for an infinity toward zero."""
    bits = x.bits()
    away = (x > 0.0) if up else (x < 0.0)
    stepped = bits + where(away, bits.constant(1), -1)
    smallest = 1 if up else (-1 << (x.element.primitive_bitwidth - 1)) + 1
    return where(x == 0.0, bits.constant(smallest), stepped).bits(x.element)


# -- signs and neighbours --------------------------------------------------------------------------


@function("xx->x")
def copysign(x: Number, y: Number) -> Number:
    """The magnitude of x with the sign of y."""
    return number.copysign(x, y)


@function("xx->x")
def nextafter(x: Number, y: Number) -> Number:
    """The number next to x in the direction of y; y itself if they are equal."""
    stepped = where(x < y, neighbour(x, True), neighbour(x, False))
    return select((x != x) | (y != y), x + y, x == y, y, stepped)


@function("xx->x")
def fdim(x: Number, y: Number) -> Number:
    """The positive difference: x - y if x > y, else 0."""
    return where(x <= y, x.constant(0.0), x - y)


@function("x->i")
def signbit(x: Number) -> Number:
    """Nonzero where the sign bit is set."""
    return (x.bits() < 0).to(I32)


@function("x->b")
def isnan(x: Number) -> Number:
    """Whether x is not a number."""
    return x != x


@function("x->b")
def isinf(x: Number) -> Number:
    """Whether x is infinite."""
    return abs(x) == float("inf")


@function("f->b")
def finitef(x: Number) -> Number:
    """Whether an fp32 is neither infinite nor NaN."""
    return is_finite(x)


@function("d->b")
def isfinited(x: Number) -> Number:
    """Whether an fp64 is neither infinite nor NaN."""
    return is_finite(x)


@function("f->f")
def saturatef(x: Number) -> Number:
    """x clamped to [0, 1]; 0 for NaN."""
    return minimum(maximum(x, 0.0), 1.0)


# -- exponents -------------------------------------------------------------------------------------


@function("xi->x")
def ldexp(x: Number, exponent: Number) -> Number:
    """x * 2**exponent, rounded once."""
    return scale(x, exponent.to(I64 if x.wide else I32))


@function("xi->x")
def scalbn(x: Number, exponent: Number) -> Number:
    """x * 2**exponent, rounded once."""
    return scale(x, exponent.to(I64 if x.wide else I32))


@function("x->i")
def ilogb(x: Number) -> Number:
    """The exponent of x; -2**31 for 0 and NaN, 2**31 - 1 for infinities."""
    exponent = decompose(x)[1].to(I32)
    nothing = (x == 0.0) | (x != x)
    return select(nothing, exponent.constant(INT_MIN), is_finite(x), exponent, INT_MAX)


@function("x->x")
def logb(x: Number) -> Number:
    """The exponent of x; -inf for 0, inf for infinities."""
    exponent = decompose(x)[1].to(x.element)
    return select(x == 0.0, x.constant(float("-inf")), is_finite(x), exponent, x * x)


# -- rounding to integers --------------------------------------------------------------------------


def half_away(x: Number) -> Number:
    """The nearest integer, ties away from 0. The addend is the largest number below 1/2, so that
    the sum does not round up to the next integer."""
    below_half = x.constant(0.5 - 2.0 ** -(mantissa_bits(x) + 2))
    return apply(math.Trunc, x + number.copysign(below_half, x))


@function("x->x")
def round(x: Number) -> Number:
    """The nearest integer, ties away from 0."""
    return half_away(x)


@function("x->x")
def nearbyint(x: Number) -> Number:
    """The nearest integer, ties to even."""
    return apply(math.Rint, x)


@function("x->l")
def llrint(x: Number) -> Number:
    """The nearest integer, ties to even, as int64; saturates, 0 for NaN."""
    return apply(math.Rint, x).to(I64)


@function("x->l")
def llround(x: Number) -> Number:
    """The nearest integer, ties away from 0, as int64; saturates, 0 for NaN."""
    return half_away(x).to(I64)


# -- remainders ------------------------------------------------------------------------------------


@function("xx->x")
def fmod(x: Number, y: Number) -> Number:
    """x - n*y with n = trunc(x/y): exact, with the sign of x."""
    return x % y


@function("xx->x")
def remainder(x: Number, y: Number) -> Number:
    """x - n*y for the integer n nearest to x/y, ties to even: exact.

    It is computed from the remainder r modulo 2y, which preserves the parity of n. The comparison
    2r > y is computed as r > y - r, because that difference is exact where it matters.
    """
    y = abs(y)
    largest_half = (2.0 - 2.0 ** -mantissa_bits(x)) * 2.0 ** (bias(x) - 1)
    magnitude = abs(x)
    r = where(y > largest_half, where(is_finite(x), magnitude, x * 0.0), magnitude % (y + y))
    reduced = r - y
    reduced = where(reduced >= y - reduced, reduced - y, reduced)
    r = where(r > y - r, reduced, r)
    sign = x.bits() & (-1 << (x.element.primitive_bitwidth - 1))
    r = (r.bits() ^ sign).bits(x.element)
    return where(y != y, y, r)


# -- integers --------------------------------------------------------------------------------------


def _unsigned(x: Number) -> Number:
    return x.bits(U64 if x.element.primitive_bitwidth == 64 else U32)


def _repeated(byte: int, x: Number) -> int:
    return byte * (0x0101010101010101 if x.element.primitive_bitwidth == 64 else 0x01010101)


def count_ones(x: Number) -> Number:
    """The number of ones of an unsigned integer. LLVM recognises this form as ctpop.

    H. Warren, "Hacker's Delight", section 5-1: sums of 2, of 4, of 8 bits, then of bytes.
    """
    x = x - ((x >> 1) & _repeated(0x55, x))
    x = (x & _repeated(0x33, x)) + ((x >> 2) & _repeated(0x33, x))
    x = (x + (x >> 4)) & _repeated(0x0F, x)
    return (x * _repeated(0x01, x)) >> (x.element.primitive_bitwidth - 8)


@function("x->i", over="il")
def popc(x: Number) -> Number:
    """The number of set bits."""
    return count_ones(_unsigned(x)).to(I32)


@function("x->i", over="il")
def clz(x: Number) -> Number:
    """The number of leading zeros; the bit width for 0."""
    bits = _unsigned(x)
    shift = 1
    while shift < x.element.primitive_bitwidth:
        bits = bits | (bits >> shift)
        shift *= 2
    return count_ones(~bits).to(I32)


@function("x->i", over="il")
def ffs(x: Number) -> Number:
    """The position of the lowest set bit, from 1; 0 for 0."""
    bits = _unsigned(x)
    below = bits ^ (bits - 1)  # ones up to the lowest set bit; all ones for 0
    return where(bits == 0, bits.constant(0), count_ones(below)).to(I32)


@function("x->x", over="il")
def brev(x: Number) -> Number:
    """The bits in reverse order."""
    bits, width = _unsigned(x), x.element.primitive_bitwidth
    shift = width // 2
    while shift:
        mask = sum(((1 << shift) - 1) << k for k in range(0, width, 2 * shift))
        bits = ((bits >> shift) & mask) | ((bits & mask) << shift)
        shift //= 2
    return bits.bits(x.element)


@function("iii->i")
def byte_perm(x: Number, y: Number, selector: Number) -> Number:
    """Four of the eight bytes of x (0 to 3) and y (4 to 7), selected by the low four hexadecimal
    digits of the selector."""
    both = _unsigned(x).to(U64) | (_unsigned(y).to(U64) << 32)
    picks = _unsigned(selector).to(U64)
    result = both.constant(0)
    for i in range(4):
        shift = ((picks >> (4 * i)) & 7) << 3
        result = result | (((both >> shift) & 0xFF) << (8 * i))
    return result.to(U32).bits(I32)


@function("xx->x", over="iulm")
def mulhi(x: Number, y: Number) -> Number:
    """The high half of the product."""
    high = x.emit(arith.MulHi(x.value, y.value))
    if not x.element.is_int_signed():
        return high
    sign = x.element.primitive_bitwidth - 1
    return high - ((x >> sign) & y) - ((y >> sign) & x)


@function("xx->x", over="iu")
def mul24(x: Number, y: Number) -> Number:
    """The low 32 bits of the product of the low 24 bits of the operands, sign-extended for signed
    types."""
    return ((x << 8) >> 8) * ((y << 8) >> 8)


@function("xx->x", over="iu")
def hadd(x: Number, y: Number) -> Number:
    """(x + y) / 2 rounded down, without overflow."""
    return (x & y) + ((x ^ y) >> 1)


@function("xx->x", over="iu")
def rhadd(x: Number, y: Number) -> Number:
    """(x + y + 1) / 2 rounded down, without overflow."""
    return (x | y) - ((x ^ y) >> 1)


@function("iiu->i", "uuu->u")
def sad(x: Number, y: Number, z: Number) -> Number:
    """abs(x - y) + z; the sum wraps."""
    return where(x > y, x - y, y - x) + z.bits(x.element)


@function("x->x", over="ilfd", name="abs")
def absolute(x: Number) -> Number:
    """The absolute value; the minimum integer wraps to itself."""
    return abs(x)


# -- bits as another type --------------------------------------------------------------------------


def _reinterpreted(name: str, signature: str, to: DType) -> Any:
    def formula(x: Number) -> Number:
        return x.bits(to)

    formula.__doc__ = f"The bits reinterpreted as {to}."
    formula.__module__ = __name__
    return function(signature, name=name)(formula)


int_as_float = _reinterpreted("int_as_float", "i->f", FP32)
uint_as_float = _reinterpreted("uint_as_float", "u->f", FP32)
float_as_int = _reinterpreted("float_as_int", "f->i", I32)
float_as_uint = _reinterpreted("float_as_uint", "f->i", I32)  # Triton declares int32
longlong_as_double = _reinterpreted("longlong_as_double", "l->d", FP64)
double_as_longlong = _reinterpreted("double_as_longlong", "d->l", I64)


@function("ii->d")
def hiloint2double(high: Number, low: Number) -> Number:
    """The fp64 with these upper and lower 32 bits."""
    return ((high.to(I64) << 32) | low.bits(U32).to(I64)).bits(FP64)


@function("d->i")
def double2hiint(x: Number) -> Number:
    """The upper 32 bits."""
    return (x.bits() >> 32).to(I32)


@function("d->i")
def double2loint(x: Number) -> Number:
    """The lower 32 bits."""
    return x.bits().to(I32)


@function("d->d")
def rcp64h(x: Number) -> Number:
    """1 / x with the lower 32 bits cleared."""
    return ((1.0 / x).bits() & (-1 << 32)).bits(FP64)

"""Reduction of large angles in fp64 without a C library: Payne and Hanek's, in integer arithmetic.

x is M * 2**E with an integer M of 53 bits. M * 2**E * 2/pi is needed modulo 4 only, so bits of 2/pi
whose product with M is a multiple of 4 are skipped, and the next 192 bits are sufficient: no fp64
is closer to a multiple of pi/2 than 2**-62, and the neglected bits contribute less than 2**-137.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

from tilewright.lowering.emit import F64, I1, I64, I128, Builder, V, const
from tilewright.lowering.math_common import HALF_PI_FMA, fabs, power_of_two

MANTISSA, BIAS = 52, 1023
LEADING_ZEROS = 64  # zero bits before the point of 2/pi, which the smallest exponents use
TABLE_WORDS = 20


@cache
def _two_over_pi() -> list[int]:
    """`LEADING_ZEROS` zero bits, then those of 2/pi after the point, in words of 64."""
    bits = 64 * TABLE_WORDS - LEADING_ZEROS
    extra = 32  # guard bits for the truncation errors of the series
    unit = 1 << (bits + extra)
    # Machin: pi = 16 atan(1/5) - 4 atan(1/239)
    pi = 16 * _arctangent(unit, 5) - 4 * _arctangent(unit, 239)
    number = 2 * unit * unit // pi >> extra
    return [number >> (64 * i) & (2**64 - 1) for i in reversed(range(TABLE_WORDS))]


def _arctangent(unit: int, inverse: int) -> int:
    """unit * atan(1 / inverse), by its power series."""
    power = total = unit // inverse
    k = 1
    while power:
        power //= -inverse * inverse
        k += 2
        total += power // k
    return total


def reduce_huge(b: Builder, x: V) -> tuple[V, V, V]:
    """(q, r, tail) for x = n*pi/2 + r + tail, |x| >= 2**19; q is an i64 with n modulo 4.

    r is NaN for infinities and NaN.
    """
    bits = b.bitcast(fabs(b, x), I64)
    exponent = b.lshr(bits, MANTISSA)
    significand = b.or_(b.and_(bits, (1 << MANTISSA) - 1), 1 << MANTISSA)
    # The first bit needed has the weight 2 * 2**-E, so that M times it has the weight 2 M.
    first = b.sub(exponent, BIAS + MANTISSA + 1 - (LEADING_ZEROS - 1))
    high, low, quadrant = _fraction(b, significand, _window(b, first))
    negative = b.icmp("slt", high, 0)  # a fraction of 1/2 or more: the next multiple is closer
    quadrant = b.add(quadrant, b.zext(negative, I64))
    r, tail = _times_half_pi(b, *_magnitude(b, high, low, negative))
    flip = b.xor(negative, b.fcmp("olt", x, 0.0))
    r, tail = (b.select(flip, b.fneg(v), v) for v in (r, tail))
    quadrant = b.select(b.fcmp("olt", x, 0.0), b.neg(quadrant), quadrant)
    finite = b.fcmp("olt", fabs(b, x), math.inf)
    return quadrant, b.select(finite, r, const(F64, math.nan)), tail


def _window(b: Builder, first: V) -> tuple[V, V, V]:
    """192 bits of the table, from bit `first` on, as three words, highest first."""
    table = b.module.global_constant("two_over_pi_f64", I64, _two_over_pi())
    word = b.gep(I64, table, b.lshr(first, 6))
    words = [b.load(I64, b.gep(I64, word, i)) for i in range(4)]
    shift = b.and_(first, 63)
    found = [
        b.intrinsic("llvm.fshl", I64, [left, right, shift], [I64])
        for left, right in pairwise(words)
    ]
    return found[0], found[1], found[2]


def _fraction(b: Builder, m: V, window: tuple[V, V, V]) -> tuple[V, V, V]:
    """The product of M and the window: two words after the binary point, and two bits before it."""
    wide = b.zext(m, I128)
    product = b.mul(wide, b.zext(window[2], I128))
    bottom = b.trunc(product, I64)
    product = b.add(b.mul(wide, b.zext(window[1], I128)), b.lshr(product, 64))
    middle = b.trunc(product, I64)
    top = b.add(b.mul(m, window[0]), b.trunc(b.lshr(product, 64), I64))
    two = const(I64, 2)
    high = b.intrinsic("llvm.fshl", I64, [top, middle, two], [I64])
    low = b.intrinsic("llvm.fshl", I64, [middle, bottom, two], [I64])
    return high, low, b.lshr(top, 62)


def _magnitude(b: Builder, high: V, low: V, negative: V) -> tuple[V, V, V]:
    """The absolute value of a signed fraction of 128 bits as (head + rest) * scale, with 53 bits in
    head and rest each."""
    ones = b.sext(negative, I64)
    low = b.sub(b.xor(low, ones), ones)
    carry = b.and_(negative, b.icmp("eq", low, 0))
    high = b.add(b.xor(high, ones), b.zext(carry, I64))
    zeros = b.intrinsic("llvm.ctlz", I64, [high, const(I1, 0)], [I64])
    high = b.intrinsic("llvm.fshl", I64, [high, low, zeros], [I64])
    low = b.shl(low, zeros)
    head = b.fmul(b.uitofp(b.lshr(high, 11), F64), 2.0**-53)
    rest = b.or_(b.shl(b.and_(high, (1 << 11) - 1), 42), b.lshr(low, 22))
    return head, b.fmul(b.uitofp(rest, F64), 2.0**-106), power_of_two(b, b.sub(BIAS, zeros))


def _times_half_pi(b: Builder, head: V, rest: V, scale: V) -> tuple[V, V]:
    """(head + rest) * scale * pi/2 as a sum of two, the second below half an ulp of the first."""
    product = b.fmul(head, HALF_PI_FMA[0])
    error = b.fma(head, HALF_PI_FMA[0], b.fneg(product))
    error = b.fma(rest, HALF_PI_FMA[0], b.fma(head, HALF_PI_FMA[1], error))
    r = b.fadd(product, error)
    tail = b.fadd(b.fsub(product, r), error)
    return b.fmul(r, scale), b.fmul(tail, scale)

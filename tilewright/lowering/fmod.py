"""fmod without a C library: exact, by products with approximate reciprocals.

For positive x and y and any integer q, x - q * y is the remainder if it is at least 0 and below y;
it is then representable, and a fused multiply-add computes it exactly. Rounding does not move other
differences into this range. With q the nearest
integer to x times an approximate reciprocal of y, or one less, it is in the range if the quotient
has fewer bits than the format, which is the usual case. Larger quotients take a loop.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.lowering.emit import Builder, V, const
from tilewright.lowering.math_common import (
    Format,
    copysign,
    fabs,
    format_of,
    if_any,
    int_bits,
    power_of_two,
)

Reciprocal = Callable[[Builder, V], V]

GUARD = 3
"""Bits by which quotients in the loop are shorter than the format."""


def correct_reciprocal(b: Builder, y: V) -> V:
    """1 / y, correctly rounded."""
    return b.fdiv(const(y.type, 1.0), y)


def fmod(b: Builder, x: V, y: V, reciprocal: Reciprocal = correct_reciprocal) -> V:
    """x - trunc(x / y) * y, exactly, with the sign of x, for fp32 or fp64.

    NaN if x is infinite or y is 0. `reciprocal` is within 2 ulp for positive normal numbers whose
    reciprocals are normal, and any number for others.
    """
    f = format_of(x)
    with b.flags(""):
        ax, ay = fabs(b, x), fabs(b, y)
        q = _nearest(b, f, ax, reciprocal(b, ay))
        below = b.fcmp("olt", _less(b, ax, q, ay), 0.0)
        rest = _less(b, ax, b.select(below, b.fsub(q, 1.0), q), ay)
        # As integers, so that negative numbers, infinity and NaN are not below y.
        proven = b.icmp("ult", int_bits(b, rest), int_bits(b, ay))
        usual = copysign(b, rest, x)
        unusual = b.not_(proven)
        return if_any(b, unusual, [usual], lambda: [_any_fmod(b, f, x, ax, ay, reciprocal)])[0]


def _any_fmod(b: Builder, f: Format, x: V, ax: V, ay: V, reciprocal: Reciprocal) -> V:
    """fmod for all operands: with |x| = m * 2**e and |y| = n * 2**least, the remainder of m by n is
    doubled e - least times modulo n, in each step as many times as the quotient is certain."""
    m, e = _significand(b, f, ax)
    n, least = _significand(b, f, ay)
    inverse = reciprocal(b, n)
    # The first quotient may have all bits of the format, and leave some n, which is then small.
    rest = _rest(b, f, _rest(b, f, m, n, inverse), n, inverse)
    rest = _doubled(b, f, rest, n, inverse, b.sub(e, least))
    rest = b.select(b.fcmp("olt", rest, 0.0), b.fadd(rest, n), rest)
    result = _scaled(b, f, rest, least)
    result = copysign(b, b.select(b.fcmp("olt", ax, ay), ax, result), x)
    infinity = const(f.float, float("inf"))
    valid = b.and_(b.fcmp("olt", ax, infinity), b.fcmp("ogt", ay, 0.0))
    return b.select(valid, result, const(f.float, float("nan")))


def _nearest(b: Builder, f: Format, x: V, inverse: V) -> V:
    """The integer nearest to x * inverse; any integer if that is large."""
    return b.fsub(b.fma(x, inverse, const(f.float, f.magic)), f.magic)


def _less(b: Builder, x: V, q: V, y: V) -> V:
    return b.fma(b.fneg(q), y, x)


def _rest(b: Builder, f: Format, x: V, y: V, inverse: V) -> V:
    """x - q * y for the integer q nearest to x * inverse."""
    return _less(b, x, _nearest(b, f, x, inverse), y)


def _significand(b: Builder, f: Format, magnitude: V) -> tuple[V, V]:
    """The significand, as a whole number, and the biased exponent of its last bit."""
    bits = int_bits(b, magnitude)
    exponent = b.lshr(bits, f.mantissa)
    fraction = b.and_(bits, (1 << f.mantissa) - 1)
    subnormal = b.icmp("eq", exponent, 0)
    significand = b.or_(fraction, b.select(subnormal, const(bits.type, 0), 1 << f.mantissa))
    one = const(bits.type, 1)
    return b.sitofp(significand, f.float), b.select(subnormal, one, exponent)


def _doubled(b: Builder, f: Format, rest: V, divisor: V, inverse: V, times: V) -> V:
    """rest * 2**times modulo the divisor, or that less the divisor; any number for negative
    `times`."""
    room = f.mantissa - GUARD
    steps = b.sdiv(b.add(times, room - 1), room)
    with b.loop(0, steps, carried=[rest, times], unroll="disable") as loop:
        current, left = loop.carried
        count = b.intrinsic("llvm.smin", left.type, [left, const(left.type, room)], [left.type])
        moved = b.fmul(current, power_of_two(b, b.add(count, f.bias)))
        loop.yield_([_rest(b, f, moved, divisor, inverse), b.sub(left, count)])
    return loop.results[0]


def _scaled(b: Builder, f: Format, whole: V, exponent: V) -> V:
    """The whole number times 2**(exponent - bias - mantissa), which is exact.

    The power is applied in two factors, as it may be subnormal itself.
    """
    shift = b.sub(exponent, f.bias + f.mantissa)
    half = b.ashr(shift, 1)
    first = power_of_two(b, b.add(half, f.bias))
    second = power_of_two(b, b.add(b.sub(shift, half), f.bias))
    return b.fmul(b.fmul(whole, first), second)

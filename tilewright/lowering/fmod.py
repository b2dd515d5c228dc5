"""fmod without a C library: exact, by long division of the significands as integers.

The loop has as many iterations as the difference of the exponents divided by the free bits of an
i64: at most 186 for fp64, 7 for fp32.
"""

from __future__ import annotations

from tilewright.lowering.emit import I64, Builder, V, const
from tilewright.lowering.math_common import (
    Format,
    copysign,
    fabs,
    format_of,
    int_bits,
    power_of_two,
)


def fmod(b: Builder, x: V, y: V) -> V:
    """x - trunc(x / y) * y, exactly, with the sign of x, for fp32 or fp64.

    NaN if x is infinite or y is 0. With x = m * 2**e and y = n * 2**f, the remainder of m by n is
    doubled e - f times modulo n, in each step as many times as fit in an i64.
    """
    f = format_of(x)
    with b.flags(""):
        m, e = _significand(b, f, x)
        n, least = _significand(b, f, y)
        divisor = b.select(b.icmp("eq", n, 0), const(I64, 1), n)
        distance = b.sub(e, least)
        rest = _doubled(b, f, b.urem(m, divisor), divisor, distance)
        result = _scaled(b, f, rest, least)
        ax, ay = fabs(b, x), fabs(b, y)
        result = copysign(b, b.select(b.fcmp("olt", ax, ay), ax, result), x)
        infinity = const(f.float, float("inf"))
        valid = b.and_(b.fcmp("olt", ax, infinity), b.fcmp("ogt", ay, 0.0))
        return b.select(valid, result, const(f.float, float("nan")))


def _significand(b: Builder, f: Format, x: V) -> tuple[V, V]:
    """The significand as an i64, and the biased exponent of its last bit, 1 for subnormals."""
    bits = int_bits(b, fabs(b, x))
    exponent = b.lshr(bits, f.mantissa)
    fraction = b.and_(bits, (1 << f.mantissa) - 1)
    subnormal = b.icmp("eq", exponent, 0)
    significand = b.or_(fraction, b.select(subnormal, const(bits.type, 0), 1 << f.mantissa))
    return b.zext(significand, I64), b.select(subnormal, const(bits.type, 1), exponent)


def _doubled(b: Builder, f: Format, rest: V, divisor: V, times: V) -> V:
    """rest * 2**times modulo the divisor; `rest` if `times` is negative."""
    room = 63 - f.mantissa
    steps = b.sdiv(b.add(times, room - 1), room)
    with b.loop(0, steps, 1, carried=[rest, times]) as loop:
        current, left = loop.carried
        count = b.intrinsic("llvm.smin", left.type, [left, const(left.type, room)], [left.type])
        moved = b.shl(current, b.zext(count, I64))
        loop.yield_([b.urem(moved, divisor), b.sub(left, count)])
    return loop.results[0]


def _scaled(b: Builder, f: Format, significand: V, exponent: V) -> V:
    """The significand times 2**(exponent - bias - mantissa), which is exact.

    The power is applied in two factors, as it may be subnormal itself.
    """
    whole = b.uitofp(significand, f.float)
    shift = b.sub(exponent, f.bias + f.mantissa)
    half = b.ashr(shift, 1)
    first = power_of_two(b, b.add(half, f.bias))
    second = power_of_two(b, b.add(b.sub(shift, half), f.bias))
    return b.fmul(b.fmul(whole, first), second)

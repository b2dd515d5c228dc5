"""Formulas for fp32 of functions that take several times as long in fp64.

They are within 4 ulp, erfc 7 (8 on NVIDIA GPUs), as `docs/accuracy.md` lists. All of them are
computed in fp32, and where that is not precise enough, as a sum of two numbers of which the second
is the rounding error of the first.
"""

from __future__ import annotations

from tilewright.ir.types import FP32
from tilewright.language.elementary.coefficients import (
    ASIN_FP32,
    ATAN_FP32,
    ERFC_FP32,
    LOG2_FP32,
    SINH_FP32,
)
from tilewright.language.elementary.number import (
    Number,
    apply,
    copysign,
    fma,
    maximum,
    minimum,
    polynomial,
    quotient,
    select,
    where,
)
from tilewright.ops import math

INF, NAN = float("inf"), float("nan")
PI, HALF_PI = (3.1415927410125732, -8.742277657347586e-08), (1.5707963705062866, -4.37113882867e-08)

# -- powers ----------------------------------------------------------------------------------------

SMALLEST_NORMAL = 2.0**-126
FRACTION = 1 << 23  # one more exponent, in the bits of a number
LOWEST, MIDDLE = 0.815, 1.22  # where an interval of significands begins, and where they are scaled
LOWEST_BITS = 0x3F50A3D7
SCALED = 0.75
SCALED_LOG2 = (0.4150390625, -1.5632211562e-06)  # log2(4/3); the first has few bits
TWO_LOG2E = (2.885390043258667, 3.8519258825e-08)
LARGEST_EXPONENT = 2.0**32  # as large as any: |log2(x)| is 2**-24 at least, or 0
OVERFLOWS = 252.0
ROUND_TO_EVEN = 1.5 * 2.0**23 + 127  # added to a number, the low bits are a biased exponent


def log2_parts(a: Number) -> tuple[Number, Number]:
    """log2(a) as a sum of two, with a relative error near 2**-31, for finite a > 0.

    With m near 1 and s = (m - 1) / (m + 1), log2(m) = 2 log2(e) (s + s**3/3 + ...). As |s| <= 0.102
    the terms behind the first need no error terms.
    """
    small = a < SMALLEST_NORMAL
    bits = where(small, (a * 2.0**24).bits() - 24 * FRACTION, a.bits())
    exponent = (bits - LOWEST_BITS) & -FRACTION
    m = (bits - exponent).bits(FP32)
    upper = m > MIDDLE
    f = fma(m, where(upper, m.constant(SCALED), 1.0), -1.0)  # exact
    e = fma(exponent.to(FP32), 1.0 / FRACTION, where(upper, m.constant(SCALED_LOG2[0]), 0.0))
    over = quotient(f.constant(1.0), f + 2.0)
    s = f * over
    s_low = fma(-s, f, fma(s, -2.0, f)) * over
    z = s * s
    head = s * TWO_LOG2E[0]
    low = fma(s, TWO_LOG2E[0], -head) + s * TWO_LOG2E[1]
    low = fma(s * z, polynomial(z, LOG2_FP32), fma(s_low, TWO_LOG2E[0], low))
    total = e + head
    low = low + ((e - total) + head)
    return total, low + where(upper, m.constant(SCALED_LOG2[1]), 0.0)


def exp2_of_sum(x: Number, rest: Number) -> Number:
    """2**(x + rest), also if it is subnormal or overflows; x is not NaN, and a rest is ignored if x
    is large."""
    inside = abs(x) < OVERFLOWS
    x = minimum(maximum(x, -OVERFLOWS), OVERFLOWS)
    rounded = fma(x, 0.5, ROUND_TO_EVEN)
    n = rounded - ROUND_TO_EVEN
    power = apply(math.Exp2, fma(n, -2.0, x) + where(inside, rest, 0.0))
    half = (rounded.bits() << 23).bits(FP32)  # 2**n; its square may be no normal number
    return power * half * half


def _power(x: Number, y: Number, y_low: Number | None) -> Number:
    """|x| ** (y + y_low), also for operands that are infinite or 0."""
    magnitude = abs(x)
    extreme = (magnitude == 0.0) | (magnitude == INF)
    high, low = log2_parts(magnitude)
    y_inside = minimum(maximum(y, -LARGEST_EXPONENT), LARGEST_EXPONENT)
    product = y_inside * high
    rest = fma(y_inside, low, fma(y_inside, high, -product))
    if y_low is not None:
        rest = fma(y_low, high, rest)
    grows = (magnitude == INF) ^ (y < 0.0)
    limit = where(grows, x.constant(INF), 0.0)
    return where(extreme, limit, exp2_of_sum(product, rest))


def power(x: Number, y: Number) -> Number:
    """x ** y, with the special cases of C's Annex F."""
    half = y * 0.5
    whole = apply(math.Trunc, y) == y
    odd = whole & (apply(math.Trunc, half) != half)
    result = _with_sign(x, odd, whole, _power(x, y, None))
    one = (x == 1.0) | (y == 0.0)
    return select(one, x.constant(1.0), (x != x) | (y != y), NAN, result)


def power_of_integer(x: Number, n: Number) -> Number:
    """x ** n for an int32."""
    first, last = (n >> 12 << 12).to(FP32), (n & 0xFFF).to(FP32)  # both are exact
    y = first + last
    odd = (n & 1) != 0
    result = _with_sign(x, odd, None, _power(x, y, (first - y) + last))
    return select(n == 0, x.constant(1.0), x != x, NAN, result)


def _with_sign(x: Number, odd: Number, whole: Number | None, result: Number) -> Number:
    """The power of a magnitude as that of x."""
    signed = where(odd, copysign(result, x), result)
    if whole is None:
        return signed
    return where((x < 0.0) & (x > -INF) & ~whole, NAN, signed)


LOG2_10 = (3.321928024291992, 7.058034e-08)


def exp10(x: Number) -> Number:
    """10 to the power of x."""
    product = x * LOG2_10[0]
    rest = fma(x, LOG2_10[0], -product) + x * LOG2_10[1]
    return where(x != x, x, exp2_of_sum(product, rest))


# -- lengths ---------------------------------------------------------------------------------------


def hypot(x: Number, y: Number) -> Number:
    """sqrt(x^2 + y^2), without intermediate overflow; of an infinity and a NaN it is infinite."""
    large, small = maximum(abs(x), abs(y)), minimum(abs(x), abs(y))
    ratio = quotient(small, large)
    result = large * apply(math.Sqrt, fma(ratio, ratio, 1.0))
    unordered = (x != x) | (y != y)
    return select(large == INF, large, unordered, NAN, large == 0.0, large, result)


# -- hyperbolic functions --------------------------------------------------------------------------

SHORT_LN2 = 0.693359375  # x - SHORT_LN2 is exact where its rounding error would matter
EXP_OF_REST = 0.00021221695647  # exp(SHORT_LN2 - ln(2)) - 1
LN2 = 0.6931471805599453
LARGE_ROOT = 2.0**28  # above, x^2 + 1 is x^2


def _half_exp(a: Number) -> Number:
    """exp(a) / 2."""
    e = apply(math.Exp, a - SHORT_LN2)
    return fma(e, EXP_OF_REST, e)


def sinh(x: Number) -> Number:
    """Hyperbolic sine."""
    a = abs(x)
    half = _half_exp(a)
    z = a * a
    near = fma(a * z, polynomial(z, SINH_FP32), a)
    return copysign(where(a > 1.0, half - quotient(a.constant(0.25), half), near), x)


def cosh(x: Number) -> Number:
    """Hyperbolic cosine."""
    half = _half_exp(abs(x))
    return half + quotient(x.constant(0.25), half)


def asinh(x: Number) -> Number:
    """Inverse hyperbolic sine: log1p(x + x^2 / (1 + sqrt(1 + x^2)))."""
    a = abs(x)
    square = a * a
    near = apply(math.Log1p, a + quotient(square, apply(math.Sqrt, square + 1.0) + 1.0))
    far = apply(math.Log, a) + LN2
    return copysign(where(a > LARGE_ROOT, far, near), x)


def acosh(x: Number) -> Number:
    """Inverse hyperbolic cosine: with t = x - 1, log1p(t + sqrt(2t + t^2))."""
    t = x - 1.0
    near = apply(math.Log1p, t + apply(math.Sqrt, fma(t, t, t + t)))
    far = apply(math.Log, x) + LN2
    return select(x > LARGE_ROOT, far, x < 1.0, NAN, near)


def atanh(x: Number) -> Number:
    """Inverse hyperbolic tangent: log1p(2x / (1 - x)) / 2."""
    a = abs(x)
    return copysign(apply(math.Log1p, quotient(a + a, 1.0 - a)) * 0.5, x)


# -- trigonometric functions -----------------------------------------------------------------------


def tan(x: Number) -> Number:
    """Tangent of an angle in radians."""
    return apply(math.Tan, x)


def _arcsine(a: Number) -> tuple[Number, Number]:
    """(small, asin(s)): s is a below 1/2 (`small`), else sqrt((1 - a) / 2), with asin(a) =
    pi/2 - 2 asin(s)."""
    small = a < 0.5
    z = where(small, a * a, fma(a, -0.5, 0.5))
    s = where(small, a, apply(math.Sqrt, z))
    return small, fma(s * z, polynomial(z, ASIN_FP32), s)


def asin(x: Number) -> Number:
    """Arcsine; NaN for |x| > 1."""
    small, angle = _arcsine(abs(x))
    large = fma(angle, -2.0, HALF_PI[1]) + HALF_PI[0]
    return copysign(where(small, angle, large), x)


def acos(x: Number) -> Number:
    """Arccosine; NaN for |x| > 1."""
    small, angle = _arcsine(abs(x))
    signed, negative = copysign(angle, x), x < 0.0
    low = where(
        small, HALF_PI[1] - signed, fma(signed, 2.0, where(negative, x.constant(PI[1]), 0.0))
    )
    return low + select(small, x.constant(HALF_PI[0]), negative, PI[0], 0.0)


def _arctangent(t: Number) -> Number:
    """atan(t) for 0 <= t <= 1."""
    z = t * t
    return fma(t * z, polynomial(z, ATAN_FP32), t)


def _complement(angle: Number) -> Number:
    """pi/2 - angle."""
    return (HALF_PI[1] - angle) + HALF_PI[0]


def atan(x: Number) -> Number:
    """Arctangent."""
    a = abs(x)
    far = a > 1.0
    angle = _arctangent(where(far, quotient(a.constant(1.0), a), a))
    return copysign(where(far, _complement(angle), angle), x)


def atan2(y: Number, x: Number) -> Number:
    """The angle of the point (x, y), with the special cases of C's Annex F."""
    a, b = abs(y), abs(x)
    small, large = minimum(a, b), maximum(a, b)
    angle = _arctangent(select(small == 0.0, small, a == b, 1.0, quotient(small, large)))
    angle = where(a > b, _complement(angle), angle)
    angle = where(x.bits() < 0, (PI[1] - angle) + PI[0], angle)
    return where((x != x) | (y != y), angle.constant(NAN), copysign(angle, y))


# -- the error function ----------------------------------------------------------------------------

LOG2E = (1.4426950216293335, 1.9259629911e-08)
VANISHES = 11.0  # above, erfc underflows to 0


def erfc(x: Number) -> Number:
    """1 - erf(x), accurate also where it is small."""
    a = minimum(abs(x), VANISHES)
    t = quotient(a - 4.0, a + 4.0)
    square = a * a
    product = square * -LOG2E[0]
    lost = fma(a, a, -square)
    rest = fma(lost, -LOG2E[0], fma(square, -LOG2E[0], -product) - square * LOG2E[1])
    tail = quotient(exp2_of_sum(product, rest) * polynomial(t, ERFC_FP32), fma(a, 2.0, 1.0))
    return select(x != x, x, x < 0.0, 2.0 - tail, tail)

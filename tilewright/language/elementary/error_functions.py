"""The error function, its complement, their inverses, and the normal distribution function.

For x >= 3/4, erfc is computed from exp(x^2) erfc(x), which decreases slowly, with an approximation
of the form of M. Shepherd and J. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x
in 0 <= x < infinity", Mathematics of Computation 36, 1981. fp32 is computed in fp64 (`in_fp64`).
"""

from __future__ import annotations

from tilewright.language.elementary import fp32
from tilewright.language.elementary.coefficients import ERF, ERFCINV, ERFCX, ERFINV
from tilewright.language.elementary.exponential import INF, NAN, SQRT_2, exp_of_sum
from tilewright.language.elementary.number import (
    Number,
    apply,
    copysign,
    fma,
    function,
    in_fp64,
    polynomial,
    select,
    sqrt,
    where,
    with_fp32,
)
from tilewright.ops import math

SQRT_HALF = (0.7071067811865476, -4.833646656726457e-17)
HALF_SQRT_PI = 0.886226925452758
TWO_OVER_SQRT_PI = 1.1283791670955126
NEAR = 0.75
VANISHES = 28.0  # above, erfc underflows to 0 and exp(x^2) overflows
SMALL = 2.0**-960  # below, a probability is scaled by 2**64
LN_2_64 = 44.3614195558365


@function("x->x")
def erf(x: Number) -> Number:
    """Error function."""
    return apply(math.Erf, x)


def _scaled_complement(a: Number) -> Number:
    """exp(a^2) erfc(a) for a >= 0."""
    near = where(a > 1e300, a.constant(1e300), a)
    t = (near - 4.0) / (near + 4.0)
    return polynomial(t, ERFCX) * 0.5 / (a + 0.5)


def _bell(a: Number, rest: Number | float, sign: float) -> Number:
    """exp(sign * (a + rest)^2) for a >= 0 and a small rest."""
    a = where(a > VANISHES, a.constant(VANISHES), a)
    square = a * a
    low = fma(a, a, -square) + (a + a) * rest
    return exp_of_sum(square * sign, low * sign)


def _complement(x: Number, rest: Number | float = 0.0) -> Number:
    """erfc(x + rest), for a small rest with respect to |x|."""
    a = abs(x)
    tail = _bell(a, rest, -1.0) * _scaled_complement(a)
    far = where(x < 0.0, 2.0 - tail, tail)
    return where(a < NEAR, 1.0 - _near_zero(x, rest), far)


def _near_zero(x: Number, rest: Number | float = 0.0) -> Number:
    """erf(x + rest) for |x| < 3/4, for a small rest with respect to |x|."""
    z = x * x
    slope = fma(z, -TWO_OVER_SQRT_PI, TWO_OVER_SQRT_PI)
    return fma(x, polynomial(z, ERF), copysign(slope, x) * rest)


@function("x->x")
@with_fp32(fp32.erfc)
def erfc(x: Number) -> Number:
    """1 - erf(x), accurate also where it is small."""
    return _complement(x)


@function("x->x")
@in_fp64
def erfcx(x: Number) -> Number:
    """exp(x^2) erfc(x)."""
    a = abs(x)
    tail = _scaled_complement(a)
    growing = _bell(a, 0.0, 1.0)
    far = where(x < 0.0, 2.0 * growing - tail, tail)
    return where(a < NEAR, (1.0 - _near_zero(x)) * growing, far)


@function("x->x")
@in_fp64
def normcdf(x: Number) -> Number:
    """The standard normal distribution function: erfc(-x / sqrt(2)) / 2."""
    z = x * -SQRT_HALF[0]
    low = fma(x, -SQRT_HALF[0], -z) - x * SQRT_HALF[1]
    rest = where(z < 0.0, -low, low)
    return _complement(z, where(abs(z) < VANISHES, rest, 0.0)) * 0.5


# -- inverses --------------------------------------------------------------------------------------


def _inverse_near_zero(y: Number) -> Number:
    """erfinv(y) for |y| <= 1/2."""
    return y * polynomial(fma(y * y, 8.0, -1.0), ERFINV)


def _inverse_of_tail(p: Number) -> Number:
    """erfcinv(p) for 0 < p <= 1/2: an estimate with a relative error of 3e-7, and one step of
    Halley's method.

    With h = (1 - p / erfc(x)) / (2/sqrt(pi) / erfcx(x)), the step is x + h / (1 - x h). A subnormal
    p, or a p near that range, is scaled by 2**64.
    """
    small = p < SMALL
    s = sqrt(-apply(math.Log, p))
    x = s * polynomial(_mapped(s), ERFCINV)
    square = x * x
    shift = where(small, s.constant(LN_2_64), 0.0)
    scaled = _scaled_complement(x)
    tail = exp_of_sum(shift - square, -fma(x, x, -square)) * scaled
    ratio = where(small, p * 2.0**64, p) / tail
    h = (1.0 - ratio) * HALF_SQRT_PI * scaled
    return x + h / (1.0 - x * h)


def _mapped(s: Number) -> Number:
    """Map [0.8, 27.4] to [-1, 1]: (s - 3) / (s + 3), followed by a linear map."""
    low, high = (0.8 - 3.0) / (0.8 + 3.0), (27.4 - 3.0) / (27.4 + 3.0)
    t = (s - 3.0) / (s + 3.0)
    return fma(t, 2.0 / (high - low), -(low + high) / (high - low))


def _inverse_complement(y: Number) -> Number:
    """erfcinv(y)."""
    mirrored = 2.0 - y
    p = where(y < 1.0, y, mirrored)
    far = p < 0.5
    tail = _inverse_of_tail(where(far, p, 0.5))
    near = _inverse_near_zero(1.0 - y)
    result = where(far, where(y < 1.0, tail, -tail), near)
    return select(y == 0.0, y.constant(INF), y == 2.0, -INF, (y < 0.0) | (y > 2.0), NAN, result)


@function("x->x")
@in_fp64
def erfinv(y: Number) -> Number:
    """The x with erf(x) = y; infinite for 1 and -1, NaN for |y| > 1."""
    a = abs(y)
    far = a > 0.5
    tail = _inverse_of_tail(where(far & (a < 1.0), 1.0 - a, 0.5))
    result = where(far, copysign(tail, y), _inverse_near_zero(y))
    return select(a == 1.0, copysign(y.constant(INF), y), a > 1.0, NAN, result)


@function("x->x")
@in_fp64
def erfcinv(y: Number) -> Number:
    """The x with erfc(x) = y; infinite for 0 and 2, NaN outside [0, 2]."""
    return _inverse_complement(y)


@function("x->x")
@in_fp64
def normcdfinv(p: Number) -> Number:
    """The inverse of the standard normal distribution function: the quantile of p."""
    return fma(_inverse_complement(p + p), -SQRT_2, 0.0)  # 0.0, not -0.0, for p = 1/2

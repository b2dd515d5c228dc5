"""Trigonometric functions and their inverses. fp32 is computed in fp64 and rounded (`in_fp64`),
except for sin, cos and tan, which are ops."""

from __future__ import annotations

from math import factorial

from tilewright.ir.types import I64
from tilewright.language.elementary import fp32
from tilewright.language.elementary.coefficients import ASIN, ATAN
from tilewright.language.elementary.exponential import INF, NAN
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

PI = (3.141592653589793, 1.2246467991473532e-16)
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)
TAN_EIGHTH_PI = 0.41421356237309503

# Taylor coefficients of (sin(t) - t) / t^3 and (cos(t) - 1 + t^2/2) / t^4 in t^2, for |t| <= pi/4.
SIN = [(-1.0) ** (k + 1) / factorial(2 * k + 3) for k in range(9)]
COS = [(-1.0) ** k / factorial(2 * k + 4) for k in range(9)]


@function("x->x")
def sin(x: Number) -> Number:
    """Sine of an angle in radians."""
    return apply(math.Sin, x)


@function("x->x")
def cos(x: Number) -> Number:
    """Cosine of an angle in radians."""
    return apply(math.Cos, x)


@function("x->x")
@with_fp32(fp32.tan)
def tan(x: Number) -> Number:
    """Tangent of an angle in radians."""
    return where(x == 0.0, x, apply(math.Sin, x) / apply(math.Cos, x))


@function("f->f")
def fast_sinf(x: Number) -> Number:
    """Sine, fast."""
    return apply(math.Sin, x, fast=True)


@function("f->f")
def fast_cosf(x: Number) -> Number:
    """Cosine, fast."""
    return apply(math.Cos, x, fast=True)


@function("f->f")
def fast_tanf(x: Number) -> Number:
    """Tangent, fast but less accurate: the quotient of sine and cosine."""
    return apply(math.Sin, x, fast=True) / apply(math.Cos, x, fast=True)


# -- angles in half turns --------------------------------------------------------------------------


def _half_turns(x: Number) -> tuple[Number, Number, Number]:
    """(q, sin r, cos r) with pi*x = q*pi/2 + r, |r| <= pi/4; r has a single rounding error. NaN for
    infinities and NaN."""
    x = where(abs(x) < 2.0**53, x, (x - x))  # larger numbers are even integers
    n = apply(math.Rint, x + x)
    rest = fma(n, -0.5, x)
    t = rest * PI[0]
    low = fma(rest, PI[0], -t) + rest * PI[1]
    z = t * t
    sine = t + fma(t * z, polynomial(z, SIN), low * fma(z, -0.5, 1.0))
    half = z * 0.5
    head = 1.0 - half
    cosine = head + (fma(z * z, polynomial(z, COS), (1.0 - head) - half) - t * low)
    return n.to(I64), sine, cosine


def _turned(q: Number, sine: Number, cosine: Number) -> Number:
    """sin(q*pi/2 + r)."""
    result = where((q & 1) != 0, cosine, sine)
    return where((q & 2) != 0, -result, result)


def sine_of_half_turns(x: Number) -> Number:
    """sin(pi x) in fp64; a zero result has the sign of x."""
    q, sine, cosine = _half_turns(x)
    result = _turned(q, sine, cosine)
    return where(result == 0.0, copysign(result, x), result)


@function("x->x")
@in_fp64
def sinpi(x: Number) -> Number:
    """sin(pi x); exactly 0, with the sign of x, for integers."""
    return sine_of_half_turns(x)


@function("x->x")
@in_fp64
def cospi(x: Number) -> Number:
    """cos(pi x); exactly 0 for odd multiples of 1/2."""
    q, sine, cosine = _half_turns(x)
    result = _turned(q + 1, sine, cosine)
    return where(result == 0.0, abs(result), result)


# -- inverses --------------------------------------------------------------------------------------


def _arcsine_parts(x: Number) -> tuple[Number, Number, Number]:
    """(small, head, rest) with asin(s) = head + rest. If |x| < 1/2 (`small`), s is |x|; otherwise s
    is sqrt((1 - |x|) / 2), with asin(|x|) = pi/2 - 2 asin(s)."""
    a = abs(x)
    small = a < 0.5
    z = where(small, a * a, (1.0 - a) * 0.5)
    root = sqrt(z)
    lost = where(root == 0.0, root, fma(-root, root, z) / (root + root))
    s = where(small, a, root)
    return small, s, fma(s * z, polynomial(z, ASIN), where(small, 0.0 * z, lost))


@function("x->x")
@with_fp32(fp32.asin)
def asin(x: Number) -> Number:
    """Arcsine; NaN for |x| > 1."""
    small, head, rest = _arcsine_parts(x)
    large = HALF_PI[0] - (head + head + (rest + rest - HALF_PI[1]))
    return copysign(where(small, head + rest, large), x)


@function("x->x")
@with_fp32(fp32.acos)
def acos(x: Number) -> Number:
    """Arccosine; NaN for |x| > 1."""
    small, head, rest = _arcsine_parts(x)
    signed, signed_rest = copysign(head, x), where(x < 0.0, -rest, rest)
    middle = HALF_PI[0] - (signed + (signed_rest - HALF_PI[1]))
    near_one = head + head + (rest + rest)
    near_minus_one = PI[0] - (head + head + (rest + rest - PI[1]))
    return select(small, middle, x < 0.0, near_minus_one, near_one)


def arctangent(a: Number) -> Number:
    """atan(a) for a >= 0, by atan(a) = c + atan((a - tan c) / (1 + a tan c)) with c of 0, pi/4 and
    pi/2."""
    far, middle = a > 1 / TAN_EIGHTH_PI, a > TAN_EIGHTH_PI
    over = select(far, a.constant(-1.0), middle, a - 1.0, a)
    under = select(far, a, middle, a + 1.0, 1.0)
    t = over / under
    z = t * t
    rest = t * z * polynomial(z, ATAN)
    head = select(far, t.constant(HALF_PI[0]), middle, QUARTER_PI[0], 0.0)
    low = select(far, t.constant(HALF_PI[1]), middle, QUARTER_PI[1], 0.0)
    return head + (t + (rest + low))


@function("x->x")
@with_fp32(fp32.atan)
def atan(x: Number) -> Number:
    """Arctangent."""
    return copysign(arctangent(abs(x)), x)


@function("xx->x")
@with_fp32(fp32.atan2)
def atan2(y: Number, x: Number) -> Number:
    """The angle of the point (x, y), with the special cases of C's Annex F."""
    a, b = abs(y), abs(x)
    ratio = select(a == 0.0, a, (a == INF) & (b == INF), 1.0, a / b)
    angle = arctangent(ratio)
    angle = where(x.bits() < 0, PI[0] - (angle - PI[1]), angle)
    return where((x != x) | (y != y), angle.constant(NAN), copysign(angle, y))

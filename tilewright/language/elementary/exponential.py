"""Powers, roots, logarithms, hyperbolic functions, and Euclidean norms.

fp32 functions that are not ops of the IR are computed in fp64 and rounded (`in_fp64`).
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.types import FP64, I64
from tilewright.language.elementary import fp32
from tilewright.language.elementary.bits import decompose, is_finite, power_of_two, scale
from tilewright.language.elementary.number import (
    Number,
    apply,
    copysign,
    fma,
    function,
    in_fp64,
    maximum,
    polynomial,
    select,
    sqrt,
    where,
    with_fp32,
)
from tilewright.language.elementary.rounding import two_sum
from tilewright.ops import math
from tilewright.ops.arith import Div

INF, NAN = float("inf"), float("nan")

# Split constants: the first part is so short that its product with an exponent is exact.
LN2 = (0.6931471805598903, 5.497923018708371e-14)
LOG10_2 = (0.30102999566395283, 2.8363394551044964e-14)
# Double-double constants.
LN10 = (2.302585092994046, -2.1707562233822494e-16)
THIRD = (0.3333333333333333, 1.850371707708594e-17)
LOG2_10 = 3.321928094887362
SQRT_2 = 1.4142135623730951
HALF_E = 1.3591409142295225


def _op(name: str, op: Any, meaning: str, signature: str = "x->x", **attributes: Any) -> Any:
    """A primitive that is an op of the IR."""

    def formula(x: Number) -> Number:
        return apply(op, x, **attributes)

    formula.__doc__ = f"{meaning}."
    formula.__module__ = __name__
    return function(signature, name=name)(formula)


exp = _op("exp", math.Exp, "Natural exponential")
exp2 = _op("exp2", math.Exp2, "Base-2 exponential")
expm1 = _op("expm1", math.Expm1, "exp(x) - 1, accurate near 0")
log = _op("log", math.Log, "Natural logarithm")
log2 = _op("log2", math.Log2, "Logarithm to base 2")
log10 = _op("log10", math.Log10, "Logarithm to base 10")
log1p = _op("log1p", math.Log1p, "log(1 + x), accurate near 0")
tanh = _op("tanh", math.Tanh, "Hyperbolic tangent")
rsqrt = _op("rsqrt", math.Rsqrt, "1 / sqrt(x)")
floor = _op("floor", math.Floor, "The largest integer less than or equal to x")
ceil = _op("ceil", math.Ceil, "The smallest integer greater than or equal to x")
trunc = _op("trunc", math.Trunc, "x rounded to an integer toward zero; preserves the sign of zero")
rint = _op("rint", math.Rint, "The nearest integer, ties to even")
square_root = _op("sqrt", math.Sqrt, "Correctly rounded square root", ieee=True)

fast_expf = _op("fast_expf", math.Exp, "Natural exponential, fast", "f->f", fast=True)
fast_logf = _op("fast_logf", math.Log, "Natural logarithm, fast", "f->f", fast=True)
fast_log2f = _op("fast_log2f", math.Log2, "Logarithm to base 2, fast", "f->f", fast=True)
fast_log10f = _op("fast_log10f", math.Log10, "Logarithm to base 10, fast", "f->f", fast=True)
fast_tanhf = _op("fast_tanhf", math.Tanh, "Hyperbolic tangent, fast", "f->f", fast=True)


@function("f->f")
def fast_exp10f(x: Number) -> Number:
    """10 to the power of x, fast but less accurate: exp2 of a rounded product."""
    return apply(math.Exp2, x * LOG2_10)


@function("ff->f")
def fast_powf(x: Number, y: Number) -> Number:
    """x to the power of y, fast but less accurate: exp2 of a rounded product."""
    return apply(math.Exp2, y * apply(math.Log2, x, fast=True))


@function("ff->f")
def fast_dividef(x: Number, y: Number) -> Number:
    """Quotient of fp32, fast; it may not be correctly rounded."""
    return x.emit(Div(x.value, y.value, False))


@function("xxx->x", name="fma")
def fused(x: Number, y: Number, z: Number) -> Number:
    """x * y + z with one rounding."""
    return fma(x, y, z)


@function("f->f")
def rsqrt_rn(x: Number) -> Number:
    """Correctly rounded 1 / sqrt(x)."""
    return (1.0 / sqrt(x.to(FP64))).to(x.element)


# -- powers ----------------------------------------------------------------------------------------


@function("x->x")
@with_fp32(fp32.exp10)
def exp10(x: Number) -> Number:
    """10 to the power of x: 2**n * exp(r * ln(10)) with x = n * log10(2) + r."""
    x = select(x > 400.0, x.constant(400.0), x < -400.0, -400.0, x)
    n = apply(math.Rint, x * LOG2_10)
    r = fma(n, -LOG10_2[1], fma(n, -LOG10_2[0], x))
    t = r * LN10[0]
    rest = fma(r, LN10[0], -t) + r * LN10[1]
    e = apply(math.Exp, t)
    return scale(fma(e, rest, e), n.to(I64))


def log_parts(x: Number) -> tuple[Number, Number]:
    """log(x) as a double-double with an error near 2**-66, for finite x > 0.

    With s = (m - 1) / (m + 1): log(m) = 2s (1 + s^2/3 + s^4/5 + ...), whose first two terms are
    computed in double-double arithmetic.
    """
    m, e = decompose(x)
    upper = m > SQRT_2
    m = where(upper, m * 0.5, m)
    exponent = (e + upper.to(I64)).to(FP64)
    f = m - 1.0
    d = f + 2.0
    s = f / d
    s_low = (fma(-s, d, f) - s * (f - (d - 2.0))) / d
    z = s * s
    z_low = fma(s, s, -z) + 2.0 * s * s_low
    tail = z * polynomial(z, [1.0 / (2 * k + 5) for k in range(13)])
    u = tail + THIRD[0]
    u_low = (THIRD[0] - u) + tail + THIRD[1]
    v = z * u
    v_low = fma(z, u, -v) + z * u_low + z_low * u
    w = s * v
    w_low = fma(s, v, -w) + s * v_low + s_low * (v + 1.0)
    head = s + w
    head_low = (s - head) + w + w_low
    high, rest = two_sum(exponent * LN2[0], head * 2.0)
    low = fma(exponent, LN2[1], head_low * 2.0) + rest
    total = high + low
    return total, (high - total) + low


def exp_of_sum(x: Number, rest: Number) -> Number:
    """exp(x + rest) for a small rest."""
    e = apply(math.Exp, x)
    return where(is_finite(e) & is_finite(rest), fma(e, rest, e), e)


def _power(x: Number, y: Number) -> Number:
    """|x| ** y, also for operands that are infinite, 0 or NaN."""
    magnitude = abs(x)
    extreme = (x == 0.0) | (magnitude == INF)
    log_high, log_low = log_parts(where(extreme, x.constant(2.0), magnitude))
    product = y * log_high
    rest = fma(y, log_high, -product) + y * log_low
    inside = abs(product) < 800.0
    product = select(inside | (product != product), product, product > 0.0, 800.0, -800.0)
    result = exp_of_sum(product, where(inside, rest, 0.0))
    grows = (magnitude > 1.0) ^ (y < 0.0)
    return where(extreme, where(grows, x.constant(INF), 0.0), result)


def power(x: Number, y: Number) -> Number:
    """x ** y in fp64, with the special cases of C's Annex F."""
    half = y * 0.5
    whole = apply(math.Trunc, y) == y
    odd = whole & (apply(math.Trunc, half) != half)
    result = _power(x, y)
    result = where(odd, copysign(result, x), result)
    negative = (x < 0.0) & (x > -INF)
    one = (x == 1.0) | (y == 0.0) | ((x == -1.0) & (abs(y) == INF))
    return select(one, x.constant(1.0), (x != x) | (y != y), x + y, negative & ~whole, NAN, result)


PRODUCTS = range(-2, 5)
"""Exponents whose powers are within 1.5 ulp as products."""


def _power_by_products(x: Number, n: int) -> Number:
    """x ** n for one of `PRODUCTS`. An intermediate power overflows or is subnormal only if the
    result is infinite, or so small that the lost digits do not affect it."""
    if n == 0:
        return x.constant(1.0)
    if n < 0:
        x = 1.0 / x  # correctly rounded; the reciprocal of a power may be 0 where this is not
    if abs(n) == 1:
        return x
    square = x * x
    if abs(n) == 2:
        return square
    return square * (x if n == 3 else square)


@function("xx->x", "xi->x")
def pow(x: Number, y: Number) -> Number:
    """x to the power of y, as pow in C; y may be an int32."""
    exponent = y.known()
    if exponent is not None and exponent in PRODUCTS:
        return _power_by_products(x, int(exponent))
    if x.wide:
        return power(x, y.to(FP64))
    return fp32.power_of_integer(x, y) if y.element.is_int() else fp32.power(x, y)


# -- roots -----------------------------------------------------------------------------------------


def _root_parts(x: Number) -> tuple[Number, Number, Number]:
    """(a, r, q) with |x| = a * 8**q, 1 <= a < 8, and r the cube root of a, within one ulp."""
    m, e = decompose(x)
    third = (e + 3072) // 3 - 1024
    a = m * power_of_two(e - third * 3, FP64)
    return a, apply(math.Exp2, apply(math.Log2, a) / 3.0), third


@function("x->x")
@in_fp64
def cbrt(x: Number) -> Number:
    """Cube root: 2**(log2(a) / 3), and one step of Newton's method with an exact residual."""
    a, r, third = _root_parts(x)
    square = r * r
    residual = fma(square, r, -a) + fma(r, r, -square) * r
    r = r - residual / (square * 3.0)
    result = copysign(r * power_of_two(third, FP64), x)
    return where((x == 0.0) | ~is_finite(x), x + x, result)


@function("x->x")
@in_fp64
def rcbrt(x: Number) -> Number:
    """1 / cbrt(x): one step of Newton's method on a r^3 = 1 with an exact residual."""
    a, root, third = _root_parts(x)
    r = 1.0 / root
    p, q = a * r, r * r
    product = p * q
    low = fma(p, q, -product) + p * fma(r, r, -q) + fma(a, r, -p) * q
    r = fma(r / 3.0, (1.0 - product) - low, r)
    result = copysign(r * power_of_two(-third, FP64), x)
    return where((x == 0.0) | ~is_finite(x), 1.0 / x, result)


def _length(*parts: Number) -> tuple[Number, Number, Number]:
    """(r, e, largest): the root of the sum of squares is r * 2**e, unless the largest magnitude
    `largest` is 0 or not finite. The sum has an error term, which corrects the root."""
    largest = abs(parts[0])
    for p in parts[1:]:
        largest = maximum(largest, abs(p))
    _, exponent = decompose(largest)
    total, rest = parts[0].constant(0.0), parts[0].constant(0.0)
    for p in parts:
        near = scale(p, -exponent)
        square = near * near
        total, lost = two_sum(total, square)
        rest = rest + (lost + fma(near, near, -square))
    r = sqrt(total)
    return r + (fma(-r, r, total) + rest) / (r + r), exponent, largest


def _norm(*parts: Number) -> Number:
    r, exponent, largest = _length(*parts)
    result = select(largest == 0.0, largest, largest == INF, INF, scale(r, exponent))
    return _with_nan(result, largest, parts)


def _reciprocal_norm(*parts: Number) -> Number:
    r, exponent, largest = _length(*parts)
    result = select(largest == 0.0, largest.constant(INF), largest == INF, 0.0,
                    scale(1.0 / r, -exponent))  # fmt: skip
    return _with_nan(result, largest, parts)


def _with_nan(result: Number, largest: Number, parts: Any) -> Number:
    """The result, or NaN if a part is NaN and none is infinite."""
    unordered = parts[0] != parts[0]
    for p in parts[1:]:
        unordered = unordered | (p != p)
    return where(unordered & (largest != INF), result.constant(NAN), result)


@function("xx->x")
@with_fp32(fp32.hypot)
def hypot(x: Number, y: Number) -> Number:
    """sqrt(x^2 + y^2), without intermediate overflow."""
    return _norm(x, y)


@function("xx->x")
@in_fp64
def rhypot(x: Number, y: Number) -> Number:
    """1 / sqrt(x^2 + y^2), without intermediate overflow."""
    return _reciprocal_norm(x, y)


@function("xxx->x")
@in_fp64
def norm3d(x: Number, y: Number, z: Number) -> Number:
    """The Euclidean norm of a vector of three elements."""
    return _norm(x, y, z)


@function("xxx->x")
@in_fp64
def rnorm3d(x: Number, y: Number, z: Number) -> Number:
    """The reciprocal of the Euclidean norm of a vector of three elements."""
    return _reciprocal_norm(x, y, z)


@function("xxxx->x")
@in_fp64
def norm4d(x: Number, y: Number, z: Number, w: Number) -> Number:
    """The Euclidean norm of a vector of four elements."""
    return _norm(x, y, z, w)


@function("xxxx->x")
@in_fp64
def rnorm4d(x: Number, y: Number, z: Number, w: Number) -> Number:
    """The reciprocal of the Euclidean norm of a vector of four elements."""
    return _reciprocal_norm(x, y, z, w)


# -- hyperbolic functions --------------------------------------------------------------------------

LARGE_EXP = 709.0  # above, exp(x) / 2 is computed as exp(x - 1) * e/2
LARGE_ROOT = 2.0**28  # above, x^2 + 1 is x^2
FULL_LN2 = 0.6931471805599453


@function("x->x")
@with_fp32(fp32.sinh)
def sinh(x: Number) -> Number:
    """Hyperbolic sine: with m = expm1(x), (m + m / (m + 1)) / 2."""
    a = abs(x)
    m = apply(math.Expm1, a)
    result = (m + m / (m + 1.0)) * 0.5
    large = apply(math.Exp, a - 1.0) * HALF_E
    return copysign(where(a > LARGE_EXP, large, result), x)


@function("x->x")
@with_fp32(fp32.cosh)
def cosh(x: Number) -> Number:
    """Hyperbolic cosine."""
    a = abs(x)
    e = apply(math.Exp, a)
    large = apply(math.Exp, a - 1.0) * HALF_E
    return where(a > LARGE_EXP, large, (e + 1.0 / e) * 0.5)


@function("x->x")
@with_fp32(fp32.asinh)
def asinh(x: Number) -> Number:
    """Inverse hyperbolic sine: log1p(x + x^2 / (1 + sqrt(1 + x^2)))."""
    a = abs(x)
    square = a * a
    near = apply(math.Log1p, a + square / (sqrt(square + 1.0) + 1.0))
    far = apply(math.Log, a) + FULL_LN2
    return copysign(where(a > LARGE_ROOT, far, near), x)


@function("x->x")
@with_fp32(fp32.acosh)
def acosh(x: Number) -> Number:
    """Inverse hyperbolic cosine: with t = x - 1, log1p(t + sqrt(2t + t^2))."""
    t = x - 1.0
    near = apply(math.Log1p, t + sqrt(fma(t, t, t + t)))
    far = apply(math.Log, x) + FULL_LN2
    return select(x > LARGE_ROOT, far, x < 1.0, NAN, near)


@function("x->x")
@with_fp32(fp32.atanh)
def atanh(x: Number) -> Number:
    """Inverse hyperbolic tangent: log1p(2x / (1 - x)) / 2."""
    a = abs(x)
    twice = a + a
    argument = where(a < 0.5, twice + twice * a / (1.0 - a), twice / (1.0 - a))
    return copysign(apply(math.Log1p, argument) * 0.5, x)

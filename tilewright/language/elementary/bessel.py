"""Bessel functions of orders 0 and 1. fp32 is computed in fp64 and rounded (`in_fp64`).

Up to 8 by polynomials in x^2, beyond by Hankel's form (DLMF 10.17): with two slowly varying P and
Q, J = sqrt(2 / (pi x)) (P cos(c) - Q sin(c)) and Y = sqrt(2 / (pi x)) (P sin(c) + Q cos(c)), where
c is x - pi/4 for order 0 and x - 3pi/4 for order 1. Errors count beside the size of the waves: near
the zeros of these functions nothing more is promised.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.language.elementary import coefficients as fits
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
)
from tilewright.ops import math

END = 8.0
PI = 3.141592653589793
TWO_OVER_PI = 0.6366197723675814


def _near(a: Number, polynomials: Sequence[Sequence[float]]) -> list[Number]:
    """Polynomials in a^2, for a up to 8."""
    near = where(a < END, a, END)
    t = fma(near * near, 1 / 32, -1.0)
    return [polynomial(t, p) for p in polynomials]


def _far(a: Number, order: int) -> tuple[Number, Number]:
    """J and Y of the order, for a from 8 on; of infinity 0."""
    far = select(a < END, a.constant(END), a == INF, END, a)
    ratio = END / far
    t = fma(ratio * ratio, 2.0, -1.0)
    p = polynomial(t, fits.P1 if order else fits.P0)
    q = ratio * polynomial(t, fits.Q1 if order else fits.Q0)
    sine, cosine = apply(math.Sin, far), apply(math.Cos, far)
    plus, minus = cosine + sine, sine - cosine
    c, s = (minus, -plus) if order else (plus, minus)
    size = 1.0 / sqrt(far * PI)
    first, second = size * fma(p, c, -(q * s)), size * fma(p, s, q * c)
    return where(a == INF, 0.0, first), where(a == INF, 0.0, second)


@function("x->x")
@in_fp64
def j0(x: Number) -> Number:
    """Bessel function of the first kind, order 0."""
    a = abs(x)
    (less_one,) = _near(a, [fits.J0])
    return select(x != x, x, a < END, fma(a * a, less_one, 1.0), _far(a, 0)[0])


@function("x->x")
@in_fp64
def j1(x: Number) -> Number:
    """Bessel function of the first kind, order 1."""
    a = abs(x)
    (near,) = _near(a, [fits.J1])
    result = where(a < END, near * a, _far(a, 1)[0])
    return where(x != x, x, (result.bits() ^ (x.bits() & -(2**63))).bits(x.element))


def _second_kind(x: Number, result: Number) -> Number:
    """The result, with -inf at 0 and NaN below."""
    return select(x != x, x, x == 0.0, -INF, x < 0.0, NAN, result)


@function("x->x")
@in_fp64
def y0(x: Number) -> Number:
    """Bessel function of the second kind, order 0; -inf of 0, NaN below."""
    a = abs(x)
    j, y = _near(a, [fits.J0, fits.Y0])
    near = fma(apply(math.Log, a) * TWO_OVER_PI, fma(a * a, j, 1.0), y)
    return _second_kind(x, where(a < END, near, _far(a, 0)[1]))


@function("x->x")
@in_fp64
def y1(x: Number) -> Number:
    """Bessel function of the second kind, order 1; -inf of 0, NaN below."""
    a = abs(x)
    j, y = _near(a, [fits.J1, fits.Y1])
    near = fma(fma(apply(math.Log, a) * j, a, -(1.0 / a)), TWO_OVER_PI, y * a)
    return _second_kind(x, where(a < END, near, _far(a, 1)[1]))


def _modified(x: Number, order: int) -> Number:
    """I of the order at |x|. exp is taken in two halves, which do not overflow before the product
    does."""
    a = abs(x)
    near = where(a < END, a, END)
    t = fma(near, 0.25, -1.0)
    small = polynomial(t, fits.I1 if order else fits.I0)
    small = small * near if order else small
    far = select(a < END, a.constant(END), a == INF, 1e4, a)
    t = fma(END / far, 2.0, -1.0)
    large = polynomial(t, fits.I1_LARGE if order else fits.I0_LARGE) / sqrt(far)
    half = apply(math.Exp, a * 0.5)
    return where(x != x, x, half * where(a < END, small, large) * half)


@function("x->x")
@in_fp64
def cyl_bessel_i0(x: Number) -> Number:
    """Modified Bessel function of the first kind, order 0."""
    return _modified(x, 0)


@function("x->x")
@in_fp64
def cyl_bessel_i1(x: Number) -> Number:
    """Modified Bessel function of the first kind, order 1."""
    return copysign(_modified(x, 1), x)

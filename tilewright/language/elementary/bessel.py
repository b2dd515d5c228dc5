"""Bessel functions. fp32 is computed in fp64 and rounded (`in_fp64`).

For |x| < 8, polynomials in x^2; otherwise Hankel's form (DLMF 10.17): with two slowly varying
functions P and Q, J = sqrt(2 / (pi x)) (P cos(c) - Q sin(c)) and Y = sqrt(2 / (pi x)) (P sin(c) +
Q cos(c)), where c is x - pi/4 for order 0 and x - 3pi/4 for order 1. Error bounds are relative to
the amplitude of the oscillation, not to the value, which matters near the zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import FP64, I32
from tilewright.language.elementary import coefficients as fits
from tilewright.language.elementary.exponential import INF, NAN, power
from tilewright.language.elementary.gamma import gamma
from tilewright.language.elementary.number import (
    Number,
    apply,
    copysign,
    fma,
    function,
    in_fp64,
    largest,
    polynomial,
    repeat,
    select,
    spread,
    sqrt,
    where,
)
from tilewright.ops import math

END = 8.0
ONE_OVER_SQRT_PI = 0.5641895835477563
TWO_OVER_PI = 0.6366197723675814


def _near(a: Number, polynomials: Sequence[Sequence[float]]) -> list[Number]:
    """The polynomials in a^2, for 0 <= a < 8."""
    near = where(a < END, a, END)
    t = fma(near * near, 1 / 32, -1.0)
    return [polynomial(t, p) for p in polynomials]


def _far(a: Number, order: int) -> tuple[Number, Number]:
    """J and Y of the order, for a >= 8; 0 at infinity."""
    far = select(a < END, a.constant(END), a == INF, END, a)
    ratio = END / far
    t = fma(ratio * ratio, 2.0, -1.0)
    p = polynomial(t, fits.P1 if order else fits.P0)
    q = ratio * polynomial(t, fits.Q1 if order else fits.Q0)
    sine, cosine = apply(math.Sin, far), apply(math.Cos, far)
    plus, minus = cosine + sine, sine - cosine
    c, s = (minus, -plus) if order else (plus, minus)
    size = ONE_OVER_SQRT_PI / sqrt(far)  # far * PI may overflow
    first, second = size * fma(p, c, -(q * s)), size * fma(p, s, q * c)
    return where(a == INF, 0.0, first), where(a == INF, 0.0, second)


def _order_0(x: Number) -> Number:
    """j0 of x >= 0."""
    (less_one,) = _near(x, [fits.J0])
    return where(x < END, fma(x * x, less_one, 1.0), _far(x, 0)[0])


def _order_1(x: Number) -> Number:
    """j1 of x >= 0."""
    (near,) = _near(x, [fits.J1])
    return where(x < END, near * x, _far(x, 1)[0])


@function("x->x")
@in_fp64
def j0(x: Number) -> Number:
    """Bessel function of the first kind, order 0."""
    return where(x != x, x, _order_0(abs(x)))


@function("x->x")
@in_fp64
def j1(x: Number) -> Number:
    """Bessel function of the first kind, order 1."""
    result = _order_1(abs(x))
    return where(x != x, x, (result.bits() ^ (x.bits() & -(2**63))).bits(x.element))


def _second_kind(x: Number, result: Number) -> Number:
    """The result, with -inf for x = 0 and NaN for x < 0."""
    return select(x != x, x, x == 0.0, -INF, x < 0.0, NAN, result)


def _second_order_0(a: Number) -> Number:
    """y0 of a > 0."""
    j, y = _near(a, [fits.J0, fits.Y0])
    near = fma(apply(math.Log, a) * TWO_OVER_PI, fma(a * a, j, 1.0), y)
    return where(a < END, near, _far(a, 0)[1])


def _second_order_1(a: Number) -> Number:
    """y1 of a > 0."""
    j, y = _near(a, [fits.J1, fits.Y1])
    near = fma(apply(math.Log, a) * TWO_OVER_PI * j, a, y * a) - TWO_OVER_PI / a
    return where(a < END, near, _far(a, 1)[1])


@function("x->x")
@in_fp64
def y0(x: Number) -> Number:
    """Bessel function of the second kind, order 0; -inf for x = 0, NaN for x < 0."""
    return _second_kind(x, _second_order_0(abs(x)))


@function("x->x")
@in_fp64
def y1(x: Number) -> Number:
    """Bessel function of the second kind, order 1; -inf for x = 0, NaN for x < 0."""
    return _second_kind(x, _second_order_1(abs(x)))


# -- any order -------------------------------------------------------------------------------------

TINY = 1e-8  # below, j of order n >= 2 is (x/2)^n / n!
BIG = 2.0**200


def _upward(n: Number, x: Number, first: Number, second: Number) -> Number:
    """Order n, given orders 0 and 1, by forward recurrence: f(k+1) = 2k/x f(k) - f(k-1)."""

    def step(i: Number, before: Number, this: Number) -> list[Number]:
        k = spread(i, n) + 1
        following = this * (2.0 * k.to(FP64) / x) - before
        active = k < n
        return [where(active, this, before), where(active, following, this)]

    return repeat(largest(n) - 1, [first, second], step)[1]


def _downward(n: Number, x: Number, start: Number) -> Number:
    """j of order n by backward recurrence from a much higher order, with arbitrary initial values,
    normalised by 1 = j0 + 2 j2 + 2 j4 + ... (Miller's algorithm, DLMF 3.6(iii) and 10.74(iv))."""
    top = largest(start)

    def step(i: Number, *old: Number) -> list[Number]:
        above, this, total, found = old
        k = spread(top - i, n)
        below = this * (2.0 * k.to(FP64) / x) - above
        found = where(k == n, this, found)
        total = where((k & 1) == 0, total + this, total)
        down = where(abs(below) > BIG, below.constant(1 / BIG), 1.0)
        new = [v * down for v in (this, below, total, found)]
        return [where(k <= start, a, b) for a, b in zip(new, old, strict=True)]

    zero, one = x.constant(0.0), x.constant(1.0)
    _, last, total, found = repeat(top, [zero, one, zero, zero], step)
    return found / (total + total + last)


def _sign_of_order(n: Number, x: Number, result: Number) -> Number:
    """Odd orders are odd functions."""
    return where((x.bits() < 0) & ((n & 1) != 0), -result, result)


@function("ix->x")
@in_fp64
def jn(n: Number, x: Number) -> Number:
    """Bessel function of the first kind, order n; NaN for n < 0."""
    a = abs(x)
    first, second = _order_0(a), _order_1(a)
    order = n.to(FP64)
    up = (a > order) & (a < INF)
    upward = _upward(where(up, n, 0), where(up, a, 1.0), first, second)
    high, tiny = (n > 1) & ~up & (a < INF), a < TINY
    start = (n + sqrt(order * 160.0 + 40.0).to(I32)) | 1
    middle = high & ~tiny
    downward = _downward(where(middle, n, 2), where(middle, a, 1.0), where(middle, start, 0))
    leading = power(a * 0.5, order) / gamma(order + 1.0)
    large = select(up, upward, tiny, leading, a == INF, 0.0, downward)
    result = _sign_of_order(n, x, select(n == 0, first, n == 1, second, large))
    return select(x != x, x, n < 0, NAN, result)


@function("ix->x")
@in_fp64
def yn(n: Number, x: Number) -> Number:
    """Bessel function of the second kind, order n; -inf for x = 0, NaN for x < 0 or n < 0."""
    a = abs(x)
    first, second = _second_order_0(a), _second_order_1(a)
    ordinary = (a > 0.0) & (a < INF)
    large = _upward(where(ordinary, n, 0), where(ordinary, a, 1.0), first, second)
    overflown = (second == -INF) | (large != large)  # -inf - -inf in the recurrence is NaN
    large = select(a == INF, 0.0, overflown, -INF, large)
    result = select(n == 0, first, n == 1, second, large)
    return where(n < 0, NAN, _second_kind(x, result))


def _modified(x: Number, order: int) -> Number:
    """I of the order at |x|. exp(|x|) is the product of two factors exp(|x| / 2), so that it does
    not overflow before the result does."""
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

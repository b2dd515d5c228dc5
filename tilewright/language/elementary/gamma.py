"""The gamma function and its logarithm. fp32 is computed in fp64 and rounded (`in_fp64`).

For 0 < x < 8, by the recurrence gamma(x + 1) = x gamma(x) and polynomials on an interval of length
1 or 2; above, by Stirling's formula; for x < 0, by the reflection formula gamma(x) gamma(-x) =
-pi / (x sin(pi x)) (DLMF 5.5 and 5.11).
"""

from __future__ import annotations

from tilewright.language.elementary.coefficients import GAMMA, LGAMMA, STIRLING
from tilewright.language.elementary.exponential import INF, NAN, exp_of_sum, log_parts
from tilewright.language.elementary.number import (
    Number,
    apply,
    fma,
    function,
    in_fp64,
    polynomial,
    select,
    where,
)
from tilewright.language.elementary.rounding import two_sum
from tilewright.language.elementary.trigonometric import PI, sine_of_half_turns
from tilewright.ops import math

LARGE = 8.0
SQRT_2_PI = 2.5066282746310007
HALF_LOG_2_PI_LESS_HALF = 0.4189385332046727  # (log(2 pi) - 1) / 2
TINY = 2.0**-70  # below, gamma(x) is 1 / x
VANISHES = 190.0  # above, gamma(-x) underflows to 0 and gamma(x) overflows


def _reduced(a: Number) -> tuple[Number, Number]:
    """(y, p) with y at most 3 and gamma(a) = p gamma(y), for a < 8."""
    product = a.constant(1.0)
    for _ in range(5):
        above = a > 3.0
        a = where(above, a - 1.0, a)
        product = where(above, product * a, product)
    return a, product


def _gamma_below(a: Number) -> Number:
    """gamma(a) for 0 < a < 8. The rounding error of y = a + 1 or a + 2 is compensated to first
    order with the digamma function, which is about 0.42 + 0.5 (y - 2)."""
    y, product = _reduced(a)
    up = select(y < 1.0, y.constant(2.0), y < 2.0, 1.0, 0.0)
    raised = y + up
    lost = (up - raised) + y
    value = polynomial(fma(raised, 2.0, -5.0), GAMMA)
    value = fma(value * fma(raised, 0.5, -0.58), lost, value)
    below = select(y < 1.0, y * (y + 1.0), y < 2.0, y, 1.0)
    return value * product / below


def _log_gamma_above(a: Number) -> tuple[Number, Number]:
    """log(gamma(a) / sqrt(2 pi)) for 8 <= a < 200, as a value and a small correction:
    (a - 1/2) log(a) - a + r(a)."""
    high, low = log_parts(a)
    factor = a - 0.5
    product = factor * high
    rest = fma(factor, high, -product) + factor * low
    reciprocal = 1.0 / a
    series = reciprocal * polynomial(reciprocal * reciprocal, STIRLING)
    total, lost = two_sum(product, -a)
    total, more = two_sum(total, series)
    return total, rest + lost + more


def gamma(x: Number) -> Number:
    """The gamma function in fp64."""
    a = abs(x)
    negative = x < 0.0
    reflection = -PI[0] / (a * sine_of_half_turns(a))
    small = _gamma_below(where((a < LARGE) & (a > 0.0), a, 1.0))
    small = where(negative, reflection / small, small)
    clamped = select(a < LARGE, a.constant(LARGE), a > VANISHES, VANISHES, a)
    head, rest = _log_gamma_above(clamped)
    power = exp_of_sum(where(negative, -head, head), where(negative, -rest, rest))
    large = where(negative, power / SQRT_2_PI * reflection, power * SQRT_2_PI)
    result = where(a < LARGE, small, large)
    pole = negative & (apply(math.Floor, x) == x)
    return select(x != x, x, a < TINY, 1.0 / x, pole, NAN, x == INF, INF, result)


@function("x->x")
@in_fp64
def tgamma(x: Number) -> Number:
    """Gamma function. For zeros, an infinity of the same sign; NaN for negative integers and
    -inf."""
    return gamma(x)


def log_gamma(a: Number) -> Number:
    """log(gamma(a)) for a >= 0."""
    y, product = _reduced(where(a < LARGE, a, 1.0))
    under_one = y < 1.0
    t = where(under_one, y - 1.0, y - 2.0)
    zeros = t * where(under_one, y, y - 1.0)
    logarithm = apply(math.Log, where(under_one, y, product))
    small = fma(zeros, polynomial(t, LGAMMA), where(under_one, -logarithm, logarithm))
    reciprocal = 1.0 / a
    series = fma(polynomial(reciprocal * reciprocal, STIRLING), reciprocal, HALF_LOG_2_PI_LESS_HALF)
    large = fma(a - 0.5, apply(math.Log, a) - 1.0, series)
    return where(a < LARGE, small, large)


@function("x->x")
@in_fp64
def lgamma(x: Number) -> Number:
    """Logarithm of the absolute value of the gamma function; infinite at its poles."""
    a = abs(x)
    positive = log_gamma(a)
    sine = abs(sine_of_half_turns(a))
    reflected = apply(math.Log, PI[0] / (a * sine)) - positive
    negative = select(a < TINY, positive, sine == 0.0, INF, reflected)
    result = where(x < 0.0, negative, positive)
    return select(x != x, x, a == INF, INF, result)

"""The elementary functions of f64 that differ from those of f32.

`lowering.math` describes the origin of the coefficients and formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.lowering.emit import Builder, V
from tilewright.lowering.math_common import (
    FORMAT_F64,
    HALF_PI_SPLIT,
    TRIG_HUGE,
    clamp_high,
    copysign,
    fabs,
    if_any,
    int_bits,
    is_odd,
    negate_if_bit,
    polynomial,
    reduce_ln2,
    scale,
)

# (exp(r) - 1 - r) / r**2 on |r| <= ln2/2, 2**-56.8.
_EXP = (
    0.500000000000001,
    0.16666666666666674,
    0.041666666666519775,
    0.008333333333322037,
    0.0013888888948496267,
    0.00019841269887110348,
    2.4801486563471478e-05,
    2.7557241750305074e-06,
    2.7632942641482864e-07,
    2.511027050068687e-08,
)
# (log((1+s)/(1-s))/s - 2) / s**2 in s**2, s = f/(2+f), for 1+f in sqrt(1/2) .. sqrt(2), 2**-58.6.
_LOG = (
    0.666666666666671,
    0.39999999999517066,
    0.28571428729813664,
    0.22222199042186974,
    0.18183573858789398,
    0.15313109267545927,
    0.14811038629320447,
)
# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2/2) / r**4 in r**2 on |r| <= pi/4, 2**-57.9 and
# 2**-63.9.
_SIN = (
    -0.1666666666666663,
    0.008333333333321907,
    -0.00019841269829411212,
    2.7557313556766714e-06,
    -2.5050737241291714e-08,
    1.5895598501555871e-10,
)
_COS = (
    0.04166666666666659,
    -0.0013888888888872733,
    2.480158728864373e-05,
    -2.7557314117740553e-07,
    2.0875692283300693e-09,
    -1.1358083889577782e-11,
)
# (erf(x)/x - 2/sqrt(pi)) / x**2 in x**2 on |x| <= 1, 2**-56.9.
_ERF_SMALL = (
    -0.376126389031836,
    0.11283791670946212,
    -0.026866170643355596,
    0.0052239776077438954,
    -0.0008548325995306592,
    0.00012055295296187739,
    -1.4924741654926288e-05,
    1.644745829423054e-06,
    -1.620859748335568e-07,
    1.3720080829032594e-08,
    -7.795238829768174e-10,
)
# exp(x**2) * erfc(x) in x - 1.5 on 1 .. 6, 2**-56.4 of erf.
_ERF_LARGE = (
    0.3215854164543176,
    -0.1636229177325587,
    0.07615103985546125,
    -0.03293090529969602,
    0.013377340953640468,
    -0.005145957544907095,
    0.001886134867826856,
    -0.0006619300930176954,
    0.00022331002725368027,
    -7.265884367252428e-05,
    2.2863911846839827e-05,
    -6.974855730092887e-06,
    2.067795337463122e-06,
    -5.972294093711206e-07,
    1.676216560736221e-07,
    -4.469822768410844e-08,
    1.0695952905686943e-08,
    -2.1021958583173647e-09,
    3.0388836834620477e-10,
    -2.7813298384819332e-11,
    1.186912843423055e-12,
)


def exp_clamped(b: Builder, x: V) -> V:
    """exp of x within exp_range."""
    rounded, _, r = reduce_ln2(b, x, FORMAT_F64.magic + 2 * FORMAT_F64.bias)
    return scale(b, polynomial(b, r, (1.0, 1.0, *_EXP)), rounded)


def log_rest(b: Builder, f: V) -> V:
    """log(1+f) - f for 1+f in sqrt(1/2) .. sqrt(2)."""
    s = b.fdiv(f, b.fadd(f, 2.0))
    z = b.fmul(s, s)
    half_square = b.fmul(b.fmul(f, 0.5), f)
    # log(1+f) = 2s + s*R = f - s*f + s*R, and s*f = f**2/2 - s*f**2/2.
    r = b.fmul(z, polynomial(b, z, _LOG))
    return b.fsub(b.fmul(s, b.fadd(half_square, r)), half_square)


def _reduce(b: Builder, x: V) -> tuple[V, V, V]:
    """(q, r, tail) for x = n*pi/2 + r + tail with |x| < 2**19; q is an i64 with n in its low bits.

    x - n*P1 and n*P2 are exact; the tail contains the rounding error of their difference, and n*P3.
    """
    rounded = b.mul_add(x, 2 / math.pi, FORMAT_F64.magic)
    n = b.fsub(rounded, FORMAT_F64.magic)
    first = b.mul_add(n, -HALF_PI_SPLIT[0], x)
    middle = b.fmul(n, HALF_PI_SPLIT[1])
    second = b.fsub(first, middle)
    error = b.fsub(b.fsub(first, second), middle)
    low = b.fsub(b.fmul(n, HALF_PI_SPLIT[2]), error)
    r = b.fsub(second, low)
    return int_bits(b, rounded), r, b.fsub(b.fsub(second, r), low)


def _kernels(b: Builder, r: V, tail: V) -> tuple[tuple[V, V], tuple[V, V]]:
    """Sine and cosine of r + tail, |r| <= pi/4, each as a sum of two."""
    z = b.fmul(r, r)
    # sin(r + tail) = sin r + tail * (1 - z/2), cos(r + tail) = cos r - r * tail
    tail_share = b.mul_add(b.fmul(z, tail), -0.5, tail)
    sine = (r, b.mul_add(b.fmul(r, z), polynomial(b, z, _SIN), tail_share))
    half = b.fmul(z, 0.5)
    head = b.fsub(1.0, half)
    head_error = b.fsub(b.fsub(1.0, head), half)
    remainder = b.fsub(head_error, b.fmul(r, tail))
    cosine = (head, b.mul_add(b.fmul(z, z), polynomial(b, z, _COS), remainder))
    return sine, cosine


def _with_huge(b: Builder, name: str, x: V, result: V) -> V:
    """`result`, or that of the intrinsic in lanes where |x| is too large for `_reduce`."""
    huge = b.fcmp("oge", fabs(b, x), TRIG_HUGE)

    def slow() -> list[V]:
        return [b.select(huge, b.intrinsic(f"llvm.{name}", x.type, [x], [x.type]), result)]

    return if_any(b, huge, [result], slow)[0]


Reduction = Callable[[Builder, V], tuple[V, V, V]]


def sin_cos(quarter: int, reduce_huge: Reduction | None = None) -> Callable[..., V]:
    """The emitter of sin(x + quarter*pi/2): sin for 0, cos for 1; |x| is `most` at most.

    Args:
        reduce_huge: as `_reduce`, for |x| >= 2**19; None to call the C library for these.
    """

    def emit(b: Builder, x: V, most: float = math.inf) -> V:
        q, r, tail = _reduce(b, x)
        reduction, bounded = reduce_huge, most < TRIG_HUGE
        if reduction is not None and not bounded:
            huge = b.fcmp("uge", fabs(b, x), TRIG_HUGE)
            q, r, tail = if_any(b, huge, [q, r, tail], lambda: list(reduction(b, x)))
        sine_parts, cosine_parts = _kernels(b, r, tail)
        sine, cosine = b.fadd(*sine_parts), b.fadd(*cosine_parts)
        q = b.add(q, quarter)
        result = negate_if_bit(b, b.select(is_odd(b, q), cosine, sine), q, 1)
        if not quarter:
            result = b.select(b.fcmp("oeq", x, 0.0), x, result)
        if reduction is not None or bounded:
            return result
        return _with_huge(b, "cos" if quarter else "sin", x, result)

    return emit


def tan(b: Builder, x: V) -> V:
    """t = n/d of the rounded kernels, corrected by (n + dn)/(d + dd) = t + (dn - t*dd)/d."""
    q, r, tail = _reduce(b, x)
    sine, cosine = _kernels(b, r, tail)
    odd = is_odd(b, q)
    rounded: list[V] = []
    lost: list[V] = []
    for head, rest in (
        [b.select(odd, c, s) for s, c in zip(sine, cosine, strict=True)],
        [b.select(odd, s, c) for s, c in zip(sine, cosine, strict=True)],
    ):
        rounded.append(b.fadd(head, rest))
        lost.append(b.fsub(rest, b.fsub(rounded[-1], head)))  # exact: |head| > |rest|
    quotient = b.fdiv(rounded[0], rounded[1])
    correction = b.fdiv(b.fsub(lost[0], b.fmul(quotient, lost[1])), rounded[1])
    result = negate_if_bit(b, b.fadd(quotient, correction), q, 0)
    return _with_huge(b, "tan", x, b.select(b.fcmp("oeq", x, 0.0), x, result))


def erf(b: Builder, x: V) -> V:
    """x*P(x**2) for |x| <= 1, else 1 - exp(-x**2) * P(|x|), with |x| clamped to 6."""
    magnitude = clamp_high(b, fabs(b, x), 6.0)
    z = b.fmul(magnitude, magnitude)
    factor = b.mul_add(z, polynomial(b, z, _ERF_SMALL), 2 / math.sqrt(math.pi) - 1)
    small = b.mul_add(magnitude, factor, magnitude)
    # The rounding error of x**2 is negligible: erfc is below 0.16, and decreases as x**2 grows.
    scaled = polynomial(b, b.fsub(magnitude, 1.5), _ERF_LARGE)
    large = b.fsub(1.0, b.fmul(exp_clamped(b, b.fneg(z)), scaled))
    return copysign(b, b.select(b.fcmp("ogt", magnitude, 1.0), large, small), x)


def pow_(b: Builder, x: V, y: V) -> V:
    """The intrinsic, as a double precision logarithm is not accurate enough."""
    return b.intrinsic("llvm.pow", x.type, [x, y], [x.type])

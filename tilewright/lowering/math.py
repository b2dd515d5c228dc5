"""Elementary functions as branch-free vector code, for any target.

`MATH` maps a name to a function that emits code for a scalar or vector of f32 or f64 (narrower
floats are widened by the caller). It uses ordinary LLVM arithmetic only, so it works on every
target; products are fused according to `Builder.has_fma`. A target with better instructions
overrides the lowering of an op.

Every function handles signed zeros, infinities, NaN, subnormal arguments and results, overflow and
underflow as C's Annex F specifies (except for the sign of a NaN). Errors are at most 2 ulp, with
and without fma; `tests/lowering/test_math.py` measures them and has a bound for each.

Library functions are called in two cases:
- sin, cos, tan of f64 call the intrinsics ``llvm.sin`` and so on, lane by lane, if the magnitude of
  a lane is 2**19 or more. That is rare, and requires more than 1100 bits of 2/pi to reduce.
- pow of f64 is ``llvm.pow``: it requires a logarithm of more than double precision.
A target without a C library overrides these.

The coefficients: each polynomial is the minimax one, from Remez' exchange algorithm on a Chebyshev
grid with 40 digits, of the expression in the comment above it, weighted for the relative error of
the function itself. The stated error is that of the polynomial with exact coefficients; they are
rounded to the type where they are emitted. Other constants are exact to the type.

This file has the code common to f32 and f64, `math_f32` and `math_f64` the rest, `math_common` the
helpers of all three.

Sources of the formulas: W. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980,
for reductions with a constant in parts; K. C. Ng and others, FDLIBM (Sun Microsystems, 1993), for
the logarithm by s = f/(2+f) and the trigonometric kernels with a tail; M. Payne and R. Hanek,
"Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983, for large arguments;
D. Knuth, TAOCP volume 2, section 4.2.2, for the exact sum.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.lowering import math_f32, math_f64
from tilewright.lowering.emit import Builder, V, const, zero
from tilewright.lowering.math_common import (
    FORMAT_F32,
    clamp_high,
    clamp_low,
    copysign,
    decompose,
    fabs,
    format_of,
    int_bits,
    log_specials,
    polynomial,
    power_of_two,
    reduce_ln2,
    scale,
    scale_factors,
    trunc,
)


def _by_format(f32: Callable[..., V], f64: Callable[..., V]) -> Callable[..., V]:
    """Dispatch between two emitters on the type of the first operand."""

    def emit(b: Builder, x: V, *rest: V, **facts: float) -> V:
        return (f32 if format_of(x) is FORMAT_F32 else f64)(b, x, *rest, **facts)

    return emit


_exp_clamped = _by_format(math_f32.exp_clamped, math_f64.exp_clamped)
_log_rest = _by_format(math_f32.log_rest, math_f64.log_rest)

# --------------------------------------------------------------------------------------------
# Exponentials
# --------------------------------------------------------------------------------------------


def _exp(b: Builder, x: V) -> V:
    low, high = format_of(x).exp_range
    if b.own_scale is not None and format_of(x) is FORMAT_F32:
        return math_f32.exp_scaled(b, clamp_low(b, x, low), b.own_scale)
    return _exp_clamped(b, clamp_high(b, clamp_low(b, x, low), high))


def _exp2(b: Builder, x: V) -> V:
    """2**n * 2**r with x = n + r; exact if x is an integer."""
    f = format_of(x)
    if b.own_scale is not None:
        n = _unary("llvm.roundeven")(b, x)
        return b.own_scale(b, polynomial(b, b.fsub(x, n), (1.0, *f.exp2)), n)
    x = clamp_high(b, clamp_low(b, x, f.exp2_range[0]), f.exp2_range[1])
    magic = f.magic + 2 * f.bias
    rounded = b.fadd(x, magic)
    r = b.fsub(x, b.fsub(rounded, magic))
    return scale(b, polynomial(b, r, (1.0, *f.exp2)), rounded)


def _expm1_scaled(b: Builder, x: V, exponent_offset: int) -> V:
    """expm1(x) * 2**offset, for x within the range where 2**(n + offset) is normal.

    With s = 2**(n + offset), that is (s - 2**offset) + s*r + s*r**2*P(r). The first difference is
    exact or nearly so, and 0 for n = 0, so that the result is accurate for the smallest x.
    """
    f = format_of(x)
    rounded, _, r = reduce_ln2(b, x, f.magic + f.bias + exponent_offset)
    s = power_of_two(b, int_bits(b, rounded))
    head = b.mul_add(s, r, b.fsub(s, 2.0**exponent_offset))
    return b.mul_add(s, b.fmul(b.fmul(r, r), polynomial(b, r, f.expm1)), head)


def _expm1(b: Builder, x: V) -> V:
    f = format_of(x)
    y = clamp_high(b, clamp_low(b, x, -f.expm1_saturates), f.exp_range[1])
    # Half of the result, so that 2**n is finite if the result is.
    half = _expm1_scaled(b, y, -1)
    tiny = b.fcmp("olt", fabs(b, x), 2.0 ** -(f.mantissa + 3))
    return b.select(tiny, x, b.fadd(half, half))


def _tanh(b: Builder, x: V) -> V:
    """x + x**3 P(x**2) for |x| <= 0.55; else tanh|x| = m / (m + 2) with m = expm1(2|x|)."""
    f = format_of(x)
    magnitude = clamp_high(b, fabs(b, x), f.tanh_saturates)
    m = _expm1_scaled(b, b.fadd(magnitude, magnitude), 0)
    large = b.fdiv(m, b.fadd(m, 2.0))
    z = b.fmul(magnitude, magnitude)
    cubed = b.fmul(magnitude, z)
    small = b.mul_add(cubed, polynomial(b, z, f.tanh), magnitude)
    return copysign(b, b.select(b.fcmp("ogt", magnitude, 0.55), large, small), x)


def _sigmoid(b: Builder, x: V) -> V:
    """1/(1+e) for x >= 0, else e/(1+e), with e = exp(-|x|), which cannot overflow.

    The rounding errors of e, 1+e and the quotient add up to 2.5 ulp. So the errors of e and 1+e are
    computed, and correct the quotient: (n + dn)/(d + dd) = t + (dn - t*dd)/d, with t = n/d.
    """
    f = format_of(x)
    y = clamp_low(b, b.fneg(fabs(b, x)), f.exp_range[0])
    rounded, _, r = reduce_ln2(b, y, f.magic + 2 * f.bias)
    expm1 = b.mul_add(b.fmul(r, r), polynomial(b, r, f.expm1), r)
    head = b.fadd(expm1, 1.0)
    first, second = scale_factors(b, rounded)
    e = b.fmul(b.fmul(head, first), second)
    e_lost = b.fmul(b.fmul(b.fsub(expm1, b.fsub(head, 1.0)), first), second)
    d = b.fadd(e, 1.0)
    d_lost = b.fadd(b.fsub(e, b.fsub(d, 1.0)), e_lost)
    negative = b.fcmp("olt", x, 0.0)
    t = b.fdiv(b.select(negative, e, 1.0), d)
    correction = b.fsub(b.select(negative, e_lost, 0.0), b.fmul(t, d_lost))
    # The correction is below 2 ulp, so a linear approximation of 1/d on 1 .. 2, with an error of
    # 0.043, is sufficient.
    return b.mul_add(correction, b.mul_add(d, -0.5, 1.457), t)


# --------------------------------------------------------------------------------------------
# Logarithms
# --------------------------------------------------------------------------------------------


def _log_of_parts(b: Builder, exponent: V, f: V, base: str) -> V:
    """log(2**exponent * (1+f)) in a base; `exponent` is a float, f as for `_log_rest`."""
    form = format_of(f)
    rest = _log_rest(b, f)
    if base == "e":
        low = b.mul_add(exponent, form.ln2[1], rest)
        return b.mul_add(exponent, form.ln2[0], b.fadd(f, low))
    one, unit = {
        "2": ((1.0, 0.0), form.log2e),
        "10": (form.log10_2, form.log10e),
    }[base]
    low = b.mul_add(rest, unit[0], b.fmul(f, unit[1]))
    if one[1]:
        low = b.mul_add(exponent, one[1], low)
    return b.mul_add(exponent, one[0], b.mul_add(f, unit[0], low))


def _log_in_base(base: str) -> Callable[[Builder, V], V]:
    def emit(b: Builder, x: V) -> V:
        f = format_of(x)
        subnormal = b.fcmp("olt", x, 2.0 ** (1 - f.bias))
        normal = b.select(subnormal, b.fmul(x, 2.0**f.mantissa), x)
        bits, m = decompose(b, normal)
        shift = const(bits.type, -f.mantissa)
        exponent = b.sitofp(b.add(bits, b.select(subnormal, shift, zero(bits.type))), f.float)
        return log_specials(b, x, x, _log_of_parts(b, exponent, b.fsub(m, 1.0), base))

    return emit


def _log1p(b: Builder, x: V) -> V:
    """log of u = 1+x, with the rounding error of u added to its fraction."""
    f = format_of(x)
    u = b.fadd(x, 1.0)
    back = b.fsub(u, 1.0)
    lost = b.fadd(b.fsub(1.0, b.fsub(u, back)), b.fsub(x, back))  # Knuth's TwoSum
    exponent, m = decompose(b, u)
    # 2**-exponent, or 0 if that is not normal; the error is negligible then.
    below = b.sub(f.bias, exponent)
    down = power_of_two(b, b.select(b.icmp("sgt", below, 0), below, zero(below.type)))
    fraction = b.mul_add(lost, down, b.fsub(m, 1.0))
    result = _log_of_parts(b, b.sitofp(exponent, f.float), fraction, "e")
    result = log_specials(b, x, u, result)
    return b.select(b.fcmp("oeq", x, 0.0), x, result)


# --------------------------------------------------------------------------------------------
# The registry
# --------------------------------------------------------------------------------------------


def _unary(intrinsic: str) -> Callable[[Builder, V], V]:
    return lambda b, x: b.intrinsic(intrinsic, x.type, [x], [x.type])


def _rsqrt(b: Builder, x: V) -> V:
    return b.fdiv(1.0, _unary("llvm.sqrt")(b, x))


def _exactly(emit: Callable[..., V]) -> Callable[..., V]:
    """Emit without fast-math flags: contraction would invalidate the error terms, and nnan the
    special cases."""

    def guarded(b: Builder, *operands: V, **facts: float) -> V:
        first = operands[0]
        format_of(first)
        if any(x.type is not first.type for x in operands):
            raise TypeError(f"math function of different types: {operands}")
        with b.flags(""):
            return emit(b, *operands, **facts)

    return guarded


MATH: dict[str, Callable[..., V]] = {
    name: _exactly(emit)
    for name, emit in {
        "exp": _exp,
        "exp2": _exp2,
        "expm1": _expm1,
        "log": _log_in_base("e"),
        "log2": _log_in_base("2"),
        "log10": _log_in_base("10"),
        "log1p": _log1p,
        "sin": _by_format(math_f32.sin_cos(0), math_f64.sin_cos(0)),
        "cos": _by_format(math_f32.sin_cos(1), math_f64.sin_cos(1)),
        "tan": _by_format(math_f32.tan, math_f64.tan),
        "tanh": _tanh,
        "erf": _by_format(math_f32.erf, math_f64.erf),
        "sigmoid": _sigmoid,
        "sqrt": _unary("llvm.sqrt"),
        "rsqrt": _rsqrt,
        "floor": _unary("llvm.floor"),
        "ceil": _unary("llvm.ceil"),
        "trunc": trunc,
        "rint": _unary("llvm.roundeven"),
        "pow": _by_format(math_f32.pow_, math_f64.pow_),
    }.items()
}
"""name -> emitter ``(builder, x) -> result`` (pow: ``(builder, x, y)``), all of one type.

    y = MATH["exp"](b, b.load(vector(F32, 16), address))

sin and cos take the largest magnitude of x, too, as `most`; by default, it is unknown. sin, cos and
tan create blocks, so the builder's current block changes. Raises TypeError for types other than f32
and f64, scalar or vector.
"""

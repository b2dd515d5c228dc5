"""Helpers of the elementary functions: parameters of the float formats, and common steps.

`lowering.math` describes the origin of the coefficients and formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.base.record import record
from tilewright.lowering.emit import F32, F64, I1, I32, I64, Builder, LType, V, const, like

# --------------------------------------------------------------------------------------------
# Formats
# --------------------------------------------------------------------------------------------


@record
class Format:
    """The parameters of the algorithms for a float type.

    Attributes (coefficients of polynomials are in ascending order):
        float, int: the LLVM type, and the integer type of its size.
        mantissa, bias: explicit bits of the significand, and the exponent's bias.
        sqrt_half_bits: the bits of sqrt(1/2).
        ln2, log10_2: as a sum of two, of which the first is short enough that its product with any
            exponent is exact.
        log2e, log10e: as a sum of two, with twice the precision.
        expm1: (expm1(r) - r) / r**2 on |r| <= ln2/2.
        exp2: (2**r - 1) / r on |r| <= 1/2.
        tanh: (tanh(x) - x) / x**3 in x**2, on |x| <= 0.55.
        exp_range: exp is 0 below the first and infinite above the second; exp2_range likewise.
        expm1_saturates: expm1(-x) is -1 for larger x; tanh_saturates: tanh(x) is 1.
    """

    float: LType
    int: LType
    mantissa: int
    bias: int
    sqrt_half_bits: int
    ln2: tuple[float, float]
    log10_2: tuple[float, float]
    log2e: tuple[float, float]
    log10e: tuple[float, float]
    expm1: Sequence[float]
    exp2: Sequence[float]
    tanh: Sequence[float]
    exp_range: tuple[float, float]
    exp2_range: tuple[float, float]
    expm1_saturates: float
    tanh_saturates: float

    @property
    def magic(self) -> float:
        """Adding this to |y| < 2**(mantissa - 2) rounds y to an integer, in the low bits."""
        return 1.5 * 2.0**self.mantissa


FORMAT_F32 = Format(
    float=F32,
    int=I32,
    mantissa=23,
    bias=127,
    sqrt_half_bits=0x3F3504F3,
    ln2=(0.693145751953125, 1.4286068203094173e-06),
    log10_2=(0.301025390625, 4.605038981195214e-06),
    log2e=(1.4426950216293335, 1.9259629911266175e-08),
    log10e=(0.4342944920063019, -1.0103050052231683e-08),
    # 2**-26.2
    expm1=(
        0.4999999812146121,
        0.16666542733286724,
        0.04166720415213786,
        0.008366644907790202,
        0.0013882567699826341,
    ),
    # 2**-27.9
    exp2=(
        0.6931472253950111,
        0.24022651084117294,
        0.05550297314199325,
        0.009618030782505154,
        0.0013410000966100157,
        0.00015469731977475548,
    ),
    # 2**-29.8
    tanh=(
        -0.33333317578272975,
        0.13332586568235832,
        -0.05385233989181277,
        0.021071757109505807,
        -0.006274302246103491,
    ),
    exp_range=(-104.0, 89.0),
    exp2_range=(-151.0, 128.0),
    expm1_saturates=18.0,
    tanh_saturates=9.02,
)

FORMAT_F64 = Format(
    float=F64,
    int=I64,
    mantissa=52,
    bias=1023,
    sqrt_half_bits=0x3FE6A09E667F3BCD,
    ln2=(0.6931471805598903, 5.497923018708371e-14),
    log10_2=(0.30102999566395283, 2.8363394551044964e-14),
    log2e=(1.4426950408889634, 2.0355273740931033e-17),
    log10e=(0.4342944819032518, 1.098319650216765e-17),
    # 2**-61.7
    expm1=(
        0.5,
        0.16666666666666677,
        0.041666666666666505,
        0.008333333333321513,
        0.0013888888888963517,
        0.00019841269886477564,
        2.4801587171021706e-05,
        2.755724380395376e-06,
        2.755740330992323e-07,
        2.5109195194557558e-08,
        2.0875315228136882e-09,
    ),
    # 2**-58.0
    exp2=(
        0.6931471805599453,
        0.2402265069591013,
        0.055504108664820084,
        0.009618129107594119,
        0.0013333558146774662,
        0.00015403530457113699,
        1.525273349309785e-05,
        1.3215435281540125e-06,
        1.0178199581573009e-07,
        7.0737833760220315e-09,
        4.4347701197406733e-10,
    ),
    # 2**-60.6
    tanh=(
        -0.333333333333333,
        0.13333333333326622,
        -0.053968253963760766,
        0.021869488385859386,
        -0.008863232601489916,
        0.0035920920308585365,
        -0.001455542848154229,
        0.000588444495133568,
        -0.00023338158615364462,
        8.331647523664211e-05,
        -1.9494703609987528e-05,
    ),
    exp_range=(-746.0, 710.0),
    exp2_range=(-1076.0, 1024.0),
    expm1_saturates=38.0,
    tanh_saturates=19.1,
)

# pi/2 as a sum of parts whose products with a quotient below 2**20 are exact; and as one for fma.
HALF_PI_SPLIT = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
HALF_PI_FMA = (1.5707963267948966, 6.123233995736766e-17)
# Larger arguments are reduced differently, as their quotients exceed that limit.
TRIG_HUGE = 2.0**19

# --------------------------------------------------------------------------------------------
# Common steps
# --------------------------------------------------------------------------------------------


def format_of(x: V) -> Format:
    """The format of a value's element. Raises TypeError for other types than f32 and f64."""
    if x.type.element is F32:
        return FORMAT_F32
    if x.type.element is F64:
        return FORMAT_F64
    raise TypeError(f"math functions take f32 or f64, not {x.type}; widen narrower floats first")


def polynomial(b: Builder, x: V, coefficients: Sequence[float]) -> V:
    """c0 + c1 x + c2 x**2 + ..., by Horner's rule."""
    result: V = const(x.type, coefficients[-1])
    for c in coefficients[-2::-1]:
        result = b.mul_add(result, x, c)
    return result


def fabs(b: Builder, x: V) -> V:
    """The absolute value of x."""
    return b.intrinsic("llvm.fabs", x.type, [x], [x.type])


def copysign(b: Builder, magnitude: V, sign: V) -> V:
    """`magnitude` with the sign of `sign`."""
    return b.intrinsic("llvm.copysign", sign.type, [magnitude, sign], [sign.type])


def trunc(b: Builder, x: V) -> V:
    """x rounded toward zero to an integer, as a float."""
    return b.intrinsic("llvm.trunc", x.type, [x], [x.type])


def clamp_low(b: Builder, x: V, low: float) -> V:
    """max(x, low), propagating NaN. A single instruction where LLVM selects a max for it."""
    return b.select(b.fcmp("olt", x, low), low, x)


def clamp_high(b: Builder, x: V, high: float) -> V:
    """min(x, high), propagating NaN."""
    return b.select(b.fcmp("ogt", x, high), high, x)


def int_bits(b: Builder, x: V) -> V:
    """The bits of a float, as an integer of the same width."""
    return b.bitcast(x, like(format_of(x).int, x.type))


def float_bits(b: Builder, bits: V) -> V:
    """The float that has the bits of an i32 or i64."""
    return b.bitcast(bits, like(F32 if bits.type.bits == 32 else F64, bits.type))


def power_of_two(b: Builder, shifted: V) -> V:
    """2**k from an integer with k + bias in its low bits; higher bits are shifted out."""
    f = FORMAT_F32 if shifted.type.bits == 32 else FORMAT_F64
    return float_bits(b, b.shl(shifted, f.mantissa))


def scale_factors(b: Builder, rounded: V) -> tuple[V, V]:
    """2**floor(n/2) and 2**ceil(n/2), both normal for any n for which 2**n may be finite or 0.

    `rounded` is n + magic + 2*bias, so its low bits hold n + 2*bias.
    """
    both = int_bits(b, rounded)
    half = b.lshr(both, 1)
    return power_of_two(b, half), power_of_two(b, b.sub(both, half))


def scale(b: Builder, p: V, rounded: V) -> V:
    """p * 2**n for p near 1, rounded once; `rounded` as for `scale_factors`."""
    if b.own_scale is not None:
        f = format_of(p)
        return b.own_scale(b, p, b.fsub(rounded, f.magic + 2 * f.bias))
    first, second = scale_factors(b, rounded)
    return b.fmul(b.fmul(p, first), second)


def reduce_ln2(b: Builder, x: V, magic: float, step: int = 1) -> tuple[V, V, V]:
    """(m + magic, step*m, r) with x = step*m*ln2 + r and |r| <= step*ln2/2."""
    f = format_of(x)
    rounded = b.mul_add(x, f.log2e[0] / step, magic)
    m = b.fsub(rounded, magic)
    r = b.mul_add(m, -step * f.ln2[0], x)
    return rounded, m, b.mul_add(m, -step * f.ln2[1], r)


def decompose(b: Builder, x: V) -> tuple[V, V]:
    """(e, m) with x = 2**e * m and m in sqrt(1/2) .. sqrt(2), for normal x > 0; e an integer."""
    f = format_of(x)
    shifted = b.sub(int_bits(b, x), f.sqrt_half_bits)
    exponent = b.ashr(shifted, f.mantissa)
    fraction = b.and_(shifted, (1 << f.mantissa) - 1)
    return exponent, float_bits(b, b.add(fraction, f.sqrt_half_bits))


def log_specials(b: Builder, x: V, argument: V, result: V) -> V:
    """The special cases of a logarithm of `argument` (x, or 1+x): NaN if negative, -inf if 0, and x
    if infinite or NaN."""
    result = b.select(b.fcmp("olt", argument, math.inf), result, x)
    pole = b.select(b.fcmp("oeq", argument, 0.0), const(x.type, -math.inf), math.nan)
    return b.select(b.fcmp("ugt", argument, 0.0), result, pole)


def _any(b: Builder, condition: V) -> V:
    """Whether the condition is true in some lane, as an i1."""
    if not condition.type.lanes:
        return condition
    return b.intrinsic("llvm.vector.reduce.or", I1, [condition], [condition.type])


def if_any(b: Builder, condition: V, values: Sequence[V], slow: Callable[[], list[V]]) -> list[V]:
    """The result of `slow()` if the condition is true in some lane, which is unlikely; else
    `values`."""
    rare, join = b.block("rare"), b.block("join")
    source = b.current
    b.cond_br(_any(b, condition), rare, join, weights=(1, 2000))
    b.at(rare)
    computed = slow()
    rare_end = b.current
    b.br(join)
    b.at(join)
    return b.merge((source, values), (rare_end, computed))


def negate_if_bit(b: Builder, value: V, q: V, bit: int) -> V:
    """`value`, negated where bit `bit` of q is set."""
    bits = int_bits(b, value)
    selected = b.and_(q, 1 << bit)
    return float_bits(
        b, b.xor(bits, b.shl(b.zext(selected, bits.type.element), bits.type.bits - 1 - bit))
    )


def is_odd(b: Builder, q: V) -> V:
    """Whether the lowest bit of an integer is set."""
    return b.icmp("ne", b.and_(q, 1), 0)

"""Elementary functions as branch-free vector code, for any target.

`MATH` maps a name to a function that emits the code for one scalar or vector of f32 or f64
(narrower floats are widened by the caller). All of it is ordinary LLVM arithmetic, so every target
reuses it; `Builder.has_fma` decides whether products are fused. A target with better instructions
puts its own function in place of an entry.

Every function treats signed zeros, infinities, NaN, subnormal arguments and results, overflow and
underflow as C's Annex F does (only the sign of a NaN is left open). Errors are at most 2 ulp with
and without fma; `tests/lowering/test_math.py` measures them and states a bound for each.

Where the code calls out, and why:
- sin, cos, tan of f64 call the intrinsics ``llvm.sin`` and so on, lane by lane, when some lane is
  as large as 2**19. That is rare, and reducing such arguments takes more than 1100 bits of 2/pi.
- pow of f64 is ``llvm.pow``: it needs a logarithm of more than double precision.
A target without a C library overrides these.

How the coefficients were found: each polynomial is the minimax one, from Remez' exchange algorithm
on a Chebyshev grid with 40 digits, of the expression in the comment above it, weighted so that the
error counts relative to the function itself. The stated error is that of the exact polynomial;
coefficients are rounded to the type where they are emitted. Other constants are exact to the type.

Sources of the formulas: W. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980,
for reductions with a constant in parts; K. C. Ng and others, FDLIBM (Sun Microsystems, 1993), for
the logarithm by s = f/(2+f) and the trigonometric kernels with a tail; M. Payne and R. Hanek,
"Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983, for large arguments;
D. Knuth, TAOCP volume 2, section 4.2.2, for the exact sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.lowering.emit import (
    F32,
    F64,
    I1,
    I32,
    I64,
    Builder,
    LType,
    V,
    const,
    like,
    zero,
)

# --------------------------------------------------------------------------------------------
# Formats
# --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Format:
    """What the algorithms need to know of a float type. Polynomials begin with the constant.

    ln2, log10_2: in two parts, the first short enough that k * first is exact for exponents k.
    log2e, log10e: in two parts, together of twice the precision.
    expm1: (expm1(r) - r) / r**2 on |r| <= ln2/2.
    exp2: (2**r - 1) / r on |r| <= 1/2.
    sin: (sin(r) - r) / r**3 and cos: (cos(r) - 1 + r**2/2) / r**4 in r**2, on |r| <= pi/4.
    tanh: (tanh(x) - x) / x**3 in x**2, on |x| <= 0.55.
    exp_range: below the first exp is 0, above the second it is infinite; exp2_range likewise.
    expm1_saturates: expm1(-x) is -1 above; tanh_saturates: tanh(x) is 1 above.
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
    sin: Sequence[float]
    cos: Sequence[float]
    tanh: Sequence[float]
    exp_range: tuple[float, float]
    exp2_range: tuple[float, float]
    expm1_saturates: float
    tanh_saturates: float

    @property
    def magic(self) -> float:
        """Adding this to |y| < 2**(mantissa - 2) rounds y to an integer, kept in the low bits."""
        return 1.5 * 2.0**self.mantissa


_F32 = _Format(
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
    # 2**-28.0 and 2**-33.0
    sin=(-0.16666654465615086, 0.008332151383988304, -0.00019513981956574076),
    cos=(0.04166664542537779, -0.0013887303461739666, 2.443166834603073e-05),
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

_F64 = _Format(
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
    # 2**-57.9 and 2**-63.9
    sin=(
        -0.1666666666666663,
        0.008333333333321907,
        -0.00019841269829411212,
        2.7557313556766714e-06,
        -2.5050737241291714e-08,
        1.5895598501555871e-10,
    ),
    cos=(
        0.04166666666666659,
        -0.0013888888888872733,
        2.480158728864373e-05,
        -2.7557314117740553e-07,
        2.0875692283300693e-09,
        -1.1358083889577782e-11,
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

# f32: (exp(r) - 1 - r) / r**2 on |r| <= ln2 (twice the usual range), 2**-24.9.
_EXP_F32 = (
    0.5000005275871728,
    0.16666672517344264,
    0.04165974558821017,
    0.008332565703027626,
    0.0014129974590866142,
    0.0002010877574704587,
)
# f64: (exp(r) - 1 - r) / r**2 on |r| <= ln2/2, 2**-56.8.
_EXP_F64 = (
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
# f32: (log(1+f) - f) / f**2 for 1+f in sqrt(1/2) .. sqrt(2), 2**-27.9.
_LOG_F32 = (
    -0.499999883462592,
    0.3333332568496391,
    -0.2500158299753969,
    0.20001974336665418,
    -0.16609081922401608,
    0.14181817423738205,
    -0.1324298582048636,
    0.1290447958536622,
    -0.07621837588495474,
)
# f64: (log((1+s)/(1-s))/s - 2) / s**2 in s**2, s = f/(2+f), 1+f as above, 2**-58.6.
_LOG_F64 = (
    0.666666666666671,
    0.39999999999517066,
    0.28571428729813664,
    0.22222199042186974,
    0.18183573858789398,
    0.15313109267545927,
    0.14811038629320447,
)
# f32: erf(x)/x - 1 in x**2 on |x| <= 0.95, 2**-25.4.
_ERF_SMALL_F32 = (
    0.12837914492608388,
    -0.3761245165851501,
    0.11281355611971074,
    -0.02674973455067342,
    0.00496845710261794,
    -0.0005865861809135112,
)
# f32: log2(erfc(x)) on 0.95 .. 4, 2**-25.5 of erf.
_ERF_LARGE_F32 = (
    -0.0031679540049465845,
    -1.6144804461267204,
    -0.9410576446018363,
    -0.1299566512717242,
    0.021989820680820275,
    -0.0017436584109301572,
)
# f64: (erf(x)/x - 2/sqrt(pi)) / x**2 in x**2 on |x| <= 1, 2**-56.9.
_ERF_SMALL_F64 = (
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
# f64: exp(x**2) * erfc(x) in x - 1.5 on 1 .. 6, 2**-56.4 of erf.
_ERF_LARGE_F64 = (
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
# f32 through f64: the trigonometric kernels for tan, 2**-37.5 and 2**-42.9; log2((1+s)/(1-s))/s in
# s**2, 2**-43.6; (2**r - 1)/r, 2**-34.3.
_SIN_TAN = (
    -0.16666666640380515,
    0.008333329256264276,
    -0.00019839296548363562,
    2.7179710309303876e-06,
)
_COS_TAN = (
    0.041666666618729024,
    -0.0013888883434883016,
    2.4799443032271707e-05,
    -2.720434380560995e-07,
)
_LOG2_POW = (
    2.88539008177785,
    0.961796694113718,
    0.5770779422462297,
    0.4122092652538879,
    0.31990513478741683,
    0.2829086468850141,
)
_EXP2_POW = (
    0.69314718070455,
    0.24022651066538944,
    0.05550410365874314,
    0.009618038134897977,
    0.0013333935181146519,
    0.0001546675556194169,
    1.519612408120001e-05,
)

# pi/2 in parts whose product with a reduced quotient (below 2**20) is exact, and for fma.
_HALF_PI_SPLIT = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_HALF_PI_FMA = (1.5707963267948966, 6.123233995736766e-17)
# floor(2/pi * 2**256)
_TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561
_TRIG_HUGE = 2.0**19

_NAN = math.nan
_INF = math.inf

# --------------------------------------------------------------------------------------------
# Pieces
# --------------------------------------------------------------------------------------------


def _format(x: V) -> _Format:
    if x.type.element is F32:
        return _F32
    if x.type.element is F64:
        return _F64
    raise TypeError(f"math functions take f32 or f64, not {x.type}; widen narrower floats first")


def _polynomial(b: Builder, x: V, coefficients: Sequence[float]) -> V:
    """c0 + c1 x + c2 x**2 + ..., by Horner's rule."""
    result: V = const(x.type, coefficients[-1])
    for c in coefficients[-2::-1]:
        result = b.mul_add(result, x, c)
    return result


def _abs(b: Builder, x: V) -> V:
    return b.intrinsic("llvm.fabs", x.type, [x], [x.type])


def _copysign(b: Builder, magnitude: V, sign: V) -> V:
    return b.intrinsic("llvm.copysign", sign.type, [magnitude, sign], [sign.type])


def _clamp_low(b: Builder, x: V, low: float) -> V:
    """The larger of both; NaN stays. One instruction where compare and select fuse to a max."""
    return b.select(b.fcmp("olt", x, low), low, x)


def _clamp_high(b: Builder, x: V, high: float) -> V:
    return b.select(b.fcmp("ogt", x, high), high, x)


def _int_bits(b: Builder, x: V) -> V:
    return b.bitcast(x, like(_format(x).int, x.type))


def _float_bits(b: Builder, bits: V) -> V:
    return b.bitcast(bits, like(F32 if bits.type.bits == 32 else F64, bits.type))


def _power_of_two(b: Builder, shifted: V) -> V:
    """2**k from an integer with k + bias in its low bits; higher bits fall off the end."""
    f = _F32 if shifted.type.bits == 32 else _F64
    return _float_bits(b, b.shl(shifted, f.mantissa))


def _scale_factors(b: Builder, rounded: V) -> tuple[V, V]:
    """2**floor(n/2) and 2**ceil(n/2), both normal for any n at which 2**n may be finite or 0.

    `rounded` is n + magic + 2*bias, so its low bits hold n + 2*bias.
    """
    both = _int_bits(b, rounded)
    half = b.lshr(both, 1)
    return _power_of_two(b, half), _power_of_two(b, b.sub(both, half))


def _scale(b: Builder, p: V, rounded: V) -> V:
    """p * 2**n for p near 1, rounded once; `rounded` as for `_scale_factors`."""
    first, second = _scale_factors(b, rounded)
    return b.fmul(b.fmul(p, first), second)


def _reduce_ln2(b: Builder, x: V, magic: float, step: int = 1) -> tuple[V, V, V]:
    """(m + magic, step*m, r) with x = step*m*ln2 + r and |r| <= step*ln2/2."""
    f = _format(x)
    rounded = b.mul_add(x, f.log2e[0] / step, magic)
    m = b.fsub(rounded, magic)
    r = b.mul_add(m, -step * f.ln2[0], x)
    return rounded, m, b.mul_add(m, -step * f.ln2[1], r)


# --------------------------------------------------------------------------------------------
# Exponentials
# --------------------------------------------------------------------------------------------


def _exp_clamped(b: Builder, x: V) -> V:
    """exp of x within exp_range."""
    f = _format(x)
    if f is _F32:
        # x = 2m ln2 + r: with an even exponent the scale is one factor, applied twice, and is
        # right for subnormal results and overflow too. The wider range of r costs two more terms
        # of the polynomial and saves four integer operations.
        rounded, _, r = _reduce_ln2(b, x, f.magic + f.bias, step=2)
        p = _polynomial(b, r, (1.0, 1.0, *_EXP_F32))
        scale = _power_of_two(b, _int_bits(b, rounded))
        return b.fmul(b.fmul(p, scale), scale)
    rounded, _, r = _reduce_ln2(b, x, f.magic + 2 * f.bias)
    return _scale(b, _polynomial(b, r, (1.0, 1.0, *_EXP_F64)), rounded)


def _exp(b: Builder, x: V) -> V:
    low, high = _format(x).exp_range
    return _exp_clamped(b, _clamp_high(b, _clamp_low(b, x, low), high))


def _exp2(b: Builder, x: V) -> V:
    """x = n + r; exact where x is an integer."""
    f = _format(x)
    x = _clamp_high(b, _clamp_low(b, x, f.exp2_range[0]), f.exp2_range[1])
    magic = f.magic + 2 * f.bias
    rounded = b.fadd(x, magic)
    r = b.fsub(x, b.fsub(rounded, magic))
    return _scale(b, _polynomial(b, r, (1.0, *f.exp2)), rounded)


def _expm1_scaled(b: Builder, x: V, exponent_offset: int) -> V:
    """expm1(x) * 2**offset, for x within the range where 2**(n + offset) is normal.

    With s = 2**(n + offset), that is (s - 2**offset) + s*r + s*r**2*P(r). The first sum is exact
    or nearly so, and where n = 0 it is s*r: nothing is lost for the smallest x.
    """
    f = _format(x)
    rounded, _, r = _reduce_ln2(b, x, f.magic + f.bias + exponent_offset)
    s = _power_of_two(b, _int_bits(b, rounded))
    head = b.mul_add(s, r, b.fsub(s, 2.0**exponent_offset))
    return b.mul_add(s, b.fmul(b.fmul(r, r), _polynomial(b, r, f.expm1)), head)


def _expm1(b: Builder, x: V) -> V:
    f = _format(x)
    y = _clamp_high(b, _clamp_low(b, x, -f.expm1_saturates), f.exp_range[1])
    # Half of the result, so that 2**n is finite where the result is.
    half = _expm1_scaled(b, y, -1)
    tiny = b.fcmp("olt", _abs(b, x), 2.0 ** -(f.mantissa + 3))
    return b.select(tiny, x, b.fadd(half, half))


def _tanh(b: Builder, x: V) -> V:
    """x + x**3 P(x**2) up to 0.55; beyond, with m = expm1(2|x|), tanh|x| = m / (m + 2)."""
    f = _format(x)
    magnitude = _clamp_high(b, _abs(b, x), f.tanh_saturates)
    m = _expm1_scaled(b, b.fadd(magnitude, magnitude), 0)
    large = b.fdiv(m, b.fadd(m, 2.0))
    z = b.fmul(magnitude, magnitude)
    cubed = b.fmul(magnitude, z)
    small = b.mul_add(cubed, _polynomial(b, z, f.tanh), magnitude)
    return _copysign(b, b.select(b.fcmp("ogt", magnitude, 0.55), large, small), x)


def _sigmoid(b: Builder, x: V) -> V:
    """1/(1+e) for x >= 0 and e/(1+e) below, with e = exp(-|x|), which cannot overflow.

    The roundings of e, 1+e and the quotient add up to 2.5 ulp, so e is kept as a sum of two and
    what it and 1+e lost corrects the quotient: (n + dn)/(d + dd) = t + (dn - t*dd)/d.
    """
    f = _format(x)
    y = _clamp_low(b, b.fneg(_abs(b, x)), f.exp_range[0])
    rounded, _, r = _reduce_ln2(b, y, f.magic + 2 * f.bias)
    expm1 = b.mul_add(b.fmul(r, r), _polynomial(b, r, f.expm1), r)
    head = b.fadd(expm1, 1.0)
    first, second = _scale_factors(b, rounded)
    e = b.fmul(b.fmul(head, first), second)
    e_lost = b.fmul(b.fmul(b.fsub(expm1, b.fsub(head, 1.0)), first), second)
    d = b.fadd(e, 1.0)
    d_lost = b.fadd(b.fsub(e, b.fsub(d, 1.0)), e_lost)
    negative = b.fcmp("olt", x, 0.0)
    t = b.fdiv(b.select(negative, e, 1.0), d)
    correction = b.fsub(b.select(negative, e_lost, 0.0), b.fmul(t, d_lost))
    # The correction is below 2 ulp: for 1/d, a line within 0.043 of it on 1 .. 2 will do.
    return b.mul_add(correction, b.mul_add(d, -0.5, 1.457), t)


# --------------------------------------------------------------------------------------------
# Logarithms
# --------------------------------------------------------------------------------------------


def _decompose(b: Builder, x: V) -> tuple[V, V]:
    """(e, m) with x = 2**e * m and m in sqrt(1/2) .. sqrt(2), for normal x > 0; e an integer."""
    f = _format(x)
    shifted = b.sub(_int_bits(b, x), f.sqrt_half_bits)
    exponent = b.ashr(shifted, f.mantissa)
    fraction = b.and_(shifted, (1 << f.mantissa) - 1)
    return exponent, _float_bits(b, b.add(fraction, f.sqrt_half_bits))


def _log_rest(b: Builder, f: V) -> V:
    """log(1+f) - f for 1+f in sqrt(1/2) .. sqrt(2)."""
    if _format(f) is _F32:
        return b.fmul(b.fmul(f, f), _polynomial(b, f, _LOG_F32))
    s = b.fdiv(f, b.fadd(f, 2.0))
    z = b.fmul(s, s)
    half_square = b.fmul(b.fmul(f, 0.5), f)
    # log(1+f) = 2s + s*R = f - s*f + s*R, and s*f = f**2/2 - s*f**2/2.
    r = b.fmul(z, _polynomial(b, z, _LOG_F64))
    return b.fsub(b.fmul(s, b.fadd(half_square, r)), half_square)


def _log_of_parts(b: Builder, exponent: V, f: V, base: str) -> V:
    """log(2**exponent * (1+f)) in a base: exponent a float, |f| small as above."""
    form = _format(f)
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


def _log_specials(b: Builder, x: V, argument: V, result: V) -> V:
    """`argument` (x, or 1+x computed exactly enough) decides: <0 NaN, 0 -inf, inf and NaN x."""
    result = b.select(b.fcmp("olt", argument, _INF), result, x)
    pole = b.select(b.fcmp("oeq", argument, 0.0), const(x.type, -_INF), _NAN)
    return b.select(b.fcmp("ugt", argument, 0.0), result, pole)


def _log_in_base(base: str) -> Callable[[Builder, V], V]:
    def emit(b: Builder, x: V) -> V:
        f = _format(x)
        subnormal = b.fcmp("olt", x, 2.0 ** (1 - f.bias))
        normal = b.select(subnormal, b.fmul(x, 2.0**f.mantissa), x)
        bits, m = _decompose(b, normal)
        shift = const(bits.type, -f.mantissa)
        exponent = b.sitofp(b.add(bits, b.select(subnormal, shift, zero(bits.type))), f.float)
        return _log_specials(b, x, x, _log_of_parts(b, exponent, b.fsub(m, 1.0), base))

    return emit


def _log1p(b: Builder, x: V) -> V:
    """log of u = 1+x, with what u lost to rounding put back into its fraction."""
    f = _format(x)
    u = b.fadd(x, 1.0)
    back = b.fsub(u, 1.0)
    lost = b.fadd(b.fsub(1.0, b.fsub(u, back)), b.fsub(x, back))  # Knuth's exact sum
    exponent, m = _decompose(b, u)
    # 2**-exponent, or 0 where that is not normal: what was lost does not count there.
    below = b.sub(f.bias, exponent)
    scale = _power_of_two(b, b.select(b.icmp("sgt", below, 0), below, zero(below.type)))
    fraction = b.mul_add(lost, scale, b.fsub(m, 1.0))
    result = _log_of_parts(b, b.sitofp(exponent, f.float), fraction, "e")
    result = _log_specials(b, x, u, result)
    return b.select(b.fcmp("oeq", x, 0.0), x, result)


# --------------------------------------------------------------------------------------------
# Trigonometry
# --------------------------------------------------------------------------------------------


def _any(b: Builder, condition: V) -> V:
    if not condition.type.lanes:
        return condition
    return b.intrinsic("llvm.vector.reduce.or", I1, [condition], [condition.type])


def _if_any(b: Builder, condition: V, values: Sequence[V], slow: Callable[[], list[V]]) -> list[V]:
    """`slow()` when the condition holds in some lane, which is rare; `values` otherwise."""
    rare, join = b.block("rare"), b.block("join")
    source = b.current
    b.cond_br(_any(b, condition), rare, join, weights=(1, 2000))
    b.at(rare)
    computed = slow()
    rare_end = b.current
    b.br(join)
    b.at(join)
    results: list[V] = []
    for value, other in zip(values, computed, strict=True):
        phi = b.phi(value.type)
        phi.add(value, source)
        phi.add(other, rare_end)
        results.append(phi.value)
    return results


def _payne_hanek_tables() -> tuple[list[float], list[float]]:
    """2/pi * 2**(E - 150) modulo 4 for biased f32 exponents E = 146 .. 254, in two parts.

    The first part has 29 bits, so its product with a 24-bit significand is exact in f64.
    """
    first: list[float] = []
    second: list[float] = []
    point = 256
    for exponent in range(146 - 150, 255 - 150):
        # A negative shift drops bits that are far below what the second part holds.
        number = _TWO_OVER_PI << exponent if exponent >= 0 else _TWO_OVER_PI >> -exponent
        number &= (1 << (point + 2)) - 1
        cut = point - 27
        first.append(math.ldexp(float(number >> cut), -27))
        second.append(math.ldexp(float(number & ((1 << cut) - 1)), -point))
    return first, second


def _reduce_huge_f32(b: Builder, x: V, wide: V) -> tuple[V, V]:
    """As `_reduce_f32`, for |x| from 2**19 to the largest f32: Payne and Hanek by table.

    x is M * 2**(E-150) with a 24-bit integer M, and 2/pi * 2**(E-150) matters modulo 4 only.
    """
    bits = _int_bits(b, x)
    exponent = b.and_(b.lshr(bits, 23), 255)
    index = b.sub(exponent, 146)
    index = b.select(b.icmp("slt", index, 0), zero(index.type), index)
    index = b.select(b.icmp("sgt", index, 108), const(index.type, 108), index)
    significand = b.sitofp(b.or_(b.and_(bits, 0x7FFFFF), 0x800000), F64)
    significand = _copysign(b, significand, wide)
    parts: list[V] = []
    for hint, numbers in zip(
        ("two_over_pi", "two_over_pi_low"), _payne_hanek_tables(), strict=True
    ):
        table = b.module.global_constant(hint, F64, numbers)
        address = b.gep(F64, table, b.zext(index, I64))
        if x.type.lanes:
            parts.append(b.gather(wide.type, address, const(like(I1, x.type), 1)))
        else:
            parts.append(b.load(F64, address))
    product = b.fmul(significand, parts[0])
    # The second part contributes up to 1/8, so it takes part in choosing n.
    rounded = b.fadd(b.mul_add(significand, parts[1], product), _F64.magic)
    fraction = b.fsub(product, b.fsub(rounded, _F64.magic))
    fraction = b.mul_add(significand, parts[1], fraction)
    return rounded, b.fmul(fraction, _HALF_PI_FMA[0])


def _reduce_f32(b: Builder, x: V) -> tuple[V, V]:
    """(q, r): x = n*pi/2 + r, |r| <= pi/4 in f64; q is i32 with n modulo 2**32.

    All finite f32. r has a relative error below 2**-27 even where x is next to a multiple of pi/2
    (no f32 is nearer to one than 2**-30, while the absolute error is below 2**-57).
    """
    wide = b.fpext(x, F64)
    rounded = b.mul_add(wide, 2 / math.pi, _F64.magic)
    n = b.fsub(rounded, _F64.magic)
    r = wide
    for part in _HALF_PI_FMA if b.has_fma else _HALF_PI_SPLIT:
        r = b.mul_add(n, -part, r)
    huge = b.fcmp("oge", _abs(b, x), _TRIG_HUGE)

    def slow() -> list[V]:
        huge_rounded, huge_r = _reduce_huge_f32(b, x, wide)
        # An infinity keeps the NaN that the first way makes of it.
        finite = b.and_(huge, b.fcmp("one", _abs(b, x), _INF))
        return [b.select(finite, huge_rounded, rounded), b.select(finite, huge_r, r)]

    rounded, r = _if_any(b, huge, [rounded, r], slow)
    return b.trunc(_int_bits(b, rounded), I32), r


def _negate_if_bit(b: Builder, value: V, q: V, bit: int) -> V:
    """`value` with its sign flipped where that bit of q is set."""
    bits = _int_bits(b, value)
    selected = b.and_(q, 1 << bit)
    return _float_bits(
        b, b.xor(bits, b.shl(b.zext(selected, bits.type.element), bits.type.bits - 1 - bit))
    )


def _is_odd(b: Builder, q: V) -> V:
    return b.icmp("ne", b.and_(q, 1), 0)


def _sin_cos_f32(quarter: int) -> Callable[[Builder, V], V]:
    def emit(b: Builder, x: V) -> V:
        q, wide = _reduce_f32(b, x)
        q = b.add(q, quarter)
        r = b.fptrunc(wide, F32)
        z = b.fmul(r, r)
        sine = b.mul_add(b.fmul(r, z), _polynomial(b, z, _F32.sin), r)
        cosine = b.mul_add(b.fmul(z, z), _polynomial(b, z, _F32.cos), b.mul_add(z, -0.5, 1.0))
        result = _negate_if_bit(b, b.select(_is_odd(b, q), cosine, sine), q, 1)
        if quarter:
            return result
        return b.select(b.fcmp("oeq", x, 0.0), x, result)

    return emit


def _tan_f32(b: Builder, x: V) -> V:
    """In f64 throughout: the quotient of two f32 kernels would miss 2 ulp."""
    q, r = _reduce_f32(b, x)
    z = b.fmul(r, r)
    sine = b.mul_add(b.fmul(r, z), _polynomial(b, z, _SIN_TAN), r)
    cosine = b.mul_add(b.fmul(z, z), _polynomial(b, z, _COS_TAN), b.mul_add(z, -0.5, 1.0))
    odd = _is_odd(b, q)
    quotient = b.fdiv(b.select(odd, cosine, sine), b.select(odd, sine, cosine))
    result = b.fptrunc(_negate_if_bit(b, quotient, q, 0), F32)
    return b.select(b.fcmp("oeq", x, 0.0), x, result)


def _kernels_f64(b: Builder, x: V) -> tuple[V, tuple[V, V], tuple[V, V]]:
    """(q, sin r, cos r) for x = n*pi/2 + r with |x| < 2**19; sine and cosine as sums of two.

    r is the sum of a head and a tail: x - n*P1 and n*P2 are exact, and the rounding error of
    their difference goes to the tail, together with n*P3.
    """
    rounded = b.mul_add(x, 2 / math.pi, _F64.magic)
    n = b.fsub(rounded, _F64.magic)
    first = b.mul_add(n, -_HALF_PI_SPLIT[0], x)
    middle = b.fmul(n, _HALF_PI_SPLIT[1])
    second = b.fsub(first, middle)
    error = b.fsub(b.fsub(first, second), middle)
    low = b.fsub(b.fmul(n, _HALF_PI_SPLIT[2]), error)
    r = b.fsub(second, low)
    tail = b.fsub(b.fsub(second, r), low)

    z = b.fmul(r, r)
    # sin(r + tail) = sin r + tail * (1 - z/2), cos(r + tail) = cos r - r * tail
    tail_share = b.mul_add(b.fmul(z, tail), -0.5, tail)
    sine = (r, b.mul_add(b.fmul(r, z), _polynomial(b, z, _F64.sin), tail_share))
    half = b.fmul(z, 0.5)
    head = b.fsub(1.0, half)
    head_error = b.fsub(b.fsub(1.0, head), half)
    remainder = b.fsub(head_error, b.fmul(r, tail))
    cosine = (head, b.mul_add(b.fmul(z, z), _polynomial(b, z, _F64.cos), remainder))
    return _int_bits(b, rounded), sine, cosine


def _with_huge_f64(b: Builder, name: str, x: V, result: V) -> V:
    huge = b.fcmp("oge", _abs(b, x), _TRIG_HUGE)

    def slow() -> list[V]:
        return [b.select(huge, b.intrinsic(f"llvm.{name}", x.type, [x], [x.type]), result)]

    return _if_any(b, huge, [result], slow)[0]


def _sin_cos_f64(quarter: int) -> Callable[[Builder, V], V]:
    def emit(b: Builder, x: V) -> V:
        q, sine_parts, cosine_parts = _kernels_f64(b, x)
        sine, cosine = b.fadd(*sine_parts), b.fadd(*cosine_parts)
        q = b.add(q, quarter)
        result = _negate_if_bit(b, b.select(_is_odd(b, q), cosine, sine), q, 1)
        if not quarter:
            result = b.select(b.fcmp("oeq", x, 0.0), x, result)
        return _with_huge_f64(b, "cos" if quarter else "sin", x, result)

    return emit


def _tan_f64(b: Builder, x: V) -> V:
    """t = n/d of the rounded kernels, then (n + dn)/(d + dd) = t + (dn - t*dd)/d."""
    q, sine, cosine = _kernels_f64(b, x)
    odd = _is_odd(b, q)
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
    result = _negate_if_bit(b, b.fadd(quotient, correction), q, 0)
    return _with_huge_f64(b, "tan", x, b.select(b.fcmp("oeq", x, 0.0), x, result))


# --------------------------------------------------------------------------------------------
# erf, pow, roots
# --------------------------------------------------------------------------------------------


def _erf_f32(b: Builder, x: V) -> V:
    """x + x*P(x**2) up to 0.95, then 1 - 2**P(|x|); the argument stops at 4, where erf is 1."""
    magnitude = _clamp_high(b, _abs(b, x), 4.0)
    z = b.fmul(magnitude, magnitude)
    small = b.mul_add(magnitude, _polynomial(b, z, _ERF_SMALL_F32), magnitude)
    exponent = _polynomial(b, magnitude, _ERF_LARGE_F32)  # -26 .. -2.4
    rounded = b.fadd(exponent, _F32.magic + _F32.bias)
    r = b.fsub(exponent, b.fsub(rounded, _F32.magic + _F32.bias))
    power = b.fmul(_polynomial(b, r, (1.0, *_F32.exp2)), _power_of_two(b, _int_bits(b, rounded)))
    large = b.fsub(1.0, power)
    return _copysign(b, b.select(b.fcmp("ogt", magnitude, 0.95), large, small), x)


def _erf_f64(b: Builder, x: V) -> V:
    """x*P(x**2) up to 1, then 1 - exp(-x**2) * P(|x|); the argument stops at 6."""
    magnitude = _clamp_high(b, _abs(b, x), 6.0)
    z = b.fmul(magnitude, magnitude)
    factor = b.mul_add(z, _polynomial(b, z, _ERF_SMALL_F64), 2 / math.sqrt(math.pi) - 1)
    small = b.mul_add(magnitude, factor, magnitude)
    # The rounding error of x**2 matters little: erfc is below 0.16 here, and falls as x**2 grows.
    scaled = _polynomial(b, b.fsub(magnitude, 1.5), _ERF_LARGE_F64)
    large = b.fsub(1.0, b.fmul(_exp_clamped(b, b.fneg(z)), scaled))
    return _copysign(b, b.select(b.fcmp("ogt", magnitude, 1.0), large, small), x)


def _pow_f32(b: Builder, x: V, y: V) -> V:
    """2**(y * log2|x|) in f64, then the cases of C's Annex F."""
    wide = b.fpext(_abs(b, x), F64)  # normal in f64, if finite and not 0
    bits, m = _decompose(b, wide)
    s = b.fdiv(b.fsub(m, 1.0), b.fadd(m, 1.0))
    log2 = b.mul_add(s, _polynomial(b, b.fmul(s, s), _LOG2_POW), b.sitofp(b.trunc(bits, I32), F64))
    log2 = _log_specials(b, wide, wide, log2)
    exponent = b.fmul(b.fpext(y, F64), log2)
    # Beyond f32 on both sides, and normal in f64: rounding to f32 makes 0 or inf of it.
    exponent = _clamp_high(b, _clamp_low(b, exponent, -200.0), 200.0)
    magic = _F64.magic + _F64.bias
    rounded = b.fadd(exponent, magic)
    r = b.fsub(exponent, b.fsub(rounded, magic))
    power = b.fmul(_polynomial(b, r, (1.0, *_EXP2_POW)), _power_of_two(b, _int_bits(b, rounded)))
    return _pow_cases(b, x, y, b.fptrunc(power, F32))


def _pow_cases(b: Builder, x: V, y: V, power: V) -> V:
    """`power` is |x|**y; put in the sign, NaN for negative x, and the cases that are 1."""
    half = b.fmul(y, 0.5)
    whole = b.fcmp("oeq", _trunc(b, y), y)
    odd = b.and_(whole, b.fcmp("one", _trunc(b, half), half))
    sign_bit = b.and_(_int_bits(b, x), -(1 << (_format(x).int.bits - 1)))
    sign = b.select(odd, sign_bit, zero(sign_bit.type))
    result = _float_bits(b, b.xor(_int_bits(b, power), sign))
    negative = b.and_(b.fcmp("olt", x, 0.0), b.fcmp("ogt", x, -_INF))
    result = b.select(b.and_(negative, b.not_(whole)), const(x.type, _NAN), result)
    minus_one_to_inf = b.and_(b.fcmp("oeq", x, -1.0), b.fcmp("oeq", _abs(b, y), _INF))
    one = b.or_(b.fcmp("oeq", x, 1.0), b.fcmp("oeq", y, 0.0))
    return b.select(b.or_(one, minus_one_to_inf), 1.0, result)


def _pow_f64(b: Builder, x: V, y: V) -> V:
    return b.intrinsic("llvm.pow", x.type, [x, y], [x.type])


def _trunc(b: Builder, x: V) -> V:
    return b.intrinsic("llvm.trunc", x.type, [x], [x.type])


def _rsqrt(b: Builder, x: V) -> V:
    return b.fdiv(1.0, _unary("llvm.sqrt")(b, x))


# --------------------------------------------------------------------------------------------
# The registry
# --------------------------------------------------------------------------------------------


def _unary(intrinsic: str) -> Callable[[Builder, V], V]:
    return lambda b, x: b.intrinsic(intrinsic, x.type, [x], [x.type])


def _by_format(
    f32: Callable[[Builder, V], V], f64: Callable[[Builder, V], V]
) -> Callable[[Builder, V], V]:
    return lambda b, x: (f32 if _format(x) is _F32 else f64)(b, x)


def _exactly(emit: Callable[..., V]) -> Callable[..., V]:
    """Emit without fast-math flags: contraction would break the error terms, nnan the specials."""

    def guarded(b: Builder, *operands: V) -> V:
        first = operands[0]
        _format(first)
        if any(x.type is not first.type for x in operands):
            raise TypeError(f"math function of different types: {operands}")
        with b.flags(""):
            return emit(b, *operands)

    return guarded


def _pow(b: Builder, x: V, y: V) -> V:
    return _pow_f32(b, x, y) if _format(x) is _F32 else _pow_f64(b, x, y)


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
        "sin": _by_format(_sin_cos_f32(0), _sin_cos_f64(0)),
        "cos": _by_format(_sin_cos_f32(1), _sin_cos_f64(1)),
        "tan": _by_format(_tan_f32, _tan_f64),
        "tanh": _tanh,
        "erf": _by_format(_erf_f32, _erf_f64),
        "sigmoid": _sigmoid,
        "sqrt": _unary("llvm.sqrt"),
        "rsqrt": _rsqrt,
        "floor": _unary("llvm.floor"),
        "ceil": _unary("llvm.ceil"),
        "trunc": _trunc,
        "rint": _unary("llvm.roundeven"),
        "pow": _pow,
    }.items()
}
"""name -> emitter ``(builder, x) -> result`` (pow: ``(builder, x, y)``), all of one type.

    y = MATH["exp"](b, b.load(vector(F32, 16), address))

sin, cos and tan open new blocks: the builder ends in another block than it began in.
Raises TypeError for other types than f32 and f64, scalar or vector.
"""

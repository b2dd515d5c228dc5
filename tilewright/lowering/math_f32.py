"""The elementary functions of f32 that differ from those of f64.

Some compute in f64. `lowering.math` describes the origin of the coefficients and formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.lowering.emit import F32, F64, I1, I32, I64, Builder, V, const, like, zero
from tilewright.lowering.llvm_arith import OwnScale
from tilewright.lowering.math_common import (
    FORMAT_F32,
    FORMAT_F64,
    HALF_PI_FMA,
    HALF_PI_SPLIT,
    TRIG_HUGE,
    clamp_high,
    clamp_low,
    copysign,
    decompose,
    fabs,
    float_bits,
    format_of,
    if_any,
    int_bits,
    is_odd,
    log_specials,
    negate_if_bit,
    polynomial,
    power_of_two,
    reduce_ln2,
    trunc,
)

# (exp(r) - 1 - r) / r**2 on |r| <= ln2 (twice the usual range), 2**-24.9.
_EXP = (
    0.5000005275871728,
    0.16666672517344264,
    0.04165974558821017,
    0.008332565703027626,
    0.0014129974590866142,
    0.0002010877574704587,
)
# (log(1+f) - f) / f**2 for 1+f in sqrt(1/2) .. sqrt(2), 2**-27.9.
_LOG = (
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
# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2/2) / r**4 in r**2 on |r| <= pi/4, 2**-28.0 and
# 2**-33.0.
_SIN = (-0.16666654465615086, 0.008332151383988304, -0.00019513981956574076)
_COS = (0.04166664542537779, -0.0013887303461739666, 2.443166834603073e-05)
# erf(x)/x - 1 in x**2 on |x| <= 0.95, 2**-25.4.
_ERF_SMALL = (
    0.12837914492608388,
    -0.3761245165851501,
    0.11281355611971074,
    -0.02674973455067342,
    0.00496845710261794,
    -0.0005865861809135112,
)
# log2(erfc(x)) on 0.95 .. 4, 2**-25.5 of erf.
_ERF_LARGE = (
    -0.0031679540049465845,
    -1.6144804461267204,
    -0.9410576446018363,
    -0.1299566512717242,
    0.021989820680820275,
    -0.0017436584109301572,
)
# 2**r on |r| <= 1/2, without the constant term: 2**-23.4; its share in erf is at most 0.18.
_EXP2_ERF = (
    0.6931469775976783,
    0.240222420831118,
    0.05550733744471335,
    0.00967151278577686,
    0.0013264727252583531,
)
# (tan(r) - r) / r**3 in r**2 on |r| <= pi/4, 2**-25.4.
_TAN = (
    0.33333155512809753,
    0.1333886682987213,
    0.05340556427836418,
    0.024450931698083878,
    0.0030859720427542925,
    0.009405831806361675,
)
# Computed in f64: log2((1+s)/(1-s))/s in s**2, 2**-43.6; (2**r - 1)/r, 2**-34.3.
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

# pi/2 as a sum of three f32, within 2**-76, and the end of the range where these are enough: for a
# quotient n below 2**16 the first product cancels exactly, and each sum then rounds once.
_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_WIDE = 2.0**16

# floor(2/pi * 2**256)
_TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561


def exp_clamped(b: Builder, x: V) -> V:
    """exp of x within exp_range."""
    # x = 2m ln2 + r: with an even exponent the scale is one factor, applied twice, which is correct
    # for subnormal results and overflow, too. The wider range of r costs two more terms of the
    # polynomial, and saves four integer operations.
    rounded, _, r = reduce_ln2(b, x, FORMAT_F32.magic + FORMAT_F32.bias, step=2)
    p = polynomial(b, r, (1.0, 1.0, *_EXP))
    scale = power_of_two(b, int_bits(b, rounded))
    return b.fmul(b.fmul(p, scale), scale)


def exp_scaled(b: Builder, x: V, own_scale: OwnScale) -> V:
    """exp of x above the lower end of exp_range, with the target's own scaling.

    Large x need no clamping: the polynomial is positive for any r, as its degree is even, and if r
    is NaN, for infinite x, the scaling returns infinity.
    """
    _, n, r = reduce_ln2(b, x, FORMAT_F32.magic)
    return own_scale(b, polynomial(b, r, (1.0, 1.0, *FORMAT_F32.expm1)), n)


def log_rest(b: Builder, f: V) -> V:
    """log(1+f) - f for 1+f in sqrt(1/2) .. sqrt(2)."""
    return b.fmul(b.fmul(f, f), polynomial(b, f, _LOG))


_FIRST_EXPONENT = 127 + 16  # of _WIDE, biased


def _payne_hanek_tables() -> tuple[list[float], list[float]]:
    """2/pi * 2**(E - 150) modulo 4 for biased f32 exponents E = 143 .. 254, as a sum of two.

    The first part has 29 bits, so its product with a 24-bit significand is exact in f64.
    """
    first: list[float] = []
    second: list[float] = []
    point = 256
    for exponent in range(_FIRST_EXPONENT - 150, 255 - 150):
        # A negative shift drops bits far below the precision of the second part.
        number = _TWO_OVER_PI << exponent if exponent >= 0 else _TWO_OVER_PI >> -exponent
        number &= (1 << (point + 2)) - 1
        cut = point - 27
        first.append(math.ldexp(float(number >> cut), -27))
        second.append(math.ldexp(float(number & ((1 << cut) - 1)), -point))
    return first, second


def _reduce_huge(b: Builder, x: V, wide: V) -> tuple[V, V]:
    """As `_reduce_wide`, for |x| >= 2**16: Payne and Hanek's reduction with a table.

    x is M * 2**(E-150) with a 24-bit integer M, so only 2/pi * 2**(E-150) modulo 4 is needed.
    """
    bits = int_bits(b, x)
    exponent = b.and_(b.lshr(bits, 23), 255)
    index, last = b.sub(exponent, _FIRST_EXPONENT), 254 - _FIRST_EXPONENT
    index = b.select(b.icmp("slt", index, 0), zero(index.type), index)
    index = b.select(b.icmp("sgt", index, last), const(index.type, last), index)
    significand = b.sitofp(b.or_(b.and_(bits, 0x7FFFFF), 0x800000), F64)
    significand = copysign(b, significand, wide)
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
    # The second part contributes up to 1/8, so it must be included in the choice of n.
    rounded = b.fadd(b.mul_add(significand, parts[1], product), FORMAT_F64.magic)
    fraction = b.fsub(product, b.fsub(rounded, FORMAT_F64.magic))
    fraction = b.mul_add(significand, parts[1], fraction)
    return rounded, b.fmul(fraction, HALF_PI_FMA[0])


def _reduce(b: Builder, x: V, most: float) -> tuple[V, V]:
    """(q, r): x = n*pi/2 + r, |r| <= pi/4 in f32; q is i32 with n modulo 4 in its low bits.

    |x| is known to be `most` at most.
    """
    if not b.has_fma:
        q, wide = _reduce_wide(b, x)
        return q, b.fptrunc(wide, F32)
    rounded = b.mul_add(x, 2 / math.pi, FORMAT_F32.magic)
    n, r = b.fsub(rounded, FORMAT_F32.magic), x
    for part in _HALF_PI:
        r = b.mul_add(n, -part, r)
    q = int_bits(b, rounded)
    if most < _WIDE:
        return q, r
    large = b.fcmp("oge", fabs(b, x), _WIDE)

    def slow() -> list[V]:
        huge_rounded, huge_r = _reduce_huge(b, x, b.fpext(x, F64))
        found = b.trunc(int_bits(b, huge_rounded), I32), b.fptrunc(huge_r, F32)
        # The sine and cosine of an infinity are NaN.
        finite = b.fcmp("one", fabs(b, x), math.inf)
        huge_r = b.select(finite, found[1], math.nan)
        return [b.select(large, found[0], q), b.select(large, huge_r, r)]

    q, r = if_any(b, large, [q, r], slow)
    return q, r


def _reduce_wide(b: Builder, x: V) -> tuple[V, V]:
    """As `_reduce`, in f64; q has n modulo 2**32.

    Valid for all finite f32. The relative error of r is below 2**-27 even next to a multiple of
    pi/2: no f32 is closer to one than 2**-30, and the absolute error is below 2**-57.
    """
    wide = b.fpext(x, F64)
    rounded = b.mul_add(wide, 2 / math.pi, FORMAT_F64.magic)
    n = b.fsub(rounded, FORMAT_F64.magic)
    r = wide
    for part in HALF_PI_FMA if b.has_fma else HALF_PI_SPLIT:
        r = b.mul_add(n, -part, r)
    huge = b.fcmp("oge", fabs(b, x), TRIG_HUGE)

    def slow() -> list[V]:
        huge_rounded, huge_r = _reduce_huge(b, x, wide)
        # For an infinity, keep the NaN of the first reduction.
        finite = b.and_(huge, b.fcmp("one", fabs(b, x), math.inf))
        return [b.select(finite, huge_rounded, rounded), b.select(finite, huge_r, r)]

    rounded, r = if_any(b, huge, [rounded, r], slow)
    return b.trunc(int_bits(b, rounded), I32), r


def sin_cos(quarter: int) -> Callable[..., V]:
    """The emitter of sin(x + quarter*pi/2): sin for 0, cos for 1; |x| is `most` at most."""

    def emit(b: Builder, x: V, most: float = math.inf) -> V:
        q, r = _reduce(b, x, most)
        q = b.add(q, quarter)
        z = b.fmul(r, r)
        sine = b.mul_add(b.fmul(r, z), polynomial(b, z, _SIN), r)
        cosine = b.mul_add(b.fmul(z, z), polynomial(b, z, _COS), b.mul_add(z, -0.5, 1.0))
        result = negate_if_bit(b, b.select(is_odd(b, q), cosine, sine), q, 1)
        if quarter:
            return result
        return b.select(b.fcmp("oeq", x, 0.0), x, result)

    return emit


def tan(b: Builder, x: V, reciprocal: Callable[[Builder, V], V] | None = None) -> V:
    """tan(r), or -1 / tan(r) beyond an odd multiple of pi/4. A reciprocal is within an ulp."""
    q, r = _reduce(b, x, math.inf)
    z = b.fmul(r, r)
    tangent = b.mul_add(b.fmul(r, z), polynomial(b, z, _TAN), r)
    opposite = b.fneg(tangent)
    inverse = reciprocal(b, opposite) if reciprocal else b.fdiv(const(x.type, 1.0), opposite)
    result = b.select(is_odd(b, q), inverse, tangent)
    return b.select(b.fcmp("oeq", x, 0.0), x, result)


def erf(b: Builder, x: V) -> V:
    """x + x*P(x**2) for |x| <= 0.95, else 1 - 2**P(|x|), with |x| clamped to 4, where erf is 1."""
    magnitude = clamp_high(b, fabs(b, x), 4.0)
    z = b.fmul(magnitude, magnitude)
    small = b.mul_add(magnitude, polynomial(b, z, _ERF_SMALL), magnitude)
    exponent = polynomial(b, magnitude, _ERF_LARGE)  # -26 .. -2.4
    rounded = b.fadd(exponent, FORMAT_F32.magic)
    r = b.fsub(exponent, b.fsub(rounded, FORMAT_F32.magic))
    # Neither the power of r nor the result is subnormal, so adding to the exponent scales it.
    power = int_bits(b, polynomial(b, r, (1.0, *_EXP2_ERF)))
    scaled = b.add(power, b.shl(int_bits(b, rounded), FORMAT_F32.mantissa))
    large = b.fsub(1.0, float_bits(b, scaled))
    return copysign(b, b.select(b.fcmp("ogt", magnitude, 0.95), large, small), x)


def pow_(b: Builder, x: V, y: V) -> V:
    """2**(y * log2|x|) in f64, and the special cases of C's Annex F."""
    wide = b.fpext(fabs(b, x), F64)  # normal in f64, if finite and not 0
    bits, m = decompose(b, wide)
    s = b.fdiv(b.fsub(m, 1.0), b.fadd(m, 1.0))
    log2 = b.mul_add(s, polynomial(b, b.fmul(s, s), _LOG2_POW), b.sitofp(b.trunc(bits, I32), F64))
    log2 = log_specials(b, wide, wide, log2)
    exponent = b.fmul(b.fpext(y, F64), log2)
    # Out of the range of f32, but normal in f64: rounding to f32 yields 0 or inf.
    exponent = clamp_high(b, clamp_low(b, exponent, -200.0), 200.0)
    magic = FORMAT_F64.magic + FORMAT_F64.bias
    rounded = b.fadd(exponent, magic)
    r = b.fsub(exponent, b.fsub(rounded, magic))
    power = b.fmul(polynomial(b, r, (1.0, *_EXP2_POW)), power_of_two(b, int_bits(b, rounded)))
    return _pow_cases(b, x, y, b.fptrunc(power, F32))


def _pow_cases(b: Builder, x: V, y: V, power: V) -> V:
    """Apply the special cases to `power` = |x|**y: the sign, NaN for negative x, and 1."""
    half = b.fmul(y, 0.5)
    whole = b.fcmp("oeq", trunc(b, y), y)
    odd = b.and_(whole, b.fcmp("one", trunc(b, half), half))
    sign_bit = b.and_(int_bits(b, x), -(1 << (format_of(x).int.bits - 1)))
    sign = b.select(odd, sign_bit, zero(sign_bit.type))
    result = float_bits(b, b.xor(int_bits(b, power), sign))
    negative = b.and_(b.fcmp("olt", x, 0.0), b.fcmp("ogt", x, -math.inf))
    result = b.select(b.and_(negative, b.not_(whole)), const(x.type, math.nan), result)
    minus_one_to_inf = b.and_(b.fcmp("oeq", x, -1.0), b.fcmp("oeq", fabs(b, y), math.inf))
    one = b.or_(b.fcmp("oeq", x, 1.0), b.fcmp("oeq", y, 0.0))
    return b.select(b.or_(one, minus_one_to_inf), 1.0, result)

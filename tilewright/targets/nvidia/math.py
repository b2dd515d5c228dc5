"""Lowering of mathematical functions to NVIDIA's instructions.

The maximum error of fp32 in ulp, over all arguments, measured on an H200:

    exp     2.55    ex2.approx.ftz, times a correction for rounding the exponent; flushed as exp2
    exp2    2.06    ex2.approx.ftz: results below 2**-126 are flushed to 0
    log     1.05    a polynomial; lg2.approx for subnormals, and for 0, negatives, infinity and NaN
    log2    1.97    as log
    tanh    1.77    a polynomial near 0, elsewhere ex2.approx and rcp.approx
    rsqrt   1.52    rsqrt.approx
    sqrt    0.95    sqrt.approx, unless correct rounding is required

`fast` functions are one instruction, and a product where the base differs. Nothing here calls a
library function.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.analysis.magnitudes import interval
from tilewright.analysis.maxima import is_at_most_zero
from tilewright.analysis.roundings import is_rounded_short
from tilewright.ir import types as ir
from tilewright.lowering import arith as common
from tilewright.lowering.convert import narrow, widen
from tilewright.lowering.emit import F32, I32, Builder, V, const
from tilewright.lowering.math_common import FORMAT_F32, copysign, fabs, polynomial
from tilewright.lowering.registry import lowers
from tilewright.lowering.without_library import sin_cos_without_library, tan_without_library
from tilewright.ops import arith, math
from tilewright.targets.nvidia.arith import instruction
from tilewright.targets.nvidia.name import NAME

Function = Callable[[Builder, V], V]

LOG2_E = FORMAT_F32.log2e[0]  # less than log2(e)
LOG2_E_ABOVE = 1.44269514083862305  # the next fp32


def _element(op: arith.Op) -> ir.DType:
    return ir.dtype_of(op.operands[0].type)


def _in_f32(b: Builder, element: ir.DType, function: Function, x: V) -> V:
    with b.flags(""):
        return narrow(b, function(b, widen(b, x, element)), element)


# -- exponentials ---------------------------------------------------------------------------------


def exp_f32(b: Builder, x: V) -> V:
    """exp(x) = 2**e * exp(x - e * ln(2)), where e is x * log2(e) rounded down, and the rest so
    close to 0 that its exponential is 1 + rest. Subnormal results are flushed to 0.

    Where 2**e overflows, the rest is positive, as LOG2_E is less than log2(e): the result is
    infinite. For infinities, the rest is NaN, which `min` replaces by its bound; other rests of
    finite results are below it.
    """
    e = instruction(b, "mul.rm.f32", x, const(F32, LOG2_E))
    power = instruction(b, "ex2.approx.ftz.f32", e)
    rest = x
    for part in FORMAT_F32.ln2:
        rest = b.fma(e, -part, rest)
    rest = instruction(b, "min.f32", rest, const(F32, 2.0**-10))
    return b.fma(power, rest, power)


def exp_negative_f32(b: Builder, x: V) -> V:
    """exp of x that is at most 0, or hardly above: as `exp_f32`, but the correction for -inf is
    replaced by 0, in the instruction that computes it. It is not negative elsewhere, as
    `LOG2_E_ABOVE` is greater than log2(e)."""
    e = instruction(b, "mul.rm.f32", x, const(F32, LOG2_E_ABOVE))
    power = instruction(b, "ex2.approx.ftz.f32", e)
    first, second = (const(F32, -part) for part in FORMAT_F32.ln2)
    rest = instruction(b, "fma.rn.sat.f32", e, second, b.fma(e, first, x))
    return b.fma(power, rest, power)


def exp_rounded_f32(b: Builder, x: V) -> V:
    """exp of x whose result is rounded to 11 bits or fewer: 2**(x * log2(e)) without a correction
    for the rounding of the product. Relative error: 2**-17, of which the product of at most 128
    contributes 2**-17 * ln(2), and `LOG2_E` 2**-19.6. If 2**(x * log2(e)) is finite, so is the
    result."""
    return exp2_f32(b, instruction(b, "mul.rm.f32", x, const(F32, LOG2_E)))


def exp2_f32(b: Builder, x: V) -> V:
    """One instruction, which flushes subnormal results to 0. Without ``.ftz`` it takes three more
    (in SASS), a quarter of the inner loop of attention, for results below 2**-126."""
    return instruction(b, "ex2.approx.ftz.f32", x)


def _exp_narrow(b: Builder, x: V) -> V:
    """exp for results of at most 11 significand bits, beyond which the product rounds."""
    return instruction(b, "ex2.approx.f32", b.fmul(x, LOG2_E))


@lowers(math.Exp, target=NAME)
def lower_exp(b: Builder, op: math.Exp, src: V) -> V:
    element = _element(op)
    if element == ir.FP64:
        return common.lower_math(b, op, src)
    return _in_f32(b, element, _exponential(op, element), src)


def _exponential(op: math.Exp, element: ir.DType) -> Function:
    """The shortest code that is precise enough."""
    if element != ir.FP32:
        return _exp_narrow
    if op.fast or is_rounded_short(op.result):
        return exp_rounded_f32
    negative = is_at_most_zero(op.src) or interval(op.src).most <= 0
    return exp_negative_f32 if negative else exp_f32


@lowers(math.Exp2, target=NAME)
def lower_exp2(b: Builder, op: math.Exp2, src: V) -> V:
    element = _element(op)
    if element == ir.FP64:
        return common.lower_math(b, op, src)
    return _in_f32(b, element, exp2_f32, src)


# -- logarithms -----------------------------------------------------------------------------------

# (log(1+f) - f) / f**2 on -1/3 .. 1/3: a minimax polynomial, relative error 2**-25.2 of log(1+f).
_LOG = (
    -0.49999937415122986,
    0.33333197236061096,
    -0.2500782012939453,
    0.20011168718338013,
    -0.1641596108675003,
    0.13995806872844696,
    -0.1538853943347931,
    0.14026358723640442,
)
_TWO_THIRDS = 0x3F2AAAAB  # the bits of 2/3
_UNIT = 2.0**-23  # an exponent in its bit position, taken as an integer, times this is its value

# log 2 in a base, and 1/log of the base, each as a sum of two fp32.
_BASES: dict[type[arith.Op], tuple[tuple[float, float], tuple[float, float]]] = {
    math.Log: ((0.6931471824645996, 0.0), (1.0, 0.0)),  # -2e-9, the low part, is negligible
    math.Log2: ((1.0, 0.0), FORMAT_F32.log2e),
    math.Log10: ((0.3010300099849701, -1.4320988897517637e-08), FORMAT_F32.log10e),
}


def log_f32(b: Builder, x: V, base: type[arith.Op]) -> V:
    """log(2**e * (1+f)) with f in -1/3 .. 1/3 for positive normal x.

    Otherwise lg2.approx of x * 2**126, which scales subnormals to normal numbers, and yields the
    correct infinities and NaN for 0, negative numbers, infinity and NaN.
    """
    (of_two, of_two_low), (unit, unit_low) = _BASES[base]
    bits = b.bitcast(x, I32)
    exponent = b.and_(b.sub(bits, _TWO_THIRDS), -(1 << 23))
    steps = b.sitofp(exponent, F32)
    f = b.fsub(b.bitcast(b.sub(bits, exponent), F32), 1.0)
    rest, square = polynomial(b, f, _LOG), b.fmul(f, f)
    if unit == 1.0:
        head = b.fma(square, rest, f)
    else:
        low = b.fma(b.fmul(square, rest), unit, b.fmul(f, unit_low))
        if of_two_low:
            low = b.fma(steps, of_two_low * _UNIT, low)
        head = b.fma(f, unit, low)
    usual = b.fma(steps, of_two * _UNIT, head)
    l2 = instruction(b, "lg2.approx.ftz.f32", b.fmul(x, 2.0**126))
    unusual = b.fma(l2, of_two, const(F32, -126.0 * of_two))
    # Positive and normal, as one unsigned comparison; two of floats take four instructions.
    normal = b.icmp("ult", b.sub(bits, 0x00800000), 0x7F000000)
    return b.select(normal, usual, unusual)


def log_fast_f32(b: Builder, x: V, base: type[arith.Op]) -> V:
    """lg2.approx, which takes subnormals for 0, times log 2 in the base. Its absolute error is
    2**-22 between 0.5 and 2, elsewhere the relative one is (PTX ISA, lg2)."""
    (of_two, _), _ = _BASES[base]
    l2 = instruction(b, "lg2.approx.ftz.f32", x)
    return l2 if of_two == 1.0 else b.fmul(l2, of_two)


@lowers(math.Log, math.Log2, math.Log10, target=NAME)
def lower_log(b: Builder, op: math.Log | math.Log2 | math.Log10, src: V) -> V:
    element = _element(op)
    if element == ir.FP64:
        return common.lower_math(b, op, src)
    function = log_fast_f32 if op.fast else log_f32
    return _in_f32(b, element, lambda b, x: function(b, x, type(op)), src)


# (tanh(x) - x) / x**3 in x**2, on |x| <= 0.7; relative error 2**-25.9 of tanh. The interval is
# wider than that of FORMAT_F32.tanh, as the formula with ex2.approx is least accurate near its
# lower end.
_TANH = (
    -0.3333319127559662,
    0.1332911103963852,
    -0.05355885997414589,
    0.02009197138249874,
    -0.005138663109391928,
)


def tanh_f32(b: Builder, x: V) -> V:
    """x + x**3 P(x**2) for |x| <= 0.7; else 1 - 2 / (exp(2|x|) + 1), which saturates at 1."""
    magnitude = fabs(b, x)
    power = instruction(b, "ex2.approx.ftz.f32", b.fmul(magnitude, 2 * LOG2_E))
    reciprocal = instruction(b, "rcp.approx.ftz.f32", b.fadd(power, 1.0))
    large = copysign(b, b.fma(reciprocal, -2.0, const(F32, 1.0)), x)
    square = b.fmul(x, x)
    small = b.fma(b.fmul(square, x), polynomial(b, square, _TANH), x)
    return b.select(b.fcmp("ogt", magnitude, 0.7), large, small)


@lowers(math.Tanh, target=NAME)
def lower_tanh(b: Builder, op: math.Tanh, src: V) -> V:
    element = _element(op)
    if element == ir.FP64:
        return common.lower_math(b, op, src)
    if op.fast or element == ir.BF16:  # its error of 2**-11 is sufficient for 8 bits
        return _in_f32(b, element, lambda b, x: instruction(b, "tanh.approx.f32", x), src)
    return _in_f32(b, element, tanh_f32, src)


# -- roots ----------------------------------------------------------------------------------------


@lowers(math.Rsqrt, target=NAME)
def lower_rsqrt(b: Builder, op: math.Rsqrt, src: V) -> V:
    element = _element(op)
    if element == ir.FP64:
        return common.lower_math(b, op, src)
    return _in_f32(b, element, lambda b, x: instruction(b, "rsqrt.approx.f32", x), src)


@lowers(math.Sqrt, target=NAME)
def lower_sqrt(b: Builder, op: math.Sqrt, src: V) -> V:
    element = _element(op)
    if op.ieee or element == ir.FP64:
        return common.lower_math(b, op, src)
    return _in_f32(b, element, lambda b, x: instruction(b, "sqrt.approx.f32", x), src)


# -- replacements of C library functions -----------------------------------------------------------


@lowers(math.Sin, math.Cos, target=NAME)
def lower_sin_cos(b: Builder, op: math.Sin | math.Cos, src: V) -> V:
    """With `fast`, the instruction, whose absolute error is 2**-20.5 within a turn, and grows with
    the argument (PTX ISA, sin and cos)."""
    element = _element(op)
    if not op.fast or element == ir.FP64:
        return sin_cos_without_library(b, op, src)
    name = "sin" if isinstance(op, math.Sin) else "cos"
    return _in_f32(b, element, lambda b, x: instruction(b, f"{name}.approx.ftz.f32", x), src)


def _reciprocal(b: Builder, y: V) -> V:
    """1 / y, within an ulp, for y whose reciprocal is normal: the instruction is not as precise."""
    inverse = instruction(b, "rcp.approx.ftz.f32", y)
    return b.fma(inverse, b.fma(b.fneg(y), inverse, const(F32, 1.0)), inverse)


@lowers(math.Tan, target=NAME)
def lower_tan(b: Builder, op: math.Tan, src: V) -> V:
    return tan_without_library(b, op, src, _reciprocal)

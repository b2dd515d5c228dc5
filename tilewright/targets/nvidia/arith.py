"""Lowering of arithmetic and mathematical functions to NVIDIA's instructions.

The maximum error of fp32 in ulp, over all arguments (div: over 2**32 pairs), measured on an H200:

    exp     2.55    ex2.approx.ftz, times 1 + what rounding the exponent leaves; flushed as exp2
    exp2    2.06    ex2.approx.ftz: results below 2**-126 are flushed to 0
    log     1.05    a polynomial; lg2.approx for subnormals, and for 0, negatives, infinity and NaN
    log2    1.97    as log
    tanh    1.77    a polynomial near 0, elsewhere ex2.approx and rcp.approx
    rsqrt   1.52    rsqrt.approx
    sqrt    0.95    sqrt.approx, unless correct rounding is required
    div     2.12    as div.full, unless correct rounding is required

Nothing here calls a library function.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.analysis.magnitudes import Interval, has_normal_reciprocals, interval
from tilewright.analysis.maxima import is_at_most_zero
from tilewright.analysis.ranges import value_range
from tilewright.analysis.roundings import is_rounded_short
from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.lowering import arith as common
from tilewright.lowering.convert import narrow, widen
from tilewright.lowering.emit import BF16, F32, I32, I64, Builder, V, const, int_type, like
from tilewright.lowering.math_common import FORMAT_F32, copysign, fabs, polynomial
from tilewright.lowering.registry import lowers
from tilewright.lowering.types import register_type
from tilewright.lowering.without_library import rem_without_library, sin_cos_without_library
from tilewright.ops import arith, math
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.nvidia.small_integers import from_integer, from_range

Function = Callable[[Builder, V], V]

LOG2_E = FORMAT_F32.log2e[0]  # less than log2(e)
LOG2_E_ABOVE = 1.44269514083862305  # the next fp32


def _element(op: arith.Op) -> ir.DType:
    return ir.dtype_of(op.operands[0].type)


def instruction(b: Builder, name: str, *operands: V) -> V:
    """A PTX instruction on fp32 registers, as inline assembly."""
    places = ", ".join(f"${i}" for i in range(len(operands) + 1))
    constraints = ",".join(["=f"] + ["f"] * len(operands))
    return b.inline_asm(f"{name} {places};", constraints, F32, list(operands))


def _in_f32(b: Builder, element: ir.DType, function: Function, x: V) -> V:
    with b.flags(""):
        return narrow(b, function(b, widen(b, x, element)), element)


# -- sums and products ----------------------------------------------------------------------------


@lowers(arith.Add, target=NAME)
def lower_add(b: Builder, op: arith.Add, lhs: V, rhs: V) -> V:
    return _in_bf16(b, op, b.fadd, lhs, rhs) or common.lower_add(b, op, lhs, rhs)


@lowers(arith.Sub, target=NAME)
def lower_sub(b: Builder, op: arith.Sub, lhs: V, rhs: V) -> V:
    return _in_bf16(b, op, b.fsub, lhs, rhs) or common.lower_sub(b, op, lhs, rhs)


@lowers(arith.Mul, target=NAME)
def lower_mul(b: Builder, op: arith.Mul, lhs: V, rhs: V) -> V:
    if _has_upper_half(op):
        return b.trunc(_wide_product(b, lhs, rhs), I32)
    return _in_bf16(b, op, b.fmul, lhs, rhs) or common.lower_mul(b, op, lhs, rhs)


@lowers(arith.MulHi, target=NAME)
def lower_mulhi(b: Builder, op: arith.MulHi, lhs: V, rhs: V) -> V:
    if _element(op).primitive_bitwidth > 32:
        return common.lower_mulhi(b, op, lhs, rhs)
    return b.trunc(b.lshr(_wide_product(b, lhs, rhs), 32), I32)


def _wide_product(b: Builder, lhs: V, rhs: V) -> V:
    """The product of unsigned words. One instruction yields both halves, while LLVM and ptxas use
    one for each: random bits by Philox, which take both of every product, take a fifth less of
    them."""
    return b.inline_asm("mul.wide.u32 $0, $1, $2;", "=l,r,r", I64, [lhs, rhs])


def _has_upper_half(op: arith.Mul) -> bool:
    """Whether the upper half of a product of words is computed, too."""
    return (
        any(
            isinstance(user, arith.MulHi) and {*user.operands} == {*op.operands}
            for user in op.lhs.users
        )
        and _element(op).primitive_bitwidth == 32
    )


def _in_bf16(b: Builder, op: arith.Op, act: Callable[[V, V], V], lhs: V, rhs: V) -> V | None:
    """The operation on bf16, which LLVM selects or promotes to fp32; None for other types.

    Both agree: fp32 has more than twice the significand bits of bf16, so that rounding the fp32
    result to bf16 (double rounding) equals rounding the exact result once.
    """
    if _element(op) != ir.BF16:
        return None
    with b.flags(""):
        result = act(b.bitcast(lhs, like(BF16, lhs.type)), b.bitcast(rhs, like(BF16, rhs.type)))
    return b.bitcast(result, lhs.type)


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
    """exp of x that is at most 0, or hardly above: as `exp_f32`, but 0 replaces the rest of -inf,
    in the instruction that computes the rest. It is not negative elsewhere, as `LOG2_E_ABOVE` is
    greater than log2(e)."""
    e = instruction(b, "mul.rm.f32", x, const(F32, LOG2_E_ABOVE))
    power = instruction(b, "ex2.approx.ftz.f32", e)
    first, second = (const(F32, -part) for part in FORMAT_F32.ln2)
    rest = instruction(b, "fma.rn.sat.f32", e, second, b.fma(e, first, x))
    return b.fma(power, rest, power)


def exp_rounded_f32(b: Builder, x: V) -> V:
    """exp of x whose result is rounded to 11 bits or fewer: 2**(x * log2(e)) without what rounding
    the product down leaves. Relative error: 2**-17, of which the product of 128 at most has 2**-17
    * ln(2), and `LOG2_E` 2**-19.6. Where 2**(x * log2(e)) is finite, so is the result."""
    return exp2_f32(b, instruction(b, "mul.rm.f32", x, const(F32, LOG2_E)))


def exp2_f32(b: Builder, x: V) -> V:
    """One instruction, which flushes subnormal results to 0. Without ``.ftz`` it takes three more
    (seen in SASS), a quarter of the inner loop of attention, for results below 2**-126."""
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
    if is_rounded_short(op.result):
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


@lowers(math.Log, math.Log2, math.Log10, target=NAME)
def lower_log(b: Builder, op: math.Log | math.Log2 | math.Log10, src: V) -> V:
    element = _element(op)
    if element == ir.FP64:
        return common.lower_math(b, op, src)
    return _in_f32(b, element, lambda b, x: log_f32(b, x, type(op)), src)


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
    if element == ir.BF16:  # the instruction's error of 2**-11 is sufficient for 8 bits
        return _in_f32(b, element, lambda b, x: instruction(b, "tanh.approx.f32", x), src)
    return _in_f32(b, element, tanh_f32, src)


# -- roots and quotients --------------------------------------------------------------------------


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


@lowers(arith.Div, target=NAME)
def lower_div(b: Builder, op: arith.Div, lhs: V, rhs: V) -> V:
    element = _element(op)
    if op.ieee or element == ir.FP64:
        return common.lower_div(b, op, lhs, rhs)
    return narrow(b, _quotient(b, op, widen(b, lhs, element), widen(b, rhs, element)), element)


SMALLEST, LARGEST = 2.0**-126, 2.0**126  # numbers between them have normal reciprocals


def _quotient(b: Builder, op: arith.Div, x: V, y: V) -> V:
    """x * s * (1 / (y * s)), the bits of div.full, where s scales very large and very small y so
    that the reciprocal is normal.

    div.full scales x by branches of its own; quotients by one number, as of a row by its sum, have
    everything but two products in common here. Quotients are fused with a sum, as products are,
    only if the other summand is constant, so that equal quotients have a difference of 0.
    """
    if y.number is not None:
        return instruction(b, "div.full.f32", x, y)
    name, scale = b.once((op, y), lambda: (_product(op), _scale_of(b, op, y)))
    if scale is not None:
        with b.flags(""):
            x = b.fmul(x, scale)
    inverse = b.once((op, y, scale), lambda: _inverse(b, y, scale))
    if scale is None and arith.constant_value(op.lhs) == 1:
        return inverse
    return instruction(b, name, x, inverse)


def _product(op: arith.Div) -> str:
    return "mul.f32" if _is_added(op.result) else "mul.rn.f32"


def _scale_of(b: Builder, op: arith.Div, y: V) -> V | None:
    """None if a scale would be 1, or would not change the quotient: 0 and infinity have the same
    reciprocals with it."""
    if _vanishes(op) or has_normal_reciprocals(op.rhs):
        return None
    return _scale(b, y, interval(op.rhs))


def _inverse(b: Builder, y: V, scale: V | None) -> V:
    """1 / (y * scale)"""
    if scale is not None:
        with b.flags(""):
            y = b.fmul(y, scale)
    return instruction(b, "rcp.approx.ftz.f32", y)


def _scale(b: Builder, y: V, bounds: Interval) -> V | None:
    """The factor that makes the reciprocal of y normal; None if it is 1 for all y in the bounds."""
    magnitude, scale = fabs(b, y), None
    if bounds.smallest_magnitude < SMALLEST:
        small = b.fcmp("olt", magnitude, SMALLEST)
        scale = b.select(small, const(F32, 2.0**24), const(F32, 1.0))
    if bounds.largest_magnitude > LARGEST:
        large = b.fcmp("ogt", magnitude, LARGEST)
        scale = b.select(large, const(F32, 0.25), const(F32, 1.0) if scale is None else scale)
    return scale


LARGE_SUMMAND = 2.0**-60
MOST_FACTOR = 2.0**20


def _vanishes(op: arith.Div) -> bool:
    """Whether a quotient by a number above `LARGEST` does not change any result, as in
    1 - 2 / (exp(x) + 1). Its reciprocal may be flushed to 0 then."""
    dividend = arith.constant_value(op.lhs)
    if dividend is None or interval(op.rhs).smallest_magnitude < SMALLEST:
        return False
    return abs(dividend) <= MOST_FACTOR and _is_added(op.result, may_scale=True)


def _is_added(value: Value, may_scale: bool = False) -> bool:
    """Whether a value is only added to constants that are not tiny.

    Args:
        may_scale: also after it was multiplied by a constant that is not huge.
    """

    def is_added_by(user: Op) -> bool:
        if not isinstance(user, arith.Add | arith.Sub | arith.Mul):
            return False
        lhs, rhs = user.operands
        constant = arith.constant_value(rhs if lhs is value else lhs)
        if constant is None:
            return False
        if isinstance(user, arith.Mul):
            return may_scale and abs(constant) <= MOST_FACTOR and _is_added(user.result)
        return abs(constant) >= LARGE_SUMMAND

    return bool(value.users) and all(is_added_by(user) for user in value.users)


@lowers(arith.Fma, target=NAME)
def lower_fma(b: Builder, op: arith.Fma, x: V, y: V, z: V) -> V:
    """fp16 has an instruction; narrower types have none that rounds once."""
    if _element(op) == ir.FP16:
        return b.fma(x, y, z)
    return common.lower_fma(b, op, x, y, z)


# -- integer quotients ----------------------------------------------------------------------------


@lowers(arith.IntDiv, target=NAME)
def lower_idiv(b: Builder, op: arith.IntDiv, lhs: V, rhs: V) -> V:
    if not _divides_words(op, rhs):
        return common.lower_idiv(b, op, lhs, rhs)
    quotient = _of_magnitudes(b, "div", op, lhs, rhs)
    if not _is_natural(op.lhs) or not _is_natural(op.rhs):
        negative = b.icmp("slt", b.xor(lhs, rhs), const(I32, 0))
        quotient = b.select(negative, b.neg(quotient), quotient)
    return _unless_by_zero(b, op, rhs, quotient)


@lowers(arith.Rem, target=NAME)
def lower_rem(b: Builder, op: arith.Rem, lhs: V, rhs: V) -> V:
    if not _divides_words(op, rhs):
        return rem_without_library(b, op, lhs, rhs)
    rest = _of_magnitudes(b, "rem", op, lhs, rhs)
    if not _is_natural(op.lhs):
        rest = b.select(b.icmp("slt", lhs, const(I32, 0)), b.neg(rest), rest)
    return _unless_by_zero(b, op, rhs, rest)


def _divides_words(op: arith.IntDiv | arith.Rem, rhs: V) -> bool:
    """Whether an op divides 32-bit integers by a number that is not constant. LLVM divides longer
    ones as 32-bit ones if they are short, and by constants without a division."""
    element = _element(op)
    return element in (ir.I32, ir.U32) and rhs.number is None


def _of_magnitudes(b: Builder, name: str, op: arith.IntDiv | arith.Rem, lhs: V, rhs: V) -> V:
    """Quotient or remainder of magnitudes, any value if the divisor is 0.

    In LLVM, a divisor of 0 is undefined, and so is -1 for the smallest integer. Both would have to
    be replaced before the division, in the chain of computations that a program's first load waits
    for; and remainders by the same number would have several reciprocals.
    """
    x, y = (
        v
        if _is_natural(given)
        else b.intrinsic("llvm.abs", I32, [v, const(int_type(1), 0)], overloads=[I32])
        for v, given in ((lhs, op.lhs), (rhs, op.rhs))
    )
    return b.inline_asm(f"{name}.u32 $0, $1, $2;", "=r,r,r", I32, [x, y])


def _is_natural(value: Value) -> bool:
    """Whether no element is negative."""
    return not ir.dtype_of(value.type).is_int_signed() or value_range(value)[0] >= 0


def _unless_by_zero(b: Builder, op: arith.IntDiv | arith.Rem, rhs: V, result: V) -> V:
    least, most = value_range(op.rhs)
    if least > 0 or most < 0:
        return result
    return b.select(b.icmp("eq", rhs, const(I32, 0)), const(I32, 0), result)


# -- bits -----------------------------------------------------------------------------------------


@lowers(arith.Shl, arith.Shr, target=NAME)
def lower_shift(b: Builder, op: arith.Shl | arith.Shr, lhs: V, rhs: V) -> V:
    """The common lowering, except for 64-bit shifts by a variable count.

    The instruction clamps its 32-bit count. LLVM uses that to drop our check of the count, but
    truncates the count to 32 bits first, so that a shift by 2**32 would be a shift by 0. Hence the
    count is clamped before its truncation, and the shift is opaque to LLVM.
    """
    if lhs.type.lanes and lhs.type.bits == 16:
        return _shift_pair(b, op, lhs, rhs)
    if lhs.type.bits < 64 or rhs.number is not None:
        if isinstance(op, arith.Shl):
            return common.lower_shl(b, op, lhs, rhs)
        return common.lower_shr(b, op, lhs, rhs)
    count = b.intrinsic("llvm.umin", rhs.type, [rhs, const(rhs.type, 64)], overloads=[rhs.type])
    signed = _element(op).is_int_signed()
    name = "shl.b64" if isinstance(op, arith.Shl) else "shr.s64" if signed else "shr.u64"
    return b.inline_asm(f"{name} $0, $1, $2;", "=l,l,r", lhs.type, [lhs, b.trunc(count, I32)])


def shifts_pairs(op: Op) -> bool:
    """Whether an op shifts integers of 16 bits so that those of a word can be shifted at once."""
    match op:
        case arith.Shl(_, Value(op=arith.Constant(int(count)))) | arith.Shr(
            _, Value(op=arith.Constant(int(count)))
        ):
            element = _element(op)
            signed = isinstance(op, arith.Shr) and element.is_int_signed()
            return element.primitive_bitwidth == 16 and 0 <= count < 16 and not signed
        case _:
            return False


def _shift_pair(b: Builder, op: arith.Shl | arith.Shr, lhs: V, rhs: V) -> V:
    """Two elements of a word, which LLVM would shift apart: without the bits of the other one."""
    count = rhs.number
    assert isinstance(count, int)
    word = b.bitcast(lhs, I32)
    if isinstance(op, arith.Shl):
        moved, kept = b.shl(word, count), 0xFFFF << count & 0xFFFF
    else:
        moved, kept = b.lshr(word, count), 0xFFFF >> count
    return b.bitcast(b.and_(moved, kept << 16 | kept), lhs.type)


@lowers(arith.Cast, target=NAME)
def lower_cast(b: Builder, op: arith.Cast, src: V) -> V:
    source, to = _element(op), op.to
    short = to.is_int() and not to.is_bool() and to.primitive_bitwidth <= 32
    if source.is_floating() and source != ir.FP64 and short:
        return _to_integer(b, widen(b, src, source), to)
    found = from_range(b, op, src) or from_integer(b, src, source, to)
    return common.lower_cast(b, op, src) if found is None else found


def _to_integer(b: Builder, x: V, to: ir.DType) -> V:
    """fp32 to the nearest integer toward zero, of 32 bits at most: the instruction saturates and
    makes 0 of NaN, too, where LLVM compares and selects."""
    bits = to.primitive_bitwidth
    text = f"cvt.rzi.{'s' if to.is_int_signed() else 'u'}{bits}.f32 $0, $1;"
    if bits == 16:
        return b.inline_asm(text, "=h,f", int_type(16), [x])
    word = b.inline_asm(text, "=r,f", I32, [x])
    return word if bits == 32 else b.trunc(word, int_type(8))


@lowers(arith.Bitcast, target=NAME)
def lower_bitcast(b: Builder, op: arith.Bitcast, src: V) -> V:
    """A bitcast whose bits are opaque to ptxas where it miscompiles them (seen with 13.0).

    A narrow store of the low bits of a float is, in LLVM's PTX, a store of a wide register, and
    ptxas takes it for a conversion to an integer. And a `selp 1, 0` whose result is converted from
    fp16 to fp32, or from fp32 to fp64, becomes 1.0, as if it were an integer.
    """
    to_float = register_type(op.to).is_float
    if src.type.is_float:
        opaque = not to_float
    else:
        opaque = to_float and src.type.bits in (16, 32) and _is_bit(op.src)
    return common.lower_bitcast(b, op, _opaque_bits(b, src) if opaque else src)


def _is_bit(value: Value) -> bool:
    """Whether every element is an integer that is 0 or 1."""
    return ir.is_int(value.type) and value_range(value) in ((0, 0), (0, 1), (1, 1))


# Constraints of inline assembly for integers and for floats, by bits.
_INT_REGISTER = {16: "h", 32: "r", 64: "l"}
_FLOAT_REGISTER = {16: "h", 32: "f", 64: "d"}


def _opaque_bits(b: Builder, src: V) -> V:
    """The bits of a float, or of an integer that is 0 or 1, as an integer, by instructions from
    which ptxas derives neither the operand's type nor its range."""
    bits = src.type.bits
    if src.type.is_float:
        code, operand, register = f"mov.b{bits} $0, $1;", src, _FLOAT_REGISTER[bits]
    else:
        top = 1 << (bits - 1)
        code = f"selp.b{bits} $0, {top + 1}, 0, $1; and.b{bits} $0, $0, {top - 1};"
        operand, register = b.icmp("ne", src, const(src.type, 0)), "b"
    constraints = f"={_INT_REGISTER[bits]},{register}"
    return b.inline_asm(code, constraints, int_type(bits), [operand])


# -- what others call a C library for --------------------------------------------------------------

lowers(math.Sin, math.Cos, target=NAME)(sin_cos_without_library)

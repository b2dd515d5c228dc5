"""Lowering of arithmetic to NVIDIA's instructions.

A quotient of fp32 has an error of at most 2.12 ulp (measured on an H200, over 2**32 pairs), as that
of div.full, unless correct rounding is required.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.analysis.magnitudes import Interval, has_normal_reciprocals, interval
from tilewright.analysis.ranges import value_range
from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.lowering import arith as common
from tilewright.lowering.convert import narrow, widen
from tilewright.lowering.emit import BF16, F16, F32, I32, I64, Builder, V, const, int_type, like
from tilewright.lowering.fmod import correct_reciprocal
from tilewright.lowering.math_common import fabs
from tilewright.lowering.registry import lowers
from tilewright.lowering.types import register_type
from tilewright.lowering.without_library import rem_without_library
from tilewright.ops import arith
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.nvidia.small_integers import from_integer, from_range


def _element(op: arith.Op) -> ir.DType:
    return ir.dtype_of(op.operands[0].type)


def instruction(b: Builder, name: str, *operands: V) -> V:
    """A PTX instruction on fp32 registers, as inline assembly."""
    places = ", ".join(f"${i}" for i in range(len(operands) + 1))
    constraints = ",".join(["=f"] + ["f"] * len(operands))
    return b.inline_asm(f"{name} {places};", constraints, F32, list(operands))


# -- sums and products ----------------------------------------------------------------------------


@lowers(arith.Add, target=NAME)
def lower_add(b: Builder, op: arith.Add, lhs: V, rhs: V) -> V:
    return _in_bf16(b, op, b.fadd, lhs, rhs) or common.lower_add(b, op, lhs, rhs)


@lowers(arith.Sub, target=NAME)
def lower_sub(b: Builder, op: arith.Sub, lhs: V, rhs: V) -> V:
    return _in_bf16(b, op, b.fsub, lhs, rhs) or common.lower_sub(b, op, lhs, rhs)


@lowers(arith.Mul, target=NAME)
def lower_mul(b: Builder, op: arith.Mul, lhs: V, rhs: V) -> V:
    if has_upper_half(op):
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


def has_upper_half(op: arith.Mul) -> bool:
    """Whether the upper half of a product of words is computed, too."""
    if _element(op).primitive_bitwidth != 32:
        return False
    # Both operands have the other product among their users. One may be a value that all of a long
    # kernel uses, whose users must not be searched for each product.
    fewest = min(op.lhs.users, op.rhs.users, key=len)
    return any(
        isinstance(user, arith.MulHi) and {*user.operands} == {*op.operands} for user in fewest
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


# -- extrema --------------------------------------------------------------------------------------


@lowers(arith.Min, arith.Max, target=NAME)
def lower_extremum(b: Builder, op: arith.Min | arith.Max, lhs: V, rhs: V) -> V:
    """Of 16-bit floats without a conversion, as one of them is the result."""
    if not picks_from_pairs(op):
        return common.lower_extremum(b, op, lhs, rhs)
    kind = like(F16 if _element(op) == ir.FP16 else BF16, lhs.type)
    x, y = b.bitcast(lhs, kind), b.bitcast(rhs, kind)
    largest = isinstance(op, arith.Max)
    return b.bitcast(common.float_extremum(b, x, y, largest, op.propagate_nan), lhs.type)


def picks_from_pairs(op: Op) -> bool:
    """Whether an op has a number of 16 bits from either operand as its result."""
    return isinstance(op, arith.Min | arith.Max) and _element(op) in (ir.FP16, ir.BF16)


# -- quotients ----------------------------------------------------------------------------------


@lowers(arith.Div, target=NAME)
def lower_div(b: Builder, op: arith.Div, lhs: V, rhs: V) -> V:
    element = _element(op)
    if op.correctly_rounded:
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
"""A dividend and a factor of up to 2**20 leave less than 2**-86 of a quotient by `LARGEST`, which
does not change a sum with a constant of at least 2**-60: an fp32 has 24 bits."""


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
        return rem_without_library(b, op, lhs, rhs, _reciprocal)
    rest = _of_magnitudes(b, "rem", op, lhs, rhs)
    if not _is_natural(op.lhs):
        rest = b.select(b.icmp("slt", lhs, const(I32, 0)), b.neg(rest), rest)
    return _unless_by_zero(b, op, rhs, rest)


def _reciprocal(b: Builder, y: V) -> V:
    """1 / y for a remainder, which is exact whatever this is: 0 for very large y."""
    if y.type is not F32:
        return correct_reciprocal(b, y)
    return instruction(b, "rcp.approx.ftz.f32", y)


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
    """Two elements of a word, which LLVM would shift separately: the bits of the other element are
    masked off."""
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
    """fp32 truncated to an integer of at most 32 bits: the instruction saturates and returns 0 for
    NaN, where LLVM would emit comparisons and selects.

    Shorter results are those of 32 bits, clamped. Of the result of a conversion to 16 or 8 bits,
    ptxas 12.8 and 13.0 know that the rest of the register extends it, but may copy only a half of
    the register, and then take the copy as a whole for a shift or an extremum: signs are wrong.
    """
    bits, signed = to.primitive_bitwidth, to.is_int_signed()
    kind = "s" if signed else "u"
    word = b.inline_asm(f"cvt.rzi.{kind}32.f32 $0, $1;", "=r,f", I32, [x])
    if bits == 32:
        return word
    most = (1 << (bits - signed)) - 1
    word = b.intrinsic(f"llvm.{kind}min", I32, [word, const(I32, most)], overloads=[I32])
    if signed:
        word = b.intrinsic("llvm.smax", I32, [word, const(I32, -most - 1)], overloads=[I32])
    return b.trunc(word, int_type(bits))


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

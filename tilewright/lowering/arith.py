"""Lowering of the elementwise ops of `ops/arith.py` and `ops/math.py`.

Each function takes operands as scalars or vectors of equal lanes, in register types, and returns
the result likewise. Results are bit-exact with the op's `evaluate`, except for mathematical
functions, whose error is bounded in `lowering.math`. Arithmetic is total: where LLVM's instruction
is undefined or poison (division by zero, large shifts), operands are replaced before it.
"""

from __future__ import annotations

from tilewright.analysis.from_integers import from_integers
from tilewright.analysis.magnitudes import largest_magnitude
from tilewright.ir import types as ir
from tilewright.ir.core import Op
from tilewright.lowering.convert import cast, narrow, widen
from tilewright.lowering.emit import F64, I32, I64, I128, Builder, V, const, like
from tilewright.lowering.math import MATH
from tilewright.lowering.registry import lowers
from tilewright.lowering.types import register_type
from tilewright.ops import arith, marks, math


def _element(op: Op) -> ir.DType:
    """The element type of the op's first operand."""
    return ir.dtype_of(op.operands[0].type)


def _is_float(op: Op) -> bool:
    return ir.is_float(op.operands[0].type)


def _in_float(b: Builder, op: Op, name: str, *args: V) -> V:
    """A float instruction; for narrow types computed in fp32, and rounded."""
    element = _element(op)
    wide = [widen(b, a, element) for a in args]
    return narrow(b, getattr(b, name)(*wide), element)


@lowers(arith.Add)
def lower_add(b: Builder, op: arith.Add, lhs: V, rhs: V) -> V:
    return _in_float(b, op, "fadd", lhs, rhs) if _is_float(op) else b.add(lhs, rhs)


@lowers(arith.Sub)
def lower_sub(b: Builder, op: arith.Sub, lhs: V, rhs: V) -> V:
    return _in_float(b, op, "fsub", lhs, rhs) if _is_float(op) else b.sub(lhs, rhs)


@lowers(arith.Mul)
def lower_mul(b: Builder, op: arith.Mul, lhs: V, rhs: V) -> V:
    return _in_float(b, op, "fmul", lhs, rhs) if _is_float(op) else b.mul(lhs, rhs)


@lowers(arith.Div)
def lower_div(b: Builder, op: arith.Div, lhs: V, rhs: V) -> V:
    return _in_float(b, op, "fdiv", lhs, rhs)


def _safe_divisor(b: Builder, element: ir.DType, rhs: V) -> tuple[V, V]:
    """A divisor that cannot trap, and the predicate that the original one was replaced by 1: if it
    is 0, or -1 with a dividend of MIN, whose quotient overflows.

    It does not depend on the dividend, so that what is computed of one divisor for a division, such
    as its reciprocal on a GPU, is computed once for all elements.
    """
    one = const(rhs.type, 1)
    unsafe = b.icmp("eq", rhs, const(rhs.type, 0))
    if element.is_int_signed():
        unsafe = b.icmp("ult", b.add(rhs, one), const(rhs.type, 2))
    return b.select(unsafe, one, rhs), unsafe


@lowers(arith.IntDiv)
def lower_idiv(b: Builder, op: arith.IntDiv, lhs: V, rhs: V) -> V:
    """x // d by a safe divisor, times 1; times d itself if it is 0 or -1."""
    element = _element(op)
    if element.is_bool():
        return b.and_(lhs, rhs)
    divisor, unsafe = _safe_divisor(b, element, rhs)
    divide = b.sdiv if element.is_int_signed() else b.udiv
    return b.mul(divide(lhs, divisor), b.select(unsafe, rhs, const(rhs.type, 1)))


@lowers(arith.Rem)
def lower_rem(b: Builder, op: arith.Rem, lhs: V, rhs: V) -> V:
    element = _element(op)
    if element.is_floating():
        return _fmod(b, element, lhs, rhs)
    if element.is_bool():
        return const(lhs.type, 0)
    divisor, _ = _safe_divisor(b, element, rhs)
    return b.srem(lhs, divisor) if element.is_int_signed() else b.urem(lhs, divisor)


def _fmod(b: Builder, element: ir.DType, lhs: V, rhs: V) -> V:
    """fmod, exact for every magnitude: calls of the C library, lane by lane."""
    x, y = widen(b, lhs, element), widen(b, rhs, element)
    name = "fmod" if x.type.element is F64 else "fmodf"
    if not x.type.lanes:
        return narrow(b, b.call(name, x.type, [x, y], "nobuiltin"), element)
    result = x
    for i in range(x.type.lanes):
        lane = b.call(name, x.type.element, [b.extract(x, i), b.extract(y, i)], "nobuiltin")
        result = b.insert(result, lane, i)
    return narrow(b, result, element)


@lowers(arith.And)
def lower_and(b: Builder, op: arith.And, lhs: V, rhs: V) -> V:
    return b.and_(lhs, rhs)


@lowers(arith.Or)
def lower_or(b: Builder, op: arith.Or, lhs: V, rhs: V) -> V:
    return b.or_(lhs, rhs)


@lowers(arith.Xor)
def lower_xor(b: Builder, op: arith.Xor, lhs: V, rhs: V) -> V:
    return b.xor(lhs, rhs)


@lowers(arith.Shl)
def lower_shl(b: Builder, op: arith.Shl, lhs: V, rhs: V) -> V:
    bits = lhs.type.bits
    if bits == 1:
        return b.and_(lhs, b.not_(rhs))
    inside = b.icmp("ult", rhs, const(rhs.type, bits))
    count = b.select(inside, rhs, const(rhs.type, 0))
    return b.select(inside, b.shl(lhs, count), const(lhs.type, 0))


@lowers(arith.Shr)
def lower_shr(b: Builder, op: arith.Shr, lhs: V, rhs: V) -> V:
    bits = lhs.type.bits
    if bits == 1:
        return b.and_(lhs, b.not_(rhs))
    inside = b.icmp("ult", rhs, const(rhs.type, bits))
    if _element(op).is_int_signed():
        return b.ashr(lhs, b.select(inside, rhs, const(rhs.type, bits - 1)))
    count = b.select(inside, rhs, const(rhs.type, 0))
    return b.select(inside, b.lshr(lhs, count), const(lhs.type, 0))


@lowers(arith.Min, arith.Max)
def lower_extremum(b: Builder, op: arith.Min | arith.Max, lhs: V, rhs: V) -> V:
    element = _element(op)
    largest = isinstance(op, arith.Max)
    if not element.is_floating():
        if element.is_bool():
            return b.or_(lhs, rhs) if largest else b.and_(lhs, rhs)
        kind = "s" if element.is_int_signed() else "u"
        name = f"llvm.{kind}{'max' if largest else 'min'}"
        return b.intrinsic(name, lhs.type, [lhs, rhs], overloads=[lhs.type])
    x, y = widen(b, lhs, element), widen(b, rhs, element)
    if element.is_fp8():
        return _picked_extremum(b, (lhs, x), (rhs, y), largest, op.propagate_nan)
    return narrow(b, float_extremum(b, x, y, largest, op.propagate_nan), element)


def float_extremum(b: Builder, x: V, y: V, largest: bool, propagate: bool) -> V:
    """llvm.maximumnum or llvm.maximum, which order -0.0 below 0.0, as the op does."""
    stem = "maximum" if largest else "minimum"
    name = f"llvm.{stem}{'' if propagate else 'num'}"
    return b.intrinsic(name, x.type, [x, y], overloads=[x.type])


def _picked_extremum(
    b: Builder, lhs: tuple[V, V], rhs: tuple[V, V], largest: bool, propagate: bool
) -> V:
    """The bits of one of the operands: converting the fp32 result back would turn an infinity into
    the largest finite number.

    Args:
        lhs, rhs: the operands, each as its bits and as fp32.
    """
    (p, x), (q, y) = lhs, rhs
    best = float_extremum(b, x, y, largest, propagate)
    as_int = like(I32, x.type)
    same = b.icmp("eq", b.bitcast(best, as_int), b.bitcast(x, as_int))
    x_nan, y_nan = b.fcmp("uno", x, x), b.fcmp("uno", y, y)
    first = b.or_(same, x_nan) if propagate else b.or_(same, b.and_(x_nan, y_nan))
    return b.select(first, p, q)


@lowers(arith.Cmp)
def lower_cmp(b: Builder, op: arith.Cmp, lhs: V, rhs: V) -> V:
    element = ir.element_of(op.lhs.type)
    p = op.predicate
    if isinstance(element, ir.DType) and element.is_floating():
        predicate = "une" if p == "ne" else f"o{p}"
        return b.fcmp(predicate, widen(b, lhs, element), widen(b, rhs, element))
    if p not in ("eq", "ne"):
        p = ("s" if isinstance(element, ir.DType) and element.is_int_signed() else "u") + p
    return b.icmp(p, lhs, rhs)


@lowers(arith.Select)
def lower_select(b: Builder, op: arith.Select, condition: V, on_true: V, on_false: V) -> V:
    return b.select(condition, on_true, on_false)


@lowers(arith.Neg)
def lower_neg(b: Builder, op: arith.Neg, src: V) -> V:
    element = _element(op)
    if not element.is_floating():
        return src if element.is_bool() else b.neg(src)
    if src.type.is_float:
        return b.fneg(src)
    # bf16 and fp8 are integers in registers. The fnuz formats have no -0: its pattern is their NaN.
    flipped = b.xor(src, const(src.type, 1 << (src.type.bits - 1)))
    if element in (ir.FP8E4B8, ir.FP8E5B16):
        magnitude = b.and_(src, const(src.type, 0x7F))
        return b.select(b.icmp("eq", magnitude, const(src.type, 0)), src, flipped)
    return flipped


@lowers(arith.Abs)
def lower_abs(b: Builder, op: arith.Abs, src: V) -> V:
    element = _element(op)
    if element.is_floating():
        if src.type.is_float:
            return b.intrinsic("llvm.fabs", src.type, [src], overloads=[src.type])
        cleared = b.and_(src, const(src.type, (1 << (src.type.bits - 1)) - 1))
        if element in (ir.FP8E4B8, ir.FP8E5B16):  # their only NaN has the sign bit
            return b.select(b.icmp("eq", cleared, const(src.type, 0)), src, cleared)
        return cleared
    if not element.is_int_signed():
        return src
    flag = const(like(src.type.element, src.type), 0)
    return b.select(b.icmp("slt", src, flag), b.neg(src), src)


@lowers(arith.Fma)
def lower_fma(b: Builder, op: arith.Fma, x: V, y: V, z: V) -> V:
    element = _element(op)
    if element.primitive_bitwidth >= 32:
        with b.flags(""):  # x * y + -0.0 is a product, which must not be contracted either
            return b.fma(x, y, z)
    # In fp64 the product of narrow floats is exact.
    wide = [cast(b, v, element, ir.FP64) for v in (x, y, z)]
    return cast(b, _sum_to_odd(b, b.fmul(wide[0], wide[1]), wide[2]), ir.FP64, element)


def _sum_to_odd(b: Builder, x: V, y: V) -> V:
    """x + y in fp64, rounded to odd: an inexact sum becomes the adjacent number with last bit 1.

    Rounding that to a type with at least two bits less equals rounding the exact sum once (Boldo
    and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
    odd", 2008). The error of the sum is computed exactly by Knuth's TwoSum. If the sum is not
    finite, the error is NaN, which compares as exact, and the sum is returned.
    """
    total = b.fadd(x, y)
    shifted = b.fsub(total, x)
    error = b.fadd(b.fsub(x, b.fsub(total, shifted)), b.fsub(y, shifted))
    as_int = like(I64, total.type)
    bits = b.bitcast(total, as_int)
    signs_differ = b.xor(bits, b.bitcast(error, as_int))
    beyond = b.lshr(signs_differ, 63)  # 1 if the sum was rounded away from zero
    odd = b.or_(b.sub(bits, beyond), 1)
    inexact = b.fcmp("one", error, const(error.type, 0.0))
    return b.bitcast(b.select(inexact, odd, bits), total.type)


@lowers(arith.MulHi)
def lower_mulhi(b: Builder, op: arith.MulHi, lhs: V, rhs: V) -> V:
    wide = I64 if lhs.type.bits == 32 else I128
    product = b.mul(b.zext(lhs, wide), b.zext(rhs, wide))
    return b.trunc(b.lshr(product, lhs.type.bits), lhs.type.element)


@lowers(arith.Cast)
def lower_cast(b: Builder, op: arith.Cast, src: V) -> V:
    source, to = _element(op), op.to
    known = to == ir.FP16 and source in (ir.FP32, ir.FP64) and from_integers(op.src)
    return cast(b, src, source, to, op.rounding, known)


@lowers(arith.Bitcast)
def lower_bitcast(b: Builder, op: arith.Bitcast, src: V) -> V:
    target = like(register_type(op.to), src.type)
    if src.type.is_ptr:
        return src if target.is_ptr else b.ptrtoint(src, target)
    return b.inttoptr(src, target) if target.is_ptr else b.bitcast(src, target)


@lowers(arith.Hint)
def lower_hint(b: Builder, op: arith.Hint, src: V) -> V:
    return src


@lowers(marks.Residual)
def lower_residual(b: Builder, op: marks.Residual, src: V) -> V:
    return src


@lowers(marks.StopGradient)
def lower_stop_gradient(b: Builder, op: marks.StopGradient, src: V) -> V:
    return src


@lowers(marks.FunctionResult)
def lower_function_result(b: Builder, op: marks.FunctionResult, src: V, *args: V) -> V:
    return src


@lowers(
    math.Exp, math.Exp2, math.Expm1, math.Log, math.Log2, math.Log10, math.Log1p, math.Tan,
    math.Tanh, math.Erf, math.Sqrt, math.Rsqrt, math.Floor, math.Ceil, math.Trunc, math.Rint,
)  # fmt: skip
def lower_math(b: Builder, op: math.MathFunction, src: V) -> V:
    element = _element(op)
    function = MATH[op.name.removeprefix("math.")]
    return narrow(b, function(b, widen(b, src, element)), element)


@lowers(math.Sin, math.Cos)
def lower_sin_cos(b: Builder, op: math.Sin | math.Cos, src: V) -> V:
    element = _element(op)
    function = MATH[op.name.removeprefix("math.")]
    found = function(b, widen(b, src, element), most=largest_magnitude(op.src))
    return narrow(b, found, element)

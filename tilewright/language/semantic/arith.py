"""Arithmetic, comparison, bitwise and logical operators, elementary functions, selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.codes import coded
from tilewright.ir.types import (
    BF16,
    FP16,
    FP32,
    FP64,
    I1,
    I64,
    DType,
    Pointer,
    element_of,
    int_type,
    shape_of,
)
from tilewright.language.semantic import convert, debug
from tilewright.language.semantic.context import IncompatibleTypeErrorImpl, Semantic
from tilewright.language.semantic.convert import arithmetic_operands, cast, constant, to_tensor
from tilewright.language.values import constexpr, tensor
from tilewright.ops import arith as ops
from tilewright.ops.math import Exp, MathFunction
from tilewright.ops.memory import AddPtr


def _is_pointer(x: Any) -> bool:
    return isinstance(x, tensor) and isinstance(x.dtype, Pointer)


# -- operators -------------------------------------------------------------------------------------


def _checked(
    s: Semantic, op: type[ops.Add | ops.Sub | ops.Mul], x: tensor, y: tensor, sanitize: bool
) -> tensor:
    """An operation that is checked for integer overflow in debug mode, unless `sanitize` is off."""
    if not debug.checks_overflow(s, x.dtype):
        return s.emit(op(x.handle, y.handle))
    if sanitize:
        result = s.emit(op(x.handle, y.handle))
        debug.assert_no_overflow(s, op, op.__name__.lower(), x, y)
        return result
    # An unsigned operation has the same bits, and no check of the interpreter applies to it.
    element = x.dtype
    unsigned = int_type(element.primitive_bitwidth, False)
    x, y = convert.bitcast(s, x, unsigned), convert.bitcast(s, y, unsigned)
    return convert.bitcast(s, s.emit(op(x.handle, y.handle)), element)


def add(s: Semantic, a: Any, b: Any, sanitize: bool = True) -> tensor:
    """``a + b``; a pointer plus an integer is offset by that number of elements."""
    if _is_pointer(a) or _is_pointer(b):
        if _is_pointer(a) and _is_pointer(b):
            raise coded("added-pointers", TypeError("cannot add pointers together"))
        return _move_pointer(s, a, b, 1) if _is_pointer(a) else _move_pointer(s, b, a, 1)
    x, y = arithmetic_operands(s, a, b)
    return _checked(s, ops.Add, x, y, sanitize)


def sub(s: Semantic, a: Any, b: Any, sanitize: bool = True) -> tensor:
    """``a - b``; a pointer minus an integer is offset by the negated number of elements."""
    if _is_pointer(a) and not _is_pointer(b):
        return _move_pointer(s, a, b, -1)
    x, y = arithmetic_operands(s, a, b)
    return _checked(s, ops.Sub, x, y, sanitize)


def _move_pointer(s: Semantic, ptr: tensor, offset: Any, sign: int) -> tensor:
    if not isinstance(offset, tensor):
        plain = offset.value if isinstance(offset, constexpr) else offset
        if not isinstance(plain, int):
            raise IncompatibleTypeErrorImpl(ptr.type, type(plain).__name__)
        dtype = convert.natural_type(sign * plain)
        distance = constant(s, sign * plain, dtype, shape_of(ptr.type))
    else:
        if not offset.dtype.is_int():
            raise IncompatibleTypeErrorImpl(ptr.type, offset.type)
        ptr, distance = convert.broadcast(s, ptr, offset)
        sign = sign if sign > 0 else 0
    element = distance.dtype
    assert isinstance(element, DType)
    if element.is_int_unsigned() and element.primitive_bitwidth < 64:
        distance = cast(s, distance, I64)
    if sign == 0:
        distance = s.emit(ops.Neg(distance.handle))
    return s.emit(AddPtr(ptr.handle, distance.handle))


def mul(s: Semantic, a: Any, b: Any, sanitize: bool = True) -> tensor:
    """``a * b``."""
    x, y = arithmetic_operands(s, a, b)
    return _checked(s, ops.Mul, x, y, sanitize)


def truediv(s: Semantic, a: Any, b: Any) -> tensor:
    """``a / b``: integers are converted to fp32 first."""
    x, y = arithmetic_operands(s, a, b, div_or_mod=True)
    if x.dtype.is_int():
        x, y = cast(s, x, FP32), cast(s, y, FP32)
    return s.emit(ops.Div(x.handle, y.handle, x.dtype.is_fp8()))


def floordiv(s: Semantic, a: Any, b: Any) -> tensor:
    """``a // b`` on integers, truncating toward zero."""
    x, y = arithmetic_operands(s, a, b, div_or_mod=True)
    if not x.dtype.is_int():
        raise coded("floor-division", TypeError(f"unexpected type {x.dtype}"))
    return s.emit(ops.IntDiv(x.handle, y.handle))


def mod(s: Semantic, a: Any, b: Any) -> tensor:
    """``a % b`` with the sign of `a`."""
    x, y = arithmetic_operands(s, a, b, div_or_mod=True)
    return s.emit(ops.Rem(x.handle, y.handle))


def _bit_operands(s: Semantic, a: Any, b: Any) -> tuple[tensor, tensor]:
    for value in (a, b):
        if not convert.element_type(value)[0].is_int():
            raise IncompatibleTypeErrorImpl(_type_text(a), _type_text(b))
    return arithmetic_operands(s, a, b)


def _type_text(value: Any) -> str:
    return str(value.type if isinstance(value, tensor) else convert.element_type(value)[0])


def bit_and(s: Semantic, a: Any, b: Any) -> tensor:
    x, y = _bit_operands(s, a, b)
    return s.emit(ops.And(x.handle, y.handle))


def bit_or(s: Semantic, a: Any, b: Any) -> tensor:
    x, y = _bit_operands(s, a, b)
    return s.emit(ops.Or(x.handle, y.handle))


def bit_xor(s: Semantic, a: Any, b: Any) -> tensor:
    x, y = _bit_operands(s, a, b)
    return s.emit(ops.Xor(x.handle, y.handle))


def _check_shift_count(s: Semantic, dtype: Any, count: Any) -> None:
    plain = count.value if isinstance(count, constexpr) else count
    if isinstance(plain, int) and not 0 <= plain < dtype.primitive_bitwidth:
        s.warn(
            f"Value {plain} exceeds the maximum bitwidth ({dtype.primitive_bitwidth}) for type "
            f"'{dtype}'. This may result in undefined behavior.",
        )


def shl(s: Semantic, a: Any, b: Any) -> tensor:
    """``a << b``."""
    x, y = _bit_operands(s, a, b)
    _check_shift_count(s, x.dtype, b)
    return s.emit(ops.Shl(x.handle, y.handle))


def shr(s: Semantic, a: Any, b: Any) -> tensor:
    """``a >> b``: arithmetic if the type of `a` is signed, else logical."""
    x, y = _bit_operands(s, a, b)
    _check_shift_count(s, x.dtype, b)
    promoted = x.dtype
    assert isinstance(promoted, DType)
    own = a.dtype if isinstance(a, tensor) else promoted
    assert isinstance(own, DType)
    signed = own.is_int_signed()
    if signed == promoted.is_int_signed():
        return s.emit(ops.Shr(x.handle, y.handle))
    kind = int_type(promoted.primitive_bitwidth, signed)
    x, y = convert.bitcast(s, x, kind), convert.bitcast(s, y, kind)
    return convert.bitcast(s, s.emit(ops.Shr(x.handle, y.handle)), promoted)


def _comparison(predicate: str) -> Callable[[Semantic, Any, Any], tensor]:
    def compare(s: Semantic, a: Any, b: Any) -> tensor:
        x, y = convert.strong_operands(s, a, b)
        return s.emit(ops.Cmp(x.handle, y.handle, predicate))

    compare.__doc__ = f"Whether `a` {predicate} `b`, as int1."
    return compare


eq, ne = _comparison("eq"), _comparison("ne")
lt, le = _comparison("lt"), _comparison("le")
gt, ge = _comparison("gt"), _comparison("ge")


def neg(s: Semantic, x: tensor) -> tensor:
    """``-x``."""
    if isinstance(x.dtype, Pointer):
        raise coded(
            "wrong-element-type", ValueError(f"wrong type argument to unary minus ({x.type})")
        )
    return s.emit(ops.Neg(x.handle))


def invert(s: Semantic, x: tensor) -> tensor:
    """``~x``; of int1, the logical not."""
    element = x.dtype
    if not element.is_int():
        raise coded("invert", ValueError(f"wrong type argument to unary invert ({x.type})"))
    ones = True if element.is_bool() else -1
    mask = constant(s, ones, element, shape_of(x.type))
    return s.emit(ops.Xor(x.handle, mask.handle))


def logical_not(s: Semantic, x: tensor) -> tensor:
    """``not x`` of an int1, or whether a pointer is null."""
    return invert(s, _truth(s, x))


def _truth(s: Semantic, x: tensor) -> tensor:
    """An int1 as it is; whether a pointer is not null."""
    if isinstance(x.dtype, Pointer):
        return ne(s, convert.cast(s, x, I64), 0)
    return convert.bitcast(s, x, I1)


def _logical_operands(s: Semantic, a: Any, b: Any) -> tuple[tensor, tensor]:
    x, y = convert.broadcast(s, to_tensor(s, a), to_tensor(s, b))
    return _truth(s, x), _truth(s, y)


def logical_and(s: Semantic, a: Any, b: Any) -> tensor:
    x, y = _logical_operands(s, a, b)
    return s.emit(ops.And(x.handle, y.handle))


def logical_or(s: Semantic, a: Any, b: Any) -> tensor:
    x, y = _logical_operands(s, a, b)
    return s.emit(ops.Or(x.handle, y.handle))


# -- functions -------------------------------------------------------------------------------------


def propagates(mode: Any) -> bool:
    """Whether a `PropagateNan` (or a constexpr of one) is ALL."""
    return getattr(mode.value if isinstance(mode, constexpr) else mode, "name", "") == "ALL"


def minimum(s: Semantic, a: Any, b: Any, propagate_nan: bool = False) -> tensor:
    x, y = convert.strong_operands(s, a, b, wide=True)
    return s.emit(ops.Min(x.handle, y.handle, propagate_nan))


def maximum(s: Semantic, a: Any, b: Any, propagate_nan: bool = False) -> tensor:
    x, y = convert.strong_operands(s, a, b, wide=True)
    return s.emit(ops.Max(x.handle, y.handle, propagate_nan))


def smaller(s: Semantic, x: tensor, y: tensor) -> tensor:
    """The minimum of two tensors of one type, in that type."""
    return _extremum(s, ops.Min, x, y)


def larger(s: Semantic, x: tensor, y: tensor) -> tensor:
    """The maximum of two tensors of one type, in that type."""
    return _extremum(s, ops.Max, x, y)


def _extremum(s: Semantic, op: type[ops.Min | ops.Max], x: tensor, y: tensor) -> tensor:
    if isinstance(x.dtype, Pointer):
        raise IncompatibleTypeErrorImpl(x.type, y.type)
    return s.emit(op(x.handle, y.handle, False))


def clamp(s: Semantic, x: Any, low: Any, high: Any, propagate_nan: bool = False) -> tensor:
    """``min(max(x, low), high)``; only a NaN in `x` can propagate."""
    value, lo, hi = convert.strong_operands(s, x, low, high, wide=True)
    if s.options.strict_triton and not value.dtype.is_floating():
        message = f"Unexpected dtype {value.dtype}. Only floating point clamp is supported"
        raise TypeError(message)
    raised = s.emit(ops.Max(value.handle, lo.handle, False))
    if s.options.derivatives and value.dtype.is_floating():
        raised = _kept(s, value, lo, "ge", raised)
    clamped = s.emit(ops.Min(raised.handle, hi.handle, False))
    if s.options.derivatives and value.dtype.is_floating():
        clamped = _kept(s, raised, hi, "le", clamped)
    if not propagate_nan or not value.dtype.is_floating():
        return clamped
    is_nan = s.emit(ops.Cmp(value.handle, value.handle, "ne"))
    return s.emit(ops.Select(is_nan.handle, value.handle, clamped.handle))


def _kept(s: Semantic, x: tensor, bound: tensor, predicate: str, extremum: tensor) -> tensor:
    """The extremum of a number and a bound. If both are equal, the derivative is that of the
    number: `maximum` and `minimum` give each half of it."""
    within = s.emit(ops.Cmp(x.handle, bound.handle, predicate))
    return s.emit(ops.Select(within.handle, x.handle, extremum.handle))


def where(s: Semantic, condition: Any, a: Any, b: Any) -> tensor:
    """`a` where the condition is true, `b` elsewhere; all three are broadcast."""
    test = to_tensor(s, condition)
    if element_of(test.type) is not I1:
        s.warn(
            "tl.where with a non-boolean condition is deprecated and will error out in a future "
            f"triton release. Got {test.dtype}",
        )
        test = convert.as_condition(s, test)
    if _is_pointer(a) or _is_pointer(b):
        if not (_is_pointer(a) and _is_pointer(b) and a.dtype == b.dtype):
            raise IncompatibleTypeErrorImpl(_type_text(a), _type_text(b))
        x, y = a, b
    else:
        x, y = arithmetic_operands(s, a, b)
    test, x, y = convert.broadcast_all(s, (test, x, y))
    return s.emit(ops.Select(test.handle, x.handle, y.handle))


def absolute(s: Semantic, x: Any) -> tensor:
    value = to_tensor(s, x)
    element = value.dtype
    if isinstance(element, DType) and element.is_int_unsigned():
        return value
    if isinstance(element, Pointer):
        raise coded("wrong-element-type", TypeError(f"Unexpected dtype {element}"))
    return s.emit(ops.Abs(value.handle))


def fma(s: Semantic, x: Any, y: Any, z: Any) -> tensor:
    """x * y + z with one rounding."""
    a, b, c = convert.strong_operands(s, x, y, z)
    if not a.dtype.is_floating():
        raise coded("needs-float", TypeError(f"fma takes floats, not {a.dtype}"))
    return s.emit(ops.Fma(a.handle, b.handle, c.handle))


def umulhi(s: Semantic, x: Any, y: Any) -> tensor:
    """High half of the unsigned product of the bit patterns."""
    if s.options.strict_triton:
        for value in (x, y):
            check_dtype(to_tensor(s, value).dtype, ("int32", "int64", "uint32", "uint64"))
    a, b = arithmetic_operands(s, x, y)
    check_dtype(a.dtype, ("int32", "int64", "uint32", "uint64"))
    return s.emit(ops.MulHi(a.handle, b.handle))


def fdiv(s: Semantic, x: Any, y: Any, ieee: bool, approx: bool = False) -> tensor:
    """Float quotient in the common type; with `ieee`, and of floats below 32 bits, correctly
    rounded.
    """
    if approx and ieee:
        raise ValueError("approx and ieee_rounding cannot both be True")
    a, b = arithmetic_operands(s, x, y)
    if s.options.strict_triton and convert.element_type(x)[0] != convert.element_type(y)[0]:
        raise TypeError("both operands of fdiv must have the same floating scalar type")
    if not a.dtype.is_floating():
        raise TypeError("fdiv requires floating-point operands after type promotion")
    if approx and a.dtype is not FP32:
        raise TypeError("approx division requires float32 operands")
    narrow = a.dtype.primitive_bitwidth < 32
    return s.emit(ops.Div(a.handle, b.handle, ieee or narrow))


def div_rn(s: Semantic, x: Any, y: Any) -> tensor:
    """Correctly rounded fp32 quotient."""
    a, b = arithmetic_operands(s, x, y)
    check_dtype(a.dtype, ("fp32",))
    return s.emit(ops.Div(a.handle, b.handle, True))


def check_dtype(element: Any, allowed: tuple[str, ...]) -> None:
    """Raise ValueError unless the element type's name is among `allowed`."""
    if element.name not in allowed:
        raise coded(
            "wrong-element-type",
            ValueError(f"Expected dtype {list(allowed)} but got {element}"),
            allowed=allowed,
        )


def unary_math(s: Semantic, op: type[MathFunction], x: Any, **attrs: Any) -> tensor:
    """An elementary function of fp32 or fp64."""
    return s.emit(op(float_operand(s, x).handle, **attrs))


def unary_math_method(s: Semantic, op: type[MathFunction], x: tensor, **attrs: Any) -> tensor:
    """An elementary function called as a method, which takes fp16 and bf16 too, as in Triton: they
    are computed in fp32, and the result is rounded to the same type."""
    if x.dtype not in (FP16, BF16):
        return unary_math(s, op, x, **attrs)
    return cast(s, unary_math(s, op, cast(s, x, FP32), **attrs), x.dtype)


def float_operand(s: Semantic, x: Any) -> tensor:
    """An fp32 or fp64 tensor unchanged; a Python number, also an integer, as a float constant."""
    if not isinstance(x, tensor):
        plain = x.value if isinstance(x, constexpr) else x
        if isinstance(plain, bool | int):
            x = constant(s, float(plain), FP32)
    value = to_tensor(s, x)
    if value.dtype is not FP32 and value.dtype is not FP64:
        check_dtype(value.dtype, ("fp32", "fp64"))
    return value


def sigmoid(s: Semantic, x: Any) -> tensor:
    """1 / (1 + exp(-x))."""
    value = float_operand(s, x)
    e = unary_math(s, Exp, neg(s, value))
    return truediv(s, 1.0, add(s, e, 1.0))


def cdiv(s: Semantic, x: Any, div: Any) -> Any:
    """``(x + (div - 1)) // div``; a number that is returned if both are."""
    if not isinstance(x, tensor) and not isinstance(div, tensor):
        a, b = constexpr(x).value, constexpr(div).value
        return convert.returned(s, constexpr((a + (b - 1)) // b))
    for value in (x, div):
        convert.element_type(value)  # raises TypeError unless it is a number or a tensor
    less = sub(s, div, 1) if isinstance(div, tensor) else constexpr(div) - 1
    return floordiv(s, add(s, x, less), div)

"""Conversion of Python numbers to tensors, type promotion, broadcasting, and casts."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.codes import coded
from tilewright.ir.numbers import first_number
from tilewright.ir.types import (
    BF16,
    FP16,
    FP32,
    FP64,
    I1,
    I32,
    I64,
    U32,
    U64,
    DType,
    Pointer,
    Scalar,
    Tile,
    Type,
    element_of,
    shape_of,
    with_element,
)
from tilewright.language.semantic.context import IncompatibleTypeErrorImpl, Semantic
from tilewright.language.values import (
    as_returned,
    constexpr,
    returned_number,
    tensor,
    type_of,
)
from tilewright.ops.arith import Bitcast, Cast, Cmp, Constant
from tilewright.ops.numeric import float_to_float
from tilewright.ops.shape import Broadcast, ExpandDims, Splat

FP32_MIN_NORMAL = 2.0**-126
FP32_MAX = (2 - 2.0**-23) * 2.0**127

# -- numbers ---------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    """Whether this is a Python number, or a constexpr of one."""
    if isinstance(value, constexpr):
        value = value.value
    return isinstance(value, bool | int | float)


def natural_type(value: bool | int | float) -> DType:
    """The default type of a Python number.

    Raises:
        ValueError: an integer of more than 64 bits.
    """
    if isinstance(value, bool):
        return I1
    if isinstance(value, float):
        exact = value == 0.0 or not math.isfinite(value)
        return FP32 if exact or FP32_MIN_NORMAL <= abs(value) <= FP32_MAX else FP64
    for dtype, low, high in (
        (I32, -(2**31), 2**31),
        (U32, 2**31, 2**32),
        (I64, -(2**63), 2**63),
        (U64, 2**63, 2**64),
    ):
        if low <= value < high:
            return dtype
    raise ValueError(f"Nonrepresentable integer {value}.")


def round_to_fp32(value: float) -> float:
    """The nearest fp32 number; infinite on overflow."""
    return ctypes.c_float(value).value


def exact_value(value: bool | int | float, element: Scalar) -> bool | int | float:
    """The value of a constant of type `element`: integers wrap, floats round.

    Floats narrower than fp32 are rounded to fp32 first, as in Triton, and then as by a cast.
    """
    if isinstance(element, Pointer):
        return int(value)
    if element.is_bool():
        return bool(value != 0)
    if element.is_int():
        bits = element.primitive_bitwidth
        wrapped = int(value) & ((1 << bits) - 1)
        negative = element.is_int_signed() and wrapped >> (bits - 1)
        return wrapped - (1 << bits) if negative else wrapped
    number = float(value)
    if element is FP64:
        return number
    number = round_to_fp32(number)
    if element is FP32:
        return number
    with np.errstate(over="ignore", under="ignore"):
        rounded = float_to_float(np.asarray(number, np.float32), element, "rtne")
    return first_number(rounded, element)


def constant(
    s: Semantic, value: bool | int | float, element: Scalar, shape: tuple[int, ...] = ()
) -> tensor:
    """A constant tensor with all elements equal to the number, rounded or wrapped to the element
    type."""
    check_fp8(s, element)
    type_: Type = Tile(shape, element) if shape else element
    return s.emit(Constant(exact_value(value, element), type_))


MAX_SHOWN = 60  # characters of a value in a message


def not_a_number(value: Any) -> TypeError:
    """The error of another kind of value where a tensor or a number is required."""
    text = " ".join(str(value).split())
    shown = text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
    error = TypeError(f"cannot convert {shown} of type {type(value)} to tensor")
    return coded("not-a-tensor", error, value=value)


def to_tensor(s: Semantic, value: Any) -> tensor:
    """Convert a Python number to a constant; tensors are unchanged.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(value, tensor):
        return value
    plain: Any = value.value if isinstance(value, constexpr) else value
    if isinstance(plain, bool | int | float):
        return constant(s, plain, natural_type(plain))
    raise not_a_number(plain)


def returned(s: Semantic, value: Any) -> Any:
    """The result of a call in the caller: numbers are `returned_number`s or, with `strict_triton`,
    tensors, which are not compile-time values."""
    if s.options.strict_triton:
        return as_returned(value, lambda number: to_tensor(s, number))
    return as_returned(value)


def typed(s: Semantic, value: Any) -> Any:
    """An operand: a number that a function has returned becomes a constant of its type."""
    return to_tensor(s, value) if isinstance(value, returned_number) else value


def compile_time_int(value: Any, what: str) -> int:
    """The value of a compile-time integer.

    Raises:
        ValueError: it is not an integer, or a run-time value.
    """
    plain = value.value if isinstance(value, constexpr) else value
    if not isinstance(plain, int):
        shown = f"a run-time value of type {plain.type}" if isinstance(plain, tensor) else plain
        error = ValueError(f"{what} must be a compile-time integer, not {shown}")
        raise coded("needs-constant", error, value=plain)
    return plain


def number_as(s: Semantic, value: Any, element: Scalar, shape: tuple[int, ...] = ()) -> tensor:
    """A Python number in its default type, cast to `element`; folded to a constant if possible."""
    plain = value.value if isinstance(value, constexpr) else value
    natural = natural_type(plain)
    if natural.is_floating() and not element.is_floating():
        return extend_to(s, cast(s, constant(s, plain, natural), element), shape)
    return constant(s, exact_value(plain, natural), element, shape)


# -- promotion -------------------------------------------------------------------------------------


def check_fp8(s: Semantic, element: Scalar) -> None:
    """Raise ValueError if the target lacks this fp8 type."""
    while isinstance(element, Pointer):
        element = element.element_ty
    if element.is_fp8() and element.name not in s.options.supported_fp8_dtypes:
        raise ValueError(
            f"type {element} not supported in this architecture. The supported fp8 dtypes are "
            f"{s.options.supported_fp8_dtypes}"
        )


def integer_promote(a: DType, b: DType) -> DType:
    """Same signedness: the wider. Else the unsigned one unless the signed one is wider."""
    a_bits, b_bits = a.primitive_bitwidth, b.primitive_bitwidth
    a_signed, b_signed = a.is_int_signed(), b.is_int_signed()
    if a_signed == b_signed:
        return a if a_bits > b_bits else b
    if a_signed:
        return b if b_bits >= a_bits else a
    return a if a_bits >= b_bits else b


def computation_type(
    a: DType, a_weak: bool, b: DType, b_weak: bool, div_or_mod: bool = False
) -> DType:
    """The element type in which an operation on `a` and `b` is done.

    A weak operand is a Python number; it takes the other's type unless its kind is higher (bool <
    integer < float).

    Raises:
        TypeError: the two do not mix.
    """
    if a_weak != b_weak:
        weak, strong = (a, b) if a_weak else (b, a)
        if weak.kind().value <= strong.kind().value:
            a = b = strong
    if a is FP64 or b is FP64:
        return FP64
    if div_or_mod and any(x is FP16 or x is BF16 for x in (a, b)):
        return FP32
    if a is FP32 or b is FP32:
        return FP32
    if a is FP16 or b is FP16:
        return FP16
    if a is BF16 or b is BF16:
        return BF16 if a is b else FP32
    if a.is_fp8() and b.is_fp8():
        return a if a is b else FP16
    if not a.is_int() or not b.is_int():
        raise coded("fp8-mix", TypeError(f"unexpected type {a} and {b}"))
    if div_or_mod and a.int_signedness != b.int_signedness:
        message = (
            f"Cannot use /, #, or % with {a} and {b} because they have different signedness;this "
            "is unlikely to result in a useful answer. Cast them to the same signedness."
        )
        raise coded("signedness", TypeError(message))
    return integer_promote(a, b)


def _number_in(s: Semantic, value: Any, dtype: DType, shape: tuple[int, ...]) -> tensor:
    """A weak operand as a constant of the type in which the operation is done."""
    plain = value.value if isinstance(value, constexpr) else value
    if isinstance(plain, int) and not isinstance(plain, bool) and dtype.is_int():
        if dtype.is_int_unsigned() and plain < 0:
            raise ValueError(
                "Cannot perform a binary operation between an unsigned tensor and a negative "
                "scalar. Perform a explicit cast on one of them."
            )
        if not dtype.get_int_min_value() <= plain <= dtype.get_int_max_value():
            raise coded(
                "number-range",
                ValueError(f"Scalar {plain} is out of range for type {dtype}"),
                number=plain,
                element=dtype,
            )
    return constant(s, plain, dtype, shape)


def element_type(value: Any) -> tuple[Scalar, bool]:
    """The element type of an operand, and whether it is weak: a number that is not `typed`."""
    if isinstance(value, tensor):
        return value.dtype, False
    plain = value.value if isinstance(value, constexpr) else value
    if isinstance(plain, bool | int | float):
        return natural_type(plain), True
    raise not_a_number(plain)


def arithmetic_operands(
    s: Semantic, a: Any, b: Any, *, div_or_mod: bool = False
) -> tuple[tensor, tensor]:
    """The two operands, numbers or tensors, in the common element type and shape.

    Raises:
        IncompatibleTypeErrorImpl: one is a pointer.
        TypeError, ValueError: the types do not mix, a number does not fit, shapes do not broadcast.
    """
    a, b = typed(s, a), typed(s, b)
    (a_type, a_weak), (b_type, b_weak) = element_type(a), element_type(b)
    if isinstance(a_type, Pointer) or isinstance(b_type, Pointer):
        raise IncompatibleTypeErrorImpl(_shown(a, a_type), _shown(b, b_type))
    dtype = computation_type(a_type, a_weak, b_type, b_weak, div_or_mod)
    return joined_operands(s, a, b, dtype)


def strong_operands(s: Semantic, *operands: Any, wide: bool = False) -> tuple[tensor, ...]:
    """Operands of comparisons, `minimum`, `maximum`, `clamp` and `fma`: a number is treated as a
    value of its own type. So an fp16 value is compared with 0.1 in fp32, and int8 with 300 in
    int32.

    With `wide`, bfloat16 becomes fp32. Beyond Triton, an integer takes the type of an fp8 value,
    with which it does not mix otherwise.
    """
    types: list[DType] = []
    numbers: list[DType] = []
    for value in operands:
        element, is_number = element_type(value)
        if isinstance(element, Pointer):
            raise IncompatibleTypeErrorImpl(*(_shown(v, element_type(v)[0]) for v in operands[:2]))
        if is_number:
            numbers.append(element)
        else:
            types.append(FP32 if wide and element is BF16 else element)
    if not s.options.strict_triton and any(t.is_fp8() for t in types):
        numbers = [t for t in numbers if t.is_floating()]
    dtype = _together(types + numbers)
    assert dtype is not None
    tensors = [cast(s, v, dtype) if isinstance(v, tensor) else v for v in operands]
    shape: tuple[int, ...] = ()
    for v in tensors:
        shape = common_shape(shape, shape_of(v.type)) if isinstance(v, tensor) else shape
    return tuple(
        extend_to(s, v, shape) if isinstance(v, tensor) else number_as(s, v, dtype, shape)
        for v in tensors
    )


def joined_operands(s: Semantic, a: Any, b: Any, dtype: DType) -> tuple[tensor, tensor]:
    """The two operands cast to `dtype` and broadcast to their common shape."""
    if isinstance(a, tensor) and isinstance(b, tensor):
        return broadcast(s, cast(s, a, dtype), cast(s, b, dtype))
    if isinstance(a, tensor):
        return cast(s, a, dtype), _number_in(s, b, dtype, shape_of(a.type))
    if isinstance(b, tensor):
        return _number_in(s, a, dtype, shape_of(b.type)), cast(s, b, dtype)
    return _number_in(s, a, dtype, ()), _number_in(s, b, dtype, ())


def _shown(value: Any, element: Scalar) -> Any:
    return value.type if isinstance(value, tensor) else element


def _together(types: list[DType]) -> DType | None:
    if not types:
        return None
    result = types[0]
    for t in types[1:]:
        result = computation_type(result, False, t, False)
    return result


# -- broadcasting ----------------------------------------------------------------------------------


def splat(s: Semantic, x: tensor, shape: tuple[int, ...]) -> tensor:
    """A scalar as a tile; with shape () the scalar itself."""
    return s.emit(Splat(x.handle, shape)) if shape else x


def common_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which both broadcast: the shorter is padded with 1s on the left.

    Raises:
        ValueError: two extents differ and neither is 1.
    """
    if a == b:
        return a
    rank = max(len(a), len(b))
    a = (1,) * (rank - len(a)) + a
    b = (1,) * (rank - len(b)) + b
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y and x != 1 and y != 1:
            message = f"incompatible dimensions at index {i}: {x} and {y}"
            raise coded("broadcast", ValueError(f"Cannot make_shape_compatible: {message}"))
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def with_axis(s: Semantic, x: tensor, axis: int) -> tensor:
    """The tensor with another axis, of length 1, at this position of the result."""
    if not shape_of(x.type):
        return splat(s, x, (1,))
    return s.emit(ExpandDims(x.handle, axis))


def extend_to(s: Semantic, x: tensor, shape: tuple[int, ...]) -> tensor:
    """Broadcast to a shape of `common_shape`: leading axes may be missing."""
    own = shape_of(x.type)
    if own == shape:
        return x
    if not own:
        return splat(s, x, shape)
    while len(own) < len(shape):
        x = with_axis(s, x, 0)
        own = (1, *own)
    return x if own == shape else s.emit(Broadcast(x.handle, shape))


def broadcast(s: Semantic, a: tensor, b: tensor) -> tuple[tensor, tensor]:
    """Broadcast two tensors to their common shape."""
    shape = common_shape(shape_of(a.type), shape_of(b.type))
    return extend_to(s, a, shape), extend_to(s, b, shape)


def broadcast_all(s: Semantic, values: Sequence[tensor]) -> tuple[tensor, ...]:
    """Broadcast tensors to their common shape."""
    shape: tuple[int, ...] = ()
    for v in values:
        shape = common_shape(shape, shape_of(v.type))
    return tuple(extend_to(s, v, shape) for v in values)


def broadcast_to(s: Semantic, x: tensor, shape: tuple[int, ...]) -> tensor:
    """A scalar splatted, or a tile of the same rank with axes of length 1 repeated.

    Raises:
        ValueError: the ranks differ, or an axis has another length.
    """
    own = shape_of(x.type)
    if not own:
        return splat(s, x, shape)
    if len(own) != len(shape):
        raise coded(
            "broadcast", ValueError(f"Cannot broadcast, rank mismatch: {list(own)}, {list(shape)}")
        )
    for i, (source, target) in enumerate(zip(own, shape, strict=True)):
        if source not in (1, target):
            raise coded(
                "broadcast",
                ValueError(
                    f"Cannot broadcast, the expanded size of the tensor ({target}) must match the "
                    f"existing size ({source}) at non-singleton dimension ({i}): {list(own)}, "
                    f"{list(shape)}"
                ),
            )
    return extend_to(s, x, shape)


# -- casts -----------------------------------------------------------------------------------------


def as_dtype(dtype: Any) -> Scalar:
    """The element type of a dtype, a tile type, or a constexpr of one."""
    plain = dtype.value if isinstance(dtype, constexpr) else dtype
    if isinstance(plain, Tile):
        plain = plain.element
    if not isinstance(plain, DType | Pointer):
        message = f"expected a dtype, got {type_of(dtype)}"
        raise coded("not-a-type", TypeError(message), value=plain)
    return plain


def bitcast(s: Semantic, x: tensor, to: Scalar) -> tensor:
    """Reinterpret the bits as another type.

    Raises:
        ValueError: the widths differ.
    """
    source = x.dtype
    if source == to:
        return x
    if source.primitive_bitwidth != to.primitive_bitwidth:
        message = (
            f"Cannot bitcast data-type of size {source.primitive_bitwidth} to data-type of size "
            f"{to.primitive_bitwidth}"
        )
        raise coded("bitcast-width", ValueError(message), source=source, to=to)
    return s.emit(Bitcast(x.handle, to))


def _rounding(source: Scalar, to: Scalar, mode: str | None) -> str:
    """The rounding of a cast between different types.

    Raises:
        ValueError: a mode is given for a cast that does not round, or is unknown.
    """
    if mode is None:
        return "rtne"
    narrows = (
        source.is_floating()
        and to.is_floating()
        and to.primitive_bitwidth < source.primitive_bitwidth
    )
    if not narrows:
        raise ValueError(
            "fp_downcast_rounding should be set only for truncating fp conversions. Source "
            f"scalar type is {source} and destination type is {to}"
        )
    if mode not in ("rtne", "rtz"):
        raise ValueError(
            f"Invalid rounding mode: {mode!r}. fp_downcast_rounding is one of 'rtne', 'rtz'"
        )
    return mode


def cast(s: Semantic, x: tensor, to: Scalar, rounding: str | None = None) -> tensor:
    """Convert the elements to type `to`: see the table of casts in the language reference.

    Raises:
        ValueError: the pair of types has no conversion, or `rounding` does not fit.
    """
    source = x.dtype
    if source is to or source == to:
        return x
    mode = _rounding(source, to, rounding)
    check_fp8(s, to)
    if isinstance(source, Pointer) or isinstance(to, Pointer):
        return _cast_pointer(s, x, source, to)
    if source.is_fp8() != to.is_fp8() and not (source.is_floating() and to.is_floating()):
        raise ValueError(
            f"there is no direct conversion from {source} to {to}; go through tl.float32"
        )
    return s.emit(Cast(x.handle, to, mode))


def _cast_pointer(s: Semantic, x: tensor, source: Scalar, to: Scalar) -> tensor:
    if isinstance(source, Pointer):
        if isinstance(to, Pointer) or (to.is_int() and to.primitive_bitwidth == 64):
            return s.emit(Bitcast(x.handle, to))
        if to.is_bool():
            address = s.emit(Bitcast(x.handle, I64))
            zero = constant(s, 0, I64, shape_of(x.type))
            return s.emit(Cmp(address.handle, zero.handle, "ne"))
    elif source.is_int():
        return s.emit(Bitcast(cast(s, x, I64).handle, to))
    raise coded("pointer-cast", ValueError(f"cannot cast {source} to {to}"))


def cast_any(s: Semantic, x: Any, dtype: Any, rounding: Any = None, as_bits: Any = False) -> tensor:
    """`tl.cast`: of a number or a tensor, by value or by bits."""
    to = as_dtype(dtype)
    source = to_tensor(s, x)
    if isinstance(as_bits, constexpr):
        as_bits = as_bits.value
    if as_bits:
        return bitcast(s, source, to)
    return cast(s, source, to, rounding.value if isinstance(rounding, constexpr) else rounding)


def as_condition(s: Semantic, x: tensor) -> tensor:
    """The tensor as int1: ``x != 0``."""
    return x if element_of(x.type) is I1 else cast(s, x, I1)


def with_dtype(x: tensor, element: Scalar) -> Type:
    """The type of the tensor with another element."""
    return with_element(x.type, element)

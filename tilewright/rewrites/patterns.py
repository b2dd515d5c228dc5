"""Helpers for rules: predicates on constant values, and creation of constants and similar ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Op, Value
from tilewright.ir.rewriter import Rewriter
from tilewright.ir.types import FP8E5, DType, Type, element_of, is_int, shape_of, with_shape
from tilewright.ops.arith import Constant
from tilewright.ops.control import NumPrograms, ProgramId
from tilewright.ops.shape import Splat

Number = bool | int | float


def known(value: Value) -> Number | None:
    """The value of a constant, or of all elements of a constant tile; None for other values."""
    op = value.op
    return op.value if isinstance(op, Constant) else None


def equal(first: Value, second: Value) -> bool:
    """Whether two values are known to be equal integers: one value, equal constants, or the same
    fact of the launch, read twice."""
    if first is second:
        return True
    match first.op, second.op:
        case (ProgramId(axis=a), ProgramId(axis=b)) | (NumPrograms(axis=a), NumPrograms(axis=b)):
            return a == b
        case _:
            number = known(first)
            return is_int(first.type) and number is not None and number == known(second)


def is_equivalent(first: Value, second: Value, depth: int = 4) -> bool:
    """Whether two values are computed from the same values by the same pure ops.

    Args:
        depth: how many of them, one after the other.
    """
    if first is second:
        return True
    one, other = first.op, second.op
    if depth == 0 or one is None or other is None or type(one) is not type(other):
        return False
    if one.regions or not one.pure or len(one.results) != 1 or len(other.results) != 1:
        return False
    if first.type != second.type or first.layout != second.layout or one.spans != other.spans:
        return False
    return (
        len(one.operands) == len(other.operands)
        and all(_are_same(getattr(one, n), getattr(other, n)) for n in one.attr_names)
        and all(
            is_equivalent(a, b, depth - 1)
            for a, b in zip(one.operands, other.operands, strict=True)
        )
    )


def _are_same(first: Any, second: Any) -> bool:
    """Whether two attributes are equal; 0.0 and -0.0 are not, a NaN is equal to itself."""
    if isinstance(first, float) and isinstance(second, float):
        return first.hex() == second.hex()
    return first == second


def is_int_of(value: Value, number: int) -> bool:
    """Whether the value is the integer (or bool) constant `number`, as its type represents it."""
    found = known(value)
    return found is not None and not isinstance(found, float) and found == number


def is_float_of(value: Value, number: float) -> bool:
    """Whether the value is this float constant; distinguishes 0.0 and -0.0."""
    found = known(value)
    return (
        isinstance(found, float)
        and found == number
        and math.copysign(1.0, found) == math.copysign(1.0, number)
    )


def is_neutral_float(value: Value, number: float) -> bool:
    """Whether the value is this float constant, in a type in which it is an identity element.

    In fp8e5, there is none: results saturate, so that the sum of an infinity and zero is finite.
    """
    return element_of(value.type) is not FP8E5 and is_float_of(value, number)


def wrap(number: int, type: Type) -> bool | int:
    """The integer modulo 2^bits, as the type represents it; a bool for i1."""
    element = element_of(type)
    assert isinstance(element, DType)
    if element.is_bool():
        return bool(number & 1)
    number &= (1 << element.primitive_bitwidth) - 1
    too_large = number > element.get_int_max_value()
    return number - (1 << element.primitive_bitwidth) if too_large else number


def constant(rw: Rewriter, number: Number, type: Type) -> Value:
    """A constant of any type. Integers wrap, and are converted for float types."""
    if element_of(type).is_floating():
        return rw.insert(Constant(float(number), type))
    if element_of(type).is_int():
        assert not isinstance(number, float)
        number = wrap(number, type)
    return rw.insert(Constant(number, type))


def all_ones(type: Type) -> int:
    """The integer with all bits set, as the type represents it: -1, True, or the unsigned
    maximum."""
    return wrap(-1, type)


def like(op: Op, operands: Sequence[Value]) -> Op:
    """A detached op of the same class and attributes with other operands.

    The class must have no regions, and no optional or variadic operands.
    """
    make: Any = type(op)
    return make(*operands, **op.attributes)


def splat_like(b: Builder, scalar: Value, value: Value) -> Value:
    """A scalar for each element of a value, in its layout; the scalar itself for a scalar."""
    if not (shape := shape_of(value.type)):
        return scalar
    tile = b.value(Splat(scalar, shape))
    tile.layout = value.layout
    return tile


def uniform(value: Value) -> Value | Constant | None:
    """The common value of all elements of a uniform tile, as a scalar value or a constant op; None
    if the tile is not known to be uniform."""
    match value.op:
        case Splat(src):
            return src
        case Constant() as op:
            return op
        case _:
            return None


def scalar_of(rw: Rewriter, found: Value | Constant) -> Value:
    """The scalar value of a result of `uniform`."""
    if isinstance(found, Constant):
        return rw.insert(Constant(found.value, element_of(found.type)))
    return found


def with_shape_of(rw: Rewriter, found: Value | Constant, shape: tuple[int, ...]) -> Value:
    """A tile of this shape with the value of a result of `uniform`; a scalar if the shape is ()."""
    if isinstance(found, Constant):
        return rw.insert(Constant(found.value, with_shape(found.type, shape)))
    return rw.insert(Splat(found, shape)) if shape else found

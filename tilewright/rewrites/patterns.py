"""What many rules share: what a value is known to be, and making constants and ops like others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir.core import Op, Value
from tilewright.ir.rewriter import Rewriter
from tilewright.ir.types import FP8E5, DType, Type, element_of, with_shape
from tilewright.ops.arith import Constant
from tilewright.ops.shape import Splat

Number = bool | int | float


def known(value: Value) -> Number | None:
    """The number that every element of the value is, when it is known at compile time."""
    op = value.op
    return op.value if isinstance(op, Constant) else None


def is_int_of(value: Value, number: int) -> bool:
    """Whether the value is the integer (or bool) constant `number`, as its type reads it."""
    found = known(value)
    return found is not None and not isinstance(found, float) and found == number


def is_float_of(value: Value, number: float) -> bool:
    """Whether the value is this float constant, its sign included."""
    found = known(value)
    return (
        isinstance(found, float)
        and found == number
        and math.copysign(1.0, found) == math.copysign(1.0, number)
    )


def is_neutral_float(value: Value, number: float) -> bool:
    """Whether the value is this float constant, in a type whose arithmetic can return an operand.

    fp8e5 is none: its results saturate, so the sum of an infinity and zero is its largest number.
    """
    return element_of(value.type) is not FP8E5 and is_float_of(value, number)


def wrap(number: int, type: Type) -> bool | int:
    """The integer modulo 2^bits, as the type reads it; a bool for i1."""
    element = element_of(type)
    assert isinstance(element, DType)
    if element.is_bool():
        return bool(number & 1)
    number &= (1 << element.primitive_bitwidth) - 1
    too_large = number > element.get_int_max_value()
    return number - (1 << element.primitive_bitwidth) if too_large else number


def constant(rw: Rewriter, number: Number, type: Type) -> Value:
    """A constant of any type; integers wrap, and an integer becomes a float where one is wanted."""
    if element_of(type).is_floating():
        return rw.insert(Constant(float(number), type))
    if element_of(type).is_int():
        assert not isinstance(number, float)
        number = wrap(number, type)
    return rw.insert(Constant(number, type))


def all_ones(type: Type) -> int:
    """The number with all bits set, as the type reads it: -1, True, or the unsigned maximum."""
    return wrap(-1, type)


def like(op: Op, operands: Sequence[Value]) -> Op:
    """A detached op of the same class and attributes on other operands.

    The class has no regions, and no operand fields that are optional or variadic.
    """
    make: Any = type(op)
    return make(*operands, **op.attributes)


def uniform(value: Value) -> Value | Constant | None:
    """What all elements of the tile are: a scalar value, a constant op, or None when unknown."""
    match value.op:
        case Splat(src):
            return src
        case Constant() as op:
            return op
        case _:
            return None


def scalar_of(rw: Rewriter, found: Value | Constant) -> Value:
    """The scalar value that `uniform` found."""
    if isinstance(found, Constant):
        return rw.insert(Constant(found.value, element_of(found.type)))
    return found


def with_shape_of(rw: Rewriter, found: Value | Constant, shape: tuple[int, ...]) -> Value:
    """The tile of this shape, each element of which is what `uniform` found."""
    if isinstance(found, Constant):
        return rw.insert(Constant(found.value, with_shape(found.type, shape)))
    return rw.insert(Splat(found, shape)) if shape else found

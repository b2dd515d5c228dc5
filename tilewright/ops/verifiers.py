"""Checks shared by the verifiers of several ops. Each raises `IRError` with its code."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.define import Op, require
from tilewright.ir.types import Scalar, dtype_of, element_of, is_int


def verify_same_type(op: Op, lhs: Value, rhs: Value) -> None:
    """Check that two operands have the same type."""
    require(
        lhs.type == rhs.type,
        op,
        "operand-types",
        "operands are {a} and {b}; they must be of one type",
        a=lhs.type,
        b=rhs.type,
    )


def verify_number(op: Op, element: Scalar) -> None:
    """Check that the elements are integers or floats, not pointers."""
    numbers = element.is_floating() or element.is_int()
    require(numbers, op, "element-type", "does not take {t}", t=element)


def verify_float(op: Op, value: Value) -> None:
    """Check that the elements of a value are floats."""
    element = element_of(value.type)
    require(element.is_floating(), op, "element-type", "takes floats, not {t}", t=element)


def verify_integer_tile(op: Op, value: Value, shape: tuple[int, ...]) -> None:
    """Check that a value of this shape is a tile of integers of 8 bits or more."""
    require(len(shape) > 0, op, "operand-types", "takes a tile")
    require(
        is_int(value.type) and not dtype_of(value.type).is_bool(),
        op,
        "operand-types",
        "takes integers of 8 bits or more, not {t}",
        t=value.type,
    )


def verify_axis(op: Op, axis: int, rank: int) -> None:
    """Check that the axis is in [0, rank)."""
    require(
        0 <= axis < rank,
        op,
        "axis-range",
        "axis {axis} is outside a tile of rank {rank}",
        axis=axis,
        rank=rank,
    )

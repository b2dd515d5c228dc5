"""Differences to a maximum, as the exponents of a softmax, which are not positive."""

from __future__ import annotations

from math import inf, isfinite

from tilewright.ir.core import Value
from tilewright.ops.arith import Cmp, Max, Select, Sub, constant_value
from tilewright.ops.gpu import unconverted
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.ops.shape import Broadcast, ExpandDims, Splat
from tilewright.ops.view import View


def is_at_most_zero(value: Value) -> bool:
    """Whether a value is x - max(x, …), or elements of it: none is above 0, but some may be NaN.

    The maximum is of elements of x, too, as in ``x - max(x, axis=1)[:, None]``. If x is a product,
    whose rounding is omitted in the difference, that may be above 0 by this rounding.
    """
    while isinstance(value.op, View):
        value = value.op.src
    difference = value.op
    if not isinstance(difference, Sub):
        return False
    return _bounds(unconverted(difference.rhs), unconverted(difference.lhs))


def _bounds(bound: Value, x: Value, axis: int | None = None) -> bool:
    """Whether each element of `bound` is at least that of `x` in its place; with an axis, all of
    those along it."""
    if axis is None and bound is x:
        return True
    match bound.op:
        case Max(lhs, rhs):
            return any(_bounds(unconverted(v), x, axis) for v in (lhs, rhs))
        case Select() as select if (chosen := _unless_infinite(select)) is not None:
            return _bounds(chosen, x, axis)
        case Reduce() as reduce if axis is not None:
            is_maximum = isinstance(simple_combine(reduce), Max)
            return is_maximum and reduce.axis == axis and unconverted(reduce.srcs[0]) is x
        case Broadcast(src) if axis is None:
            return _bounds(unconverted(src), x)
        case ExpandDims(src, along) if axis is None:
            return _bounds(unconverted(src), x, along)
        case Splat(src) if axis is None:
            return _bounds(src, x, 0)
        case _:
            return False


def _unless_infinite(op: Select) -> Value | None:
    """The value that a finite number replaces if it is -inf, where nothing that it bounds is
    greater: ``where(m > -inf, m, 0.0)``."""
    test = op.condition.op
    if not isinstance(test, Cmp):
        return None
    value = unconverted(test.lhs)
    chosen, other = op.on_true, op.on_false
    if test.predicate == "eq":
        chosen, other = other, chosen
    if test.predicate not in ("eq", "gt", "ne") or unconverted(chosen) is not value:
        return None
    lowest, number = constant_value(test.rhs), constant_value(other)
    if lowest != -inf or number is None or not isfinite(number):
        return None
    return value

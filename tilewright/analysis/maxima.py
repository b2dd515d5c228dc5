"""Differences to a maximum, as the exponents of a softmax, which are not positive."""

from __future__ import annotations

from math import inf, isfinite

from tilewright.ir.core import Value
from tilewright.ir.index_map import Along, Every, Term, identity
from tilewright.ir.types import shape_of
from tilewright.ops.arith import Cmp, Max, Select, Sub, constant_value
from tilewright.ops.gpu import unconverted
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.ops.view import View

Coordinates = tuple[Term, ...]


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
    x = unconverted(difference.lhs)
    return _bounds(unconverted(difference.rhs), x, identity(shape_of(x.type)).axes)


def _bounds(bound: Value, x: Value, at: Coordinates) -> bool:
    """Whether no element of x exceeds the one of `bound` at the coordinates `at`, given in those of
    x."""
    if bound is x and at == identity(shape_of(x.type)).axes:
        return True
    match bound.op:
        case Max(lhs, rhs):
            return any(_bounds(unconverted(v), x, at) for v in (lhs, rhs))
        case Select() as select if (chosen := _unless_infinite(select)) is not None:
            return _bounds(chosen, x, at)
        case Reduce() as reduce if isinstance(simple_combine(reduce), Max):
            return unconverted(reduce.srcs[0]) is x and all(
                isinstance(term, Every) or term == Along(own)
                for own, term in enumerate(_of_operand(reduce, at))
            )
        case View() as view if view.aligned:
            return _bounds(unconverted(view.src), x, _of_operand(view, at))
        case _:
            return False


def _of_operand(op: Reduce | View, at: Coordinates) -> Coordinates:
    """The coordinates of the operand's elements on which the result's at `at` depend."""
    found = op.index_maps()[0]
    assert found is not None
    return tuple(at[term.axis] if isinstance(term, Along) else term for term in found.axes)


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
    if test.predicate == "gt" and _propagates_nan(value):
        return None  # a NaN is replaced, too, though other elements may be greater
    lowest, number = constant_value(test.rhs), constant_value(other)
    if lowest != -inf or number is None or not isfinite(number):
        return None
    return value


def _propagates_nan(maximum: Value) -> bool:
    """Whether a maximum may be NaN although not all of its elements are."""
    match maximum.op:
        case Max(lhs, rhs) as op:
            return op.propagate_nan or any(_propagates_nan(unconverted(v)) for v in (lhs, rhs))
        case Reduce() as reduce:
            combine = simple_combine(reduce)
            return isinstance(combine, Max) and combine.propagate_nan
        case View(src):
            return _propagates_nan(unconverted(src))
        case _:
            return False

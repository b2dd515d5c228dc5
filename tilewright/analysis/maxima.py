"""Differences from a maximum, such as the exponents of a softmax, which are not positive."""

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
    """Whether a value is x - max(x, …), or elements of it: no element is above 0, but some may be
    NaN.

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
    x.

    Each value is visited once for the same coordinates, and without recursion: unrolled loops have
    long chains of maxima.
    """
    own = identity(shape_of(x.type)).axes
    places, visited = [(bound, at)], set[tuple[Value, Coordinates]]()
    while places:
        place = places.pop()
        if place == (x, own) or _is_reduction_of(x, *place):
            return True
        if place not in visited:
            visited.add(place)
            places += _included(*place)
    return False


def _included(bound: Value, at: Coordinates) -> list[tuple[Value, Coordinates]]:
    """The values that `bound` is the maximum of, or consists of, each with its coordinates."""
    match bound.op:
        case Max(lhs, rhs):
            return [(unconverted(lhs), at), (unconverted(rhs), at)]
        case Select() as select if (chosen := _unless_infinite(select)) is not None:
            return [(chosen, at)]
        case View() as view if view.aligned:
            return [(unconverted(view.src), _of_operand(view, at))]
        case _:
            return []


def _is_reduction_of(x: Value, bound: Value, at: Coordinates) -> bool:
    """Whether `bound` is the maximum of x along axes, at the coordinates of the element itself."""
    op = bound.op
    if not isinstance(op, Reduce) or not isinstance(simple_combine(op), Max):
        return False
    return unconverted(op.srcs[0]) is x and all(
        isinstance(term, Every) or term == Along(own)
        for own, term in enumerate(_of_operand(op, at))
    )


def _of_operand(op: Reduce | View, at: Coordinates) -> Coordinates:
    """The coordinates of the operand's elements on which the result's at `at` depend."""
    found = op.index_maps()[0]
    assert found is not None
    return tuple(at[term.axis] if isinstance(term, Along) else term for term in found.axes)


def _unless_infinite(op: Select) -> Value | None:
    """The value that a select replaces by a finite number if it is -inf, in which case no larger
    element exists: ``where(m > -inf, m, 0.0)``."""
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
    values, visited = [maximum], set[Value]()
    while values:
        value = values.pop()
        if value in visited:
            continue
        visited.add(value)
        match value.op:
            case Max(lhs, rhs) as op:
                if op.propagate_nan:
                    return True
                values += [unconverted(lhs), unconverted(rhs)]
            case Reduce() as reduce:
                combine = simple_combine(reduce)
                if isinstance(combine, Max) and combine.propagate_nan:
                    return True
            case View(src):
                values.append(unconverted(src))
            case _:
                pass
    return False

"""Minima and maxima of integers that are written as comparisons.

torch.compile clamps an index, for example of a padded image, by sums of products of conditions and
numbers. Analyses of indices support minima and maxima, which are also one instruction each.
Termination: each rule replaces an op by an extremum, which no rule replaces.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.core import Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import I1, element_of, is_int
from tilewright.ops.arith import Add, Cast, Cmp, Max, Min, Mul, Select
from tilewright.ops.view import View
from tilewright.rewrites.patterns import constant, equal, is_int_of
from tilewright.rewrites.select import INVERTED, SWAPPED

CHOICES = {"lt": Min, "le": Min, "gt": Max, "ge": Max}
"""What x is where it compares so with y, if it is y elsewhere."""

MAX_DEPTH = 4
"""How many definitions of two values are compared."""


def _is_number(value: Value) -> bool:
    """Whether it is an integer other than a condition."""
    return is_int(value.type) and element_of(value.type) != I1


def _condition(value: Value) -> Cmp | None:
    """The comparison of integers that the value is 1 or 0 by."""
    match value.op:
        case Cast(b) if element_of(b.type) == I1 and isinstance(b.op, Cmp):
            return b.op if _is_number(b.op.lhs) else None
        case _:
            return None


def _same(first: Value, second: Value, depth: int = MAX_DEPTH) -> bool:
    """Whether two values are computed in one way: an expression that is written twice is computed
    twice until common subexpressions are eliminated, after these rules."""
    if equal(first, second):
        return True
    a, b = first.op, second.op
    if (
        depth == 0
        or a is None
        or b is None
        or type(a) is not type(b)
        or not (a.elementwise or isinstance(a, View))
    ):
        return False
    return (
        (first.type, first.index) == (second.type, second.index)
        and a.attributes == b.attributes
        and all(_same(x, y, depth - 1) for x, y in zip(a.operands, b.operands, strict=True))
    )


def _relation(test: Cmp, x: Value, y: Value) -> str | None:
    """The predicate by which a comparison compares x with y; None if it compares other values."""
    if _same(test.lhs, x) and _same(test.rhs, y):
        return test.predicate
    if _same(test.lhs, y) and _same(test.rhs, x):
        return SWAPPED[test.predicate]
    return None


def _extremum(rw: Rewriter, relation: str | None, x: Value, y: Value) -> Value | None:
    choice = CHOICES.get(relation or "")
    return rw.insert(choice(x, y, propagate_nan=False)) if choice else None


@rewrite(Select)
def select_to_extremum(op: Select, rw: Rewriter) -> Value | None:
    """select(x < y, x, y) = min(x, y); select(x > y, x, y) = max(x, y), for integers"""
    x, y, test = op.on_true, op.on_false, op.condition.op
    if not isinstance(test, Cmp) or not _is_number(x):
        return None
    return _extremum(rw, _relation(test, x, y), x, y)


@rewrite(Mul)
def mul_to_extremum(op: Mul, rw: Rewriter) -> Value | None:
    """x * int(x > 0) = max(x, 0); x * int(x < 0) = min(x, 0), for integers"""
    if not _is_number(op.lhs):
        return None
    for x, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        test = _condition(factor)
        if test is not None and _same(test.lhs, x) and is_int_of(test.rhs, 0):
            return _extremum(rw, test.predicate, x, constant(rw, 0, x.type))
    return None


def _choices(value: Value) -> Iterator[tuple[Value, Cmp]]:
    """The ways in which the value is a number where a condition holds, and 0 elsewhere."""
    if isinstance(value.op, Mul):
        lhs, rhs = value.op.operands
        for x, factor in ((lhs, rhs), (rhs, lhs)):
            test = _condition(factor)
            if test is not None:
                yield x, test


@rewrite(Add)
def add_to_extremum(op: Add, rw: Rewriter) -> Value | None:
    """x * int(x < y) + y * int(x >= y) = min(x, y), and likewise for max, for integers"""
    if not _is_number(op.lhs):
        return None
    for x, test in _choices(op.lhs):
        for y, other in _choices(op.rhs):
            relation = _relation(test, x, y)
            if relation is not None and _relation(other, x, y) == INVERTED[relation]:
                return _extremum(rw, relation, x, y)
    return None

"""Bounds of the differences between adjacent elements of a tile of integers or pointers.

Indices such as ``(i + 251) % 256``, ``min(max(i - 2, 0), 63)`` or ``abs(i - 2)`` are consecutive
except in a few unknown places. Whether those of a vector are consecutive is determined at run time
from the first and the last one, if no step is above 1: n steps of at most 1 have the sum n only if
each of them is 1.

    arange(0, 64)            steps of 1
    (i + 251) % 256          steps of at most 1, as those back to 0 are negative
    min(i, 63)               steps of 0 or 1
    abs(i - 2)               steps of -1 to 1

As in `axis_info`, integers of 32 bits and more are assumed not to wrap, since they are offsets into
arrays; no bounds are computed for others. A query looks through at most `MAX_DEPTH` definitions.
The IR is not modified.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

from tilewright.analysis.axis_info import AxisMap
from tilewright.analysis.ranges import may_wrap
from tilewright.ir.core import Op, Value
from tilewright.ir.index_map import Along
from tilewright.ir.op_table import OpTable
from tilewright.ir.types import element_of, is_int, is_pointer, shape_of
from tilewright.ops import arith, memory
from tilewright.ops.view import View

MAX_DEPTH = 24

Steps = tuple[float, float]
"""The least and the greatest difference of an element and the one before it."""

ANY: Steps = (-inf, inf)
NONE: Steps = (0, 0)

OpT = TypeVar("OpT", bound=Op)
_Rule = Callable[[OpT, "StepBounds", int, int], Steps]
_RULES: OpTable[_Rule[Any]] = OpTable("rules of steps")


class StepBounds:
    """Bounds of the steps within aligned runs of `length` elements, cached.

    Args:
        facts: proven axis information of the function.
        length: a power of two.
    """

    def __init__(self, facts: AxisMap, length: int) -> None:
        self.facts = facts
        self.length = length
        self._known: dict[tuple[Value, int], Steps] = {}

    def are_mostly_one(self, value: Value, axis: int) -> bool:
        """Whether no step is above 1, and the bound is that of an index whose steps may be 1."""
        return self.of(value, axis, MAX_DEPTH)[1] == 1

    def of(self, value: Value, axis: int, depth: int) -> Steps:
        """The bounds for one axis; for pointers, in elements."""
        key = value, axis
        result = self._known.get(key)
        if result is None:
            result = self._known[key] = self._computed(value, axis, depth)
        return result

    def _computed(self, value: Value, axis: int, depth: int) -> Steps:
        info = self.facts[value]
        if not shape_of(value.type) or info.constancy[axis] % self.length == 0:
            return NONE
        if info.contiguity[axis] % self.length == 0:
            return 1, 1
        if depth == 0 or not (is_int(value.type) or is_pointer(value.type)) or may_wrap(value):
            return ANY
        if isinstance(value.op, View):
            return self._moved(value.op, value, axis, depth)
        rule = _RULES.get(type(value.op)) if value.op is not None else None
        return rule(value.op, self, axis, depth - 1) if rule is not None else ANY

    def _moved(self, op: View, value: Value, axis: int, depth: int) -> Steps:
        if not op.aligned:
            return ANY
        found = op.index_maps(value.index)[0]
        assert found is not None
        for place, term in enumerate(found.axes):
            if term == Along(axis):
                return self.of(op.src, place, depth - 1)
        return NONE


def _rule(*classes: type[OpT]) -> Callable[[_Rule[OpT]], _Rule[OpT]]:
    return _RULES.of(*classes)


@_rule(arith.Add, memory.AddPtr)
def _sum(op: arith.Add | memory.AddPtr, bounds: StepBounds, axis: int, depth: int) -> Steps:
    a, b = (bounds.of(v, axis, depth) for v in op.operands)
    return a[0] + b[0], a[1] + b[1]


@_rule(arith.Sub)
def _difference(op: arith.Sub, bounds: StepBounds, axis: int, depth: int) -> Steps:
    a, b = (bounds.of(v, axis, depth) for v in op.operands)
    return a[0] - b[1], a[1] - b[0]


@_rule(arith.Neg)
def _negative(op: arith.Neg, bounds: StepBounds, axis: int, depth: int) -> Steps:
    low, high = bounds.of(op.operands[0], axis, depth)
    return -high, -low


@_rule(arith.Mul)
def _product(op: arith.Mul, bounds: StepBounds, axis: int, depth: int) -> Steps:
    for value, factor in (op.operands, reversed(op.operands)):
        number = bounds.facts[factor].constant
        if number:
            low, high = sorted(number * step for step in bounds.of(value, axis, depth))
            return low, high
    return ANY


@_rule(arith.Abs)
def _absolute(op: arith.Abs, bounds: StepBounds, axis: int, depth: int) -> Steps:
    low, high = bounds.of(op.operands[0], axis, depth)
    most = max(abs(low), abs(high))
    return -most, most


@_rule(arith.Min, arith.Max)
def _extremum(op: arith.Min | arith.Max, bounds: StepBounds, axis: int, depth: int) -> Steps:
    a, b = (bounds.of(v, axis, depth) for v in op.operands)
    return min(a[0], b[0]), max(a[1], b[1])


@_rule(arith.Rem)
def _remainder(op: arith.Rem, bounds: StepBounds, axis: int, depth: int) -> Steps:
    """Remainders of ascending numbers ascend by the same steps, or decrease. (They have the sign of
    the dividend; those of negative numbers wrap below 0, and reach 0 by the same steps.)"""
    divisor = bounds.facts[op.operands[1]].constant
    return _cyclic(bounds, op.operands[0], axis, depth, abs(divisor or 0))


@_rule(arith.And)
def _masked(op: arith.And, bounds: StepBounds, axis: int, depth: int) -> Steps:
    """The lowest bits are a remainder."""
    mask = bounds.facts[op.operands[1]].constant
    is_low = mask is not None and mask > 0 and mask & (mask + 1) == 0
    return _cyclic(bounds, op.operands[0], axis, depth, mask + 1 if mask and is_low else 0)


def _cyclic(bounds: StepBounds, value: Value, axis: int, depth: int, period: int) -> Steps:
    """The bounds for numbers that wrap after each `period`; unknown if most runs would contain a
    wrap, for which a check is not profitable."""
    low, high = bounds.of(value, axis, depth)
    return (-inf, high) if low >= 0 and period >= 2 * bounds.length else ANY


@_rule(arith.Cast)
def _cast(op: arith.Cast, bounds: StepBounds, axis: int, depth: int) -> Steps:
    """An extension; or a truncation to an integer that is assumed not to wrap."""
    source = op.operands[0]
    if not element_of(source.type).is_int() or may_wrap(source):
        return ANY
    return bounds.of(source, axis, depth)

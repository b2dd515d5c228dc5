"""Intervals of floats, for functions that treat large or small arguments differently.

Bounds are computed on demand, through at most `MAX_DEPTH` definitions, so that a query takes
bounded time. A NaN is in no interval: all bounds hold for the other elements. The IR is not
modified.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Op, Value
from tilewright.ir.types import FP32, FP64, DType, element_of, is_int
from tilewright.ops import arith
from tilewright.ops.math import Exp, Exp2, Sqrt
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.ops.view import View

MAX_DEPTH = 8

_ROUNDED = 1 + 2.0**-20  # more than the relative error of an operation
_SMALLEST_NORMAL = 2.0**-126  # smaller results of fp32 may be flushed to 0
_OVERFLOWS = 3e38  # above, results of fp32 may be infinite


class Interval(NamedTuple):
    """The numbers from `least` to `most`, either of which may be infinite."""

    least: float
    most: float

    @property
    def largest_magnitude(self) -> float:
        return max(abs(self.least), abs(self.most))

    @property
    def smallest_magnitude(self) -> float:
        return max(self.least, -self.most, 0.0)


_ALL = Interval(-math.inf, math.inf)
_NOT_NEGATIVE = Interval(0.0, math.inf)


def largest_magnitude(value: Value) -> float:
    """The largest magnitude that the elements of a float value may have; infinity if unknown."""
    return interval(value).largest_magnitude


def interval(value: Value, depth: int = MAX_DEPTH) -> Interval:
    """An interval that contains the elements of a float value.

    Of narrow floats, which overflow early, it is known for constants only.
    """
    constant = arith.constant_value(value)
    if constant is not None:
        number = float(constant)
        return _ALL if math.isnan(number) else Interval(number, number)
    if value.op is None or depth == 0 or element_of(value.type) not in (FP32, FP64):
        return _ALL
    return _interval(value.op, depth - 1)


NARROW_BIAS = 16  # of exponents of floats from 2**-24 to 2**16, subnormals included


def has_normal_reciprocals(value: Value, depth: int = MAX_DEPTH) -> bool:
    """Whether the elements of a float value, other than 0, infinities and NaN, are known to have
    magnitudes from 2**-126 to 2**126, so that their reciprocals are normal in fp32.

    That holds for narrow floats, for integers, and for square roots: sqrt(2**-149) is 2**-74.5.
    """
    element = element_of(value.type)
    if isinstance(element, DType) and 0 < element.exponent_bias <= NARROW_BIAS:
        return True
    match value.op if depth else None:
        case View() | arith.Neg() | arith.Abs() as op:
            return has_normal_reciprocals(op.operands[0], depth - 1)
        case arith.Cast(src):
            return is_int(src.type) or has_normal_reciprocals(src, depth - 1)
        case Sqrt():
            return element != FP64
        case _:
            return False


def _interval(op: Op, depth: int) -> Interval:
    match op:
        case arith.Cast() | arith.Neg() | arith.Abs() | View():
            return _of_one(op, depth)
        case arith.Add() | arith.Sub():
            first, second = (interval(v, depth) for v in op.operands)
            if isinstance(op, arith.Sub):
                second = Interval(-second.most, -second.least)
            return _rounded(first.least + second.least, first.most + second.most)
        case arith.Mul():
            return _product(op, depth)
        case arith.Select():
            return _union(*(interval(v, depth) for v in op.operands[1:]))
        case arith.Max() | arith.Min():
            return _extreme(op, depth)
        case Exp() | Exp2() | Sqrt():
            return _NOT_NEGATIVE
        case Reduce() if isinstance(simple_combine(op), arith.Add):
            return _NOT_NEGATIVE if interval(op.srcs[0], depth).least >= 0 else _ALL
        case _:
            return _ALL


def _of_one(op: arith.Cast | arith.Neg | arith.Abs | View, depth: int) -> Interval:
    """The interval of an op of whose first operand each element of the result is a function."""
    src = op.operands[0]
    if is_int(src.type):
        return _rounded(*map(float, value_range(src))) if isinstance(op, arith.Cast) else _ALL
    result = interval(src, depth)
    match op:
        case arith.Neg():
            return Interval(-result.most, -result.least)
        case arith.Abs():
            return Interval(result.smallest_magnitude, result.largest_magnitude)
        case arith.Cast():
            return _rounded(*result)
        case _:
            return result


def _rounded(least: float, most: float) -> Interval:
    """The interval of the rounded results of an operation, given that of its exact results."""
    return Interval(-_at_most(-least), _at_most(most))


def _at_most(bound: float) -> float:
    bound = max(bound * _ROUNDED, bound / _ROUNDED)
    if math.isnan(bound) or bound > _OVERFLOWS:
        return math.inf
    return max(bound, 0.0) if abs(bound) < _SMALLEST_NORMAL else bound


def _product(op: arith.Mul, depth: int) -> Interval:
    """Products of finite intervals, of a number with itself, and of numbers that are not
    negative."""
    first, second = (interval(v, depth) for v in op.operands)
    if not math.isinf(first.largest_magnitude) and not math.isinf(second.largest_magnitude):
        corners = [a * b for a in first for b in second]
        return _rounded(min(corners), max(corners))
    same = op.lhs is op.rhs or (first.least >= 0 and second.least >= 0)
    return _NOT_NEGATIVE if same else _ALL


def _union(*intervals: Interval) -> Interval:
    return Interval(min(i.least for i in intervals), max(i.most for i in intervals))


def _extreme(op: arith.Max | arith.Min, depth: int) -> Interval:
    """Of a number and a NaN, it is the number, so that a bound of one operand bounds the result
    only if that operand is never NaN, or the result then is."""
    intervals = [interval(v, depth) for v in op.operands]
    whole = _union(*intervals)
    sure = [
        found
        for v, found in zip(op.operands, intervals, strict=True)
        if op.propagate_nan or (found != _ALL and arith.constant_value(v) is not None)
    ]
    if not sure:
        return whole
    if isinstance(op, arith.Max):
        return Interval(max(i.least for i in sure), whole.most)
    return Interval(whole.least, min(i.most for i in sure))

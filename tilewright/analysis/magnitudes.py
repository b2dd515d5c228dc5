"""Bounds of the magnitudes of floats, for functions that treat large arguments differently.

Bounds are computed on demand, through at most `MAX_DEPTH` definitions, so that a query takes
bounded time. A NaN has no magnitude: all bounds hold for the other elements. The IR is not
modified.
"""

from __future__ import annotations

import math

from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Op, Value
from tilewright.ir.types import FP32, FP64, element_of, is_int
from tilewright.ops import arith
from tilewright.ops.view import View

MAX_DEPTH = 8

_ROUNDED = 1 + 2.0**-20  # more than the relative error of an operation


def largest_magnitude(value: Value, depth: int = MAX_DEPTH) -> float:
    """The largest magnitude that the elements of a float value may have; infinity if unknown.

    Of narrow floats, which overflow early, only constants have a bound.
    """
    op = value.op
    if isinstance(op, arith.Constant):
        return abs(float(op.value))
    if op is None or depth == 0 or element_of(value.type) not in (FP32, FP64):
        return math.inf
    return _bound(op, depth - 1)


def _bound(op: Op, depth: int) -> float:
    match op:
        case arith.Cast() if is_int(op.src.type):
            return max(map(abs, value_range(op.src))) * _ROUNDED
        case arith.Cast() | arith.Neg() | arith.Abs() | View():
            return largest_magnitude(op.operands[0], depth) * _ROUNDED
        case arith.Add() | arith.Sub():
            return sum(largest_magnitude(v, depth) for v in op.operands) * _ROUNDED
        case arith.Mul():
            first, second = (largest_magnitude(v, depth) for v in op.operands)
            unknown = math.isinf(first) or math.isinf(second)
            return math.inf if unknown else first * second * _ROUNDED
        case arith.Select():
            return max(largest_magnitude(v, depth) for v in op.operands[1:])
        case _:
            return math.inf

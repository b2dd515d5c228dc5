"""The possible values of masked-off lanes, which determine where gradient kernels must mask.

    inside = (i < m)[:, None] & (j < n)[None, :]      rows: i < m, columns: j < n

While `reverse.py` emits a gradient kernel, `emitter.py` queries this analysis before it multiplies
an adjoint: a matrix product sums over a whole axis, and an adjoint that is 0 in a masked-off row is
multiplied by the other operand, where 0 · NaN is NaN. A mask is split into conditions along one
axis each. Where a condition is false, the value of an element is propagated from the loads, which
return `other` there: exp(q @ k - lse) is exp(0 - 0) in masked-off rows, and q / sqrt(sum(q * q)) is
0 / 0, a NaN.

Loaded data is assumed to be finite where no mask of the adjoint excludes it, since results of the
kernel depend on it. Sums and products of finite numbers are assumed to be finite, too, although
they may overflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce as fold
from itertools import product
from math import isfinite

import numpy as np

from tilewright.autodiff.memo import once_for_each_value
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.numbers import Array, array_of, first_number
from tilewright.ir.types import is_float, shape_of
from tilewright.ops import arith, marks, math, memory, shape
from tilewright.ops.dot import Dot
from tilewright.ops.reduce import Reduce, simple_combine

Conditions = frozenset[tuple[int, Value]]  # along an axis each
Numbers = frozenset[float | None]  # those that an element may be; None for any finite one

FINITE: Numbers = frozenset((None,))
ZERO: Numbers = frozenset((0.0,))
MOST = 6  # numbers that are distinguished
FINITE_OF_FINITE = (
    arith.Add, arith.Sub, arith.Mul, arith.Neg, arith.Cast, arith.Max, arith.Min, arith.Fma,
    arith.Abs, arith.Hint, marks.Residual, math.Sin, math.Cos, math.Tan, math.Tanh, math.Erf,
)  # fmt: skip


@once_for_each_value
def conditions(mask: Value) -> tuple[Conditions, bool]:
    """The conditions along one axis that a mask is the conjunction of, and whether it is no more
    than that."""
    lengths = shape_of(mask.type)
    long = [axis for axis, length in enumerate(lengths) if length > 1]
    match mask.op:
        case arith.And(lhs, rhs):
            (left, whole_left), (right, whole_right) = conditions(lhs), conditions(rhs)
            return left | right, whole_left and whole_right
        case arith.Constant(value=True):
            return frozenset(), True
        case shape.Broadcast(src):
            found, whole = conditions(src)
            kept = {(a, v) for a, v in found if shape_of(src.type)[a] > 1}
            return frozenset(kept), whole and len(kept) == len(found)
        case shape.ExpandDims(src, new):
            found, whole = conditions(src)
            return frozenset((a + (a >= new), v) for a, v in found), whole
        case _ if len(long) == 1:
            return frozenset({(long[0], mask)}), True
        case _:
            return frozenset(), False


def common(masks: Iterable[Value], axis: int) -> list[Value]:
    """The conditions along an axis that all masks have."""
    each = [[v for a, v in conditions(mask)[0] if a == axis] for mask in masks]
    if not each:
        return []
    return [v for v in each[0] if all(any(are_equal(v, w) for w in vs) for vs in each[1:])]


@once_for_each_value
def are_equal(a: Value, b: Value) -> bool:
    """Whether two values along one axis are computed alike, perhaps with more axes of length 1."""
    a, b = _stripped(a), _stripped(b)
    if a is b:
        return True
    left, right = a.op, b.op
    return (
        left is not None and right is not None and type(left) is type(right)
        and (left.elementwise or isinstance(left, shape.Arange | arith.Constant))
        and _number_or_attributes(left) == _number_or_attributes(right)
        and len(left.operands) == len(right.operands)
        and all(are_equal(x, y) for x, y in zip(left.operands, right.operands, strict=True))
    )  # fmt: skip


def _number_or_attributes(op: Op) -> object:
    return op.value if isinstance(op, arith.Constant) else op.attributes


def _stripped(value: Value) -> Value:
    while isinstance(value.op, shape.ExpandDims | shape.Splat | shape.Broadcast):
        value = value.op.operands[0]
    return value


def is_finite_where_masked(value: Value, axis: int, condition: Value) -> bool:
    """Whether no element is an infinity or a NaN where a condition along an axis excludes it."""
    return _is_finite(_Elements(condition).numbers(value, axis))


def is_finite(value: Value) -> bool:
    """Whether no element is an infinity or a NaN."""
    return _is_finite(_Elements(None).numbers(value, None))


def _is_finite(numbers: Numbers | None) -> bool:
    return numbers is not None and all(n is None or isfinite(n) for n in numbers)


class _Elements:
    """The possible values of elements where a condition along an axis is false; without a
    condition, of all elements, with None for the axis."""

    def __init__(self, condition: Value | None) -> None:
        self._condition = condition
        self._anywhere = self if condition is None else _Elements(None)
        self._known: dict[tuple[Value, int | None], Numbers | None] = {}

    def numbers(self, value: Value, axis: int | None) -> Numbers | None:
        """The possible values of an element; None if unknown."""
        lengths = shape_of(value.type)
        same = axis is not None and (not lengths or lengths[axis] == 1)
        if same or not is_float(value.type):
            return FINITE
        key = value, axis
        if key not in self._known:
            self._known[key] = None
            self._known[key] = self._numbers(value, axis)
        return self._known[key]

    def _numbers(self, value: Value, axis: int | None) -> Numbers | None:
        op = value.op
        match op:
            case None:
                is_argument = isinstance(value.owner, Region) and value.owner.parent is None
                return FINITE if is_argument else None
            case arith.Constant(number):
                return frozenset((float(number),))
            case memory.Load():
                return self._loaded(op, axis)
            case shape.Broadcast(src) | shape.Splat(src):
                return self.numbers(src, axis)
            case shape.ExpandDims(src, new):
                return self.numbers(src, axis if axis is None else axis - (axis > new))
            case shape.Permute(src, order):
                return self.numbers(src, axis if axis is None else order[axis])
            case Dot():
                return self._product(op, axis)
            case Reduce():
                return self._reduced(op, axis)
            case arith.Select(_, on_true, on_false):
                sides = self.numbers(on_true, axis), self.numbers(on_false, axis)
                return None if sides[0] is None or sides[1] is None else sides[0] | sides[1]
            case Op() if op.elementwise and len(op.results) == 1:
                return self._computed(op, axis)
            case _:
                return None

    def _loaded(self, load: memory.Load, axis: int | None) -> Numbers | None:
        number = 0.0 if load.other is None else arith.constant_value(load.other)
        if number is None:
            return None
        if axis is None:
            return FINITE if load.mask is None else FINITE | {float(number)}
        assert self._condition is not None
        own = common([load.mask], axis) if load.mask is not None else []
        known = any(are_equal(v, self._condition) for v in own)
        return frozenset((float(number),)) if known else None

    def _product(self, op: Dot, axis: int | None) -> Numbers | None:
        """Zeros if all rows, or columns, of the other factor are multiplied by zeros, and are
        finite."""
        columns, sides = len(shape_of(op.result.type)) - 1, list[Numbers | None]()
        for factor, missing in ((op.lhs, columns), (op.rhs, columns - 1)):
            if axis is None or axis == missing:
                sides.append(self._anywhere.numbers(factor, None))
            else:
                sides.append(self.numbers(factor, axis))
        added = self.numbers(op.acc, axis)
        if not all(map(_is_finite, sides)):
            return None
        return added if ZERO in sides else _finite(added)

    def _reduced(self, op: Reduce, axis: int | None) -> Numbers | None:
        """Along another axis."""
        if len(op.srcs) != 1:
            return None
        found = self.numbers(op.srcs[0], axis if axis is None else axis + (axis >= op.axis))
        combine = simple_combine(op)
        if isinstance(combine, arith.Max | arith.Min) or found == ZERO:
            return found
        return _finite(found) if isinstance(combine, arith.Add) else None

    def _computed(self, op: Op, axis: int | None) -> Numbers | None:
        sides: list[Numbers] = []
        for operand in op.operands:
            found = self.numbers(operand, axis)
            if found is None or not is_float(operand.type):
                return None
            sides.append(found)
        if fold(lambda n, side: n * len(side), sides, 1) > MOST:
            return None
        results: set[float | None] = set()
        for given in product(*sides):
            if None in given:
                if not _is_finite(frozenset(given)) or not _keeps_finite(op, given):
                    return None
                results.add(None)
            else:
                results.add(_evaluated(op, [n for n in given if n is not None]))
        return frozenset(results)


def _finite(numbers: Numbers | None) -> Numbers | None:
    """The possible values of a sum of finite numbers."""
    return FINITE if _is_finite(numbers) else None


def _keeps_finite(op: Op, given: tuple[float | None, ...]) -> bool:
    """Whether the result is finite, for finite operands, of which some are known."""
    if isinstance(op, arith.Div):
        return bool(given[1])
    return isinstance(op, FINITE_OF_FINITE)


def _evaluated(op: Op, given: list[float]) -> float:
    """The result of an elementwise op on numbers."""
    arrays: list[Array] = [
        np.reshape(array_of(n, v.type), -1)[:1] for n, v in zip(given, op.operands, strict=True)
    ]
    with np.errstate(all="ignore"):
        return float(first_number(op.evaluate(*arrays), op.results[0].type))

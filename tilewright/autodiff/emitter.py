"""Arithmetic on tangents and adjoints, and in which lanes they are zero.

A lane that a mask excludes may hold anything in the forward function, also an infinity or a NaN
that is never stored. Its derivative is zero, but 0 · inf is NaN, and one sum over lanes would
spread that. So the emitter tracks for derivatives the masks outside of which they are zero, and
where lanes are summed or stored it inserts `select(mask, x, 0)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.numbers import array_of, first_number
from tilewright.ir.types import (
    DType,
    Scalar,
    Type,
    dtype_of,
    element_of,
    is_float,
    shape_of,
)
from tilewright.ops import arith, control, memory, reduce, shape
from tilewright.ops.view import View

Masks = tuple[Value, ...]


class Emitter:
    """Builds derivative arithmetic at the place of a builder.

    Attributes:
        builder: where ops are inserted.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._masks: dict[Value, Masks] = {}
        self._exact: set[Value] = set()  # those that are 0 outside of their masks, in any case

    def op(self, op: Op) -> Value:
        """Insert an op on derivatives; returns its only result."""
        value = self.builder.value(op)
        if is_float(value.type):
            masks = self._masks_of(op)
            if masks:
                self._masks[value] = masks
                if self._keeps_zeros(op):
                    self._exact.add(value)
        return value

    def _keeps_zeros(self, op: Op) -> bool:
        """Whether a result is 0, and no NaN, wherever its derivative is known to be zero."""
        match op:
            case arith.Cast() | arith.Neg():
                return op.operands[0] in self._exact
            case arith.Add(lhs, rhs) | arith.Sub(lhs, rhs):
                return lhs in self._exact and rhs in self._exact
            case arith.Div(lhs, rhs):
                return lhs in self._exact and bool(arith.constant_value(rhs))
            case arith.Mul(lhs, rhs):
                return self._is_zero_times(lhs, rhs) or self._is_zero_times(rhs, lhs)
            case arith.Select(_, on_true, on_false):
                value, zeros = (on_true, on_false) if is_zero(on_false) else (on_false, on_true)
                if not is_zero(zeros):
                    return on_true in self._exact and on_false in self._exact
                return value in self._exact or value not in self._masks
            case View():
                return op.operands[0] in self._exact
            case _:
                return False

    def _is_zero_times(self, zeros: Value, factor: Value) -> bool:
        """Whether a factor is finite wherever another one is known to be zero: it is loaded under
        the same mask, and a number elsewhere."""
        while isinstance(factor.op, arith.Cast) and is_float(factor.op.src.type):
            factor = factor.op.src
        op = factor.op
        if zeros not in self._exact or not isinstance(op, memory.Load):
            return False
        if op.mask is None or self._masks.get(zeros) != (op.mask,):
            return False
        return op.other is None or is_zero(op.other)

    # -- lanes that are zero ----------------------------------------------------------------------

    def zero_outside(self, value: Value, mask: Value | None) -> None:
        """Record that a derivative is zero in lanes that the mask excludes."""
        if mask is not None:
            self._masks[value] = (mask,)

    def zero_with_itself(self, value: Value) -> Value:
        """An adjoint from memory, or from a region, of which no mask is known: what a lane
        contributes is a multiple of it, and therefore zero where it is, unless it computes a NaN.
        """
        if shape_of(value.type):
            self.zero_outside(value, self.compare(value, self.zeros(value.type), "ne"))
            self._exact.add(value)
        return value

    def computed_from(self, value: Value, *sources: Value) -> Value:
        """A derivative that an op has computed from guarded ones, in other lanes than theirs: if
        these have lanes that are zero, so may it."""
        known = any(source in self._masks for source in sources)
        return self.zero_with_itself(value) if known else value

    def guarded(self, value: Value, within: Value | None = None) -> Value:
        """The derivative with zeros in the lanes where it is known to be zero.

        Args:
            within: a mask outside of which lanes are not used.
        """
        masks = self._masks.get(value)
        if not masks or masks == (within,) or value in self._exact:
            return value
        mask = masks[0]
        for other in masks[1:]:
            mask = self.builder.value(arith.Or(mask, other))
        return self.op(arith.Select(mask, value, self.zeros(value.type)))

    def _masks_of(self, op: Op) -> Masks:
        """The masks whose union covers the lanes in which a result may differ from zero; () if
        that may be all."""
        of = self._masks.get
        match op:
            case arith.Mul(lhs, rhs):
                return of(lhs) or of(rhs) or ()
            case arith.Div() | arith.Neg() | arith.Cast():
                return of(op.operands[0]) or ()
            case arith.Select(condition, on_true, on_false) if is_zero(on_false):
                return of(on_true) or (condition,)
            case arith.Select(_, on_true, on_false) if is_zero(on_true):
                return of(on_false) or ()
            case arith.Add(a, b) | arith.Sub(a, b) | arith.Select(_, a, b):
                left, right = of(a), of(b)
                return tuple(dict.fromkeys(left + right)) if left and right else ()
            case View() if len(op.operands) == 1 and len(op.results) == 1:
                return tuple(self._viewed(op, mask) for mask in of(op.src) or ())
            case _:
                return ()

    def _viewed(self, op: View, mask: Value) -> Value:
        attributes = op.attributes
        if isinstance(op, arith.Hint | arith.Residual):
            return mask
        return self.builder.value(type(op)(mask, **attributes))

    # -- arithmetic -------------------------------------------------------------------------------

    def const(self, number: float, type: Type) -> Value:
        """A constant of a float type, rounded to it."""
        exact = first_number(array_of(float(number), type), type)
        return self.builder.value(arith.Constant(float(exact), type))

    def integer(self, number: int, type: Type) -> Value:
        return self.builder.value(arith.Constant(number, type))

    def zeros(self, type: Type) -> Value:
        return self.const(0.0, type)

    def add(self, a: Value, b: Value) -> Value:
        return self.op(arith.Add(a, b))

    def sub(self, a: Value, b: Value) -> Value:
        return self.op(arith.Sub(a, b))

    def mul(self, a: Value, b: Value) -> Value:
        return self.op(arith.Mul(a, b))

    def div(self, a: Value, b: Value) -> Value:
        return self.op(arith.Div(a, b, False))

    def neg(self, a: Value) -> Value:
        return self.op(arith.Neg(a))

    def scaled(self, a: Value, factor: float) -> Value:
        return self.mul(a, self.const(factor, a.type))

    def where(self, condition: Value, a: Value, b: Value | None = None) -> Value:
        """`a` where the condition holds, else `b`, or 0."""
        return self.op(arith.Select(condition, a, b if b is not None else self.zeros(a.type)))

    def compare(self, a: Value, b: Value, predicate: str) -> Value:
        return self.builder.value(arith.Cmp(a, b, predicate))

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """The conjunction of two masks; None means all lanes."""
        if a is None or b is None:
            return a if b is None else b
        return self.builder.value(arith.And(a, b))

    def cast(self, a: Value, to: Scalar) -> Value:
        """A float in another float type."""
        if element_of(a.type) == to:
            return a
        assert isinstance(to, DType)
        return self.op(arith.Cast(a, to, "rtne"))

    def total(self, terms: Sequence[Value]) -> Value | None:
        """The sum of derivatives; None of none."""
        result: Value | None = None
        for term in terms:
            result = term if result is None else self.add(result, term)
        return result

    # -- memory -----------------------------------------------------------------------------------

    def load(self, pointer: Value, mask: Value | None) -> Value:
        """Load derivatives; 0 in lanes that the mask excludes."""
        loaded = self.builder.value(
            memory.Load(pointer, mask, None, cache="", evict="", volatile=False)
        )
        self.zero_outside(loaded, mask)
        if mask is not None:
            self._exact.add(loaded)
        return loaded

    def store(self, pointer: Value, value: Value, mask: Value | None) -> None:
        self.builder.insert(memory.Store(pointer, value, mask, cache="", evict=""))

    # -- shapes -----------------------------------------------------------------------------------

    def sum(self, value: Value, axis: int) -> Value:
        """The sum of a derivative along an axis, which disappears."""
        made = reduce.Reduce([self.guarded(value)], axis, self._adding(value.type))
        return self.computed_from(self.builder.insert(made).results[0], value)

    def running_sum(self, value: Value, axis: int, reverse: bool) -> Value:
        """The inclusive prefix sum of a derivative along an axis."""
        made = reduce.Scan([self.guarded(value)], axis, reverse, self._adding(value.type))
        return self.computed_from(self.builder.insert(made).results[0], value)

    def _adding(self, type: Type) -> Region:
        element = dtype_of(type)
        region = Region([element, element])
        with self.builder.combining(region):
            total = self.builder.value(arith.Add(*region.args))
            self.builder.insert(control.Yield([total]))
        return region

    def sum_all(self, value: Value) -> Value:
        """The sum of all lanes, a scalar."""
        while shape_of(value.type):
            value = self.sum(value, len(shape_of(value.type)) - 1)
        return value

    def repeated(self, value: Value, like: Type, axis: int) -> Value:
        """A reduced value, repeated along the axis that `like` still has."""
        lengths = shape_of(like)
        if len(lengths) == 1:
            return self.op(shape.Splat(value, lengths))
        return self.op(shape.Broadcast(self.op(shape.ExpandDims(value, axis)), lengths))

    def positions(self, lengths: tuple[int, ...], axis: int) -> Value:
        """A tile of the position of each element along an axis."""
        value = self.op(shape.Arange(0, lengths[axis]))
        for other in range(len(lengths)):
            if other != axis:
                value = self.op(shape.ExpandDims(value, other))
        return self.op(shape.Broadcast(value, lengths))


def is_zero(value: Value) -> bool:
    """Whether a value is the constant 0."""
    return arith.constant_value(value) == 0

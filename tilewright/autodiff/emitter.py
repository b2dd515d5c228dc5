"""Arithmetic on tangents and adjoints, which tracks the lanes in which they are zero.

A masked-off lane may hold any value in the forward function, including an infinity or a NaN that is
never stored. Its derivative is zero, but 0 · inf is NaN, and a sum over lanes would propagate it.
So the emitter tracks the masks outside of which derivatives are zero, and inserts
`select(mask, x, 0)` where lanes are summed or stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.autodiff import masked_values
from tilewright.ir.builder import Builder
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.numbers import array_of, first_number
from tilewright.ir.types import (
    I32,
    DType,
    Scalar,
    Type,
    derivative_type,
    dtype_of,
    element_of,
    is_float,
    shape_of,
    with_shape,
)
from tilewright.ops import arith, control, marks, memory, reduce, shape
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
        the same mask, a constant, or computed from such values."""
        masks = self._masks.get(zeros)
        if zeros not in self._exact or masks is None:
            return False
        data = factor
        while isinstance(data.op, arith.Cast) and is_float(data.op.src.type):
            data = data.op.src
        op = data.op
        if isinstance(op, memory.Load) and op.mask is not None and masks == (op.mask,):
            return op.other is None or is_zero(op.other)
        found = [masked_values.conditions(mask) for mask in masks]
        return len(shape_of(factor.type)) > 0 and all(
            whole and all(masked_values.is_finite_where_masked(factor, axis, v) for axis, v in each)
            for each, whole in found
        )

    # -- lanes that are zero ----------------------------------------------------------------------

    def zero_outside(self, value: Value, mask: Value | None) -> None:
        """Record that a derivative is zero in lanes that the mask excludes."""
        if mask is not None:
            self._masks[value] = (mask,)

    def zero_with_itself(self, value: Value) -> Value:
        """An adjoint from memory, or from a region, without a known mask: the contribution of a
        lane is a multiple of it, and therefore zero where it is, unless it computes a NaN."""
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
        if isinstance(op, arith.Hint | marks.Residual):
            return mask
        return self.builder.value(type(op)(mask, **op.attributes))

    # -- operands of sums along an axis -----------------------------------------------------------

    def factor(self, other: Value, adjoint: Value, axis: int) -> Value:
        """The factor of an adjoint in a product that sums over an axis, with zeros instead of
        possibly infinite or NaN values where the adjoint is zero along the whole other axis."""
        masks = self._masks.get(adjoint)
        if not masks:
            return other
        lengths = shape_of(other.type)
        axes = (*range(len(lengths) - 2), axis)  # which it shares with the adjoint
        shared = [(a, v) for a in axes for v in masked_values.common(masks, a)]
        for a, condition in shared:
            if not masked_values.is_finite_where_masked(other, a, condition):
                other = self._within(other, self._along(condition, lengths, a))
        found = [masked_values.conditions(mask) for mask in masks]
        more = all(
            not whole or sum(a in axes for a, _ in each) > len(shared) for each, whole in found
        )
        if more and not masked_values.is_finite(other):
            other = self._within(other, self._any(masks, lengths, axis))
        return other

    def _within(self, value: Value, mask: Value) -> Value:
        """A value of the kernel, with zeros where a mask excludes it."""
        load = value.op
        if isinstance(load, memory.Load) and (load.other is None or is_zero(load.other)):
            both = mask if load.mask is None else self.builder.value(arith.And(load.mask, mask))
            zeros = self.zeros(value.type)
            again = memory.Load(load.ptr, both, zeros, load.cache, load.evict, load.volatile)
            return self.builder.value(again)
        return self.builder.value(arith.Select(mask, value, self.zeros(value.type)))

    def _along(self, condition: Value, lengths: Sequence[int], axis: int) -> Value:
        """A condition along an axis, for a tile."""
        value, kept = self.builder.value, tuple(lengths)
        if len(shape_of(condition.type)) > 1:
            condition = value(shape.Reshape(condition, (kept[axis],)))
        return shape.broadcast_from_axis(value, condition, axis, kept)

    def _any(self, masks: Masks, lengths: Sequence[int], axis: int) -> Value:
        """Where along an axis, of each batch, any lane is within one of these masks, for a tile."""
        value, mask = self.builder.value, masks[0]
        for other in masks[1:]:
            mask = value(arith.Or(mask, other))
        ones = self.integer(1, with_shape(I32, shape_of(mask.type)))
        zeros = self.integer(0, ones.type)
        (gone,) = {len(lengths) - 2, len(lengths) - 1} - {axis}
        counted = reduce.Reduce([value(arith.Select(mask, ones, zeros))], gone, self._adding(I32))
        count = self.builder.insert(counted).results[0]
        found = self.compare(count, self.integer(0, count.type), "ne")
        return shape.broadcast_along(value, found, (gone,), tuple(lengths))

    def of_axes(
        self, value: Value, source: Value, axes: Mapping[int, int], *, exact: bool
    ) -> Value:
        """A derivative that is computed from a guarded one, and zero along those axes where that
        is.

        Args:
            axes: the axes of the source that the result has, and where it has them.
            exact: whether it is 0, and no NaN, there.
        """
        if source not in self._masks:
            return value
        lengths, masks = shape_of(value.type), list[Value]()
        for mask in self._masks[source]:
            found, whole = masked_values.conditions(mask)
            if not whole:
                return self.zero_with_itself(value)
            kept = [(axes[a], v) for a, v in found if a in axes]
            if not kept:
                return value
            masks.append(self._conjunction(kept, lengths))
        self._masks[value] = tuple(dict.fromkeys(masks))
        if exact:
            self._exact.add(value)
        return value

    def _conjunction(self, found: Sequence[tuple[int, Value]], lengths: Sequence[int]) -> Value:
        """A mask of these conditions along axes."""
        made: Value | None = None
        for axis, condition in found:
            made = self.both(made, self._along(condition, lengths, axis))
        assert made is not None
        return made

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
        """The sum, in which neither has a NaN where it is zero and the other one may not be."""
        return self.op(arith.Add(self._guarded_for(a, b), self._guarded_for(b, a)))

    def _guarded_for(self, value: Value, other: Value) -> Value:
        masks = self._masks.get(other)
        alike = masks is not None and set(masks) <= set(self._masks.get(value, ()))
        return value if alike else self.guarded(value)

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

    def chosen(self, condition: Value, a: Value, whole: bool) -> Value:
        """A derivative `a` where the kernel chooses a value by a condition, else 0.

        Args:
            whole: whether what is computed from it is zero where the condition does not hold,
                too: the value there has finite derivatives.
        """
        made, masks = self.where(condition, a), self._masks.get(a, ())
        if not whole:
            narrowed = [self._narrowed(mask, condition) for mask in masks] or [condition]
            self._masks[made] = tuple(dict.fromkeys(narrowed))
        return made

    def _narrowed(self, mask: Value, condition: Value) -> Value:
        return mask if mask is condition else self.builder.value(arith.And(mask, condition))

    def negated(self, condition: Value) -> Value:
        return self.builder.value(arith.Xor(condition, self.integer(True, condition.type)))

    def compare(self, a: Value, b: Value, predicate: str) -> Value:
        return self.builder.value(arith.Cmp(a, b, predicate))

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """The conjunction of two masks; None means all lanes."""
        if a is None or b is None:
            return a if b is None else b
        return self.builder.value(arith.And(a, b))

    def wide(self, value: Value) -> Value:
        """A value of the kernel in the type of its derivative. One that the kernel has rounded to
        16 bits is taken as it was before; rounding to fewer bits quantises it."""
        type, op = derivative_type(value.type), value.op
        has_16_bits = dtype_of(value.type).primitive_bitwidth == 16
        if has_16_bits and isinstance(op, arith.Cast) and op.src.type == type:
            return op.src
        return self.cast(value, element_of(type))

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
        axes = {a: a - (a > axis) for a in range(len(shape_of(value.type))) if a != axis}
        return self.of_axes(self.builder.insert(made).results[0], value, axes, exact=True)

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
        return shape.broadcast_along(self.op, value, (axis,), lengths)

    def positions(self, lengths: tuple[int, ...], axis: int) -> Value:
        """A tile of the position of each element along an axis."""
        return shape.broadcast_from_axis(
            self.op, self.op(shape.Arange(0, lengths[axis])), axis, lengths
        )


def is_zero(value: Value) -> bool:
    """Whether a value is the constant 0."""
    return arith.constant_value(value) == 0

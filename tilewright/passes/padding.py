"""The state of `pad_tiles`, the interface of its rules, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.define import require
from tilewright.ir.index_map import reshape_groups
from tilewright.ir.op_table import OpTable
from tilewright.ir.passes import PassContext
from tilewright.ir.types import Type, shape_of, text_of, with_shape
from tilewright.ops import arith, control
from tilewright.ops.shape import (
    Arange,
    Broadcast,
    Gather,
    Join,
    Reshape,
    Split,
)
from tilewright.ops.view import View

Shape = tuple[int, ...]


def padded(shape: Sequence[int]) -> Shape:
    """Each extent rounded up to a power of two."""
    return tuple(1 << (extent - 1).bit_length() for extent in shape)


def is_padded(shape: Sequence[int]) -> bool:
    return padded(shape) == tuple(shape)


Rule = Callable[["Padding", Any], None]
RULES: OpTable[Rule] = OpTable("rules of padding")

# Ops that need no rule: the types of their operands and results change.
PLAIN = (
    control.For, control.While, control.If, control.Yield, control.Condition, Join, Split,
)  # fmt: skip


def pads(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Register a rule for ops with an operand or result whose extents are not powers of two.

    A rule is called with the insertion point before the op, whose operands are already padded, but
    not its results. It either changes the attributes of the op, or inserts other ops and calls
    `Padding.replace`.
    """
    return RULES.of(*classes)


def needs_rule(op: Op) -> bool:
    """Whether padding elements would affect others, unless a rule prevents it."""
    if op.elementwise or isinstance(op, PLAIN):
        return False
    if not op.operands or not op.results or op.no_index_maps:
        return True
    maps = (found for r in range(len(op.results)) for found in op.index_maps(r))
    return not all(found is None or found.aligned for found in maps)


def values_of(op: Op) -> list[Value]:
    """The values that the op defines: its results and the arguments of its regions."""
    return [*op.results, *(arg for region in op.regions for arg in region.args)]


class Padding:
    """The pass on one function.

    Attributes:
        b: the builder for rules.
        shapes: the original shapes of padded values.
        zeros: values whose padding is known to be 0.
        start: the op before which coordinates and masks are inserted, which dominates all others.
    """

    def __init__(self, fn: Function, ctx: PassContext) -> None:
        self.fn = fn
        self.ctx = ctx
        self.b = Builder()
        self.shapes: dict[Value, Shape] = {}
        self.zeros: set[Value] = set()
        first = fn.body.first
        assert first is not None
        self.start: Op = first
        self._coordinates: dict[tuple[Shape, int], Value] = {}
        self._masks: dict[tuple[Shape, Shape], Value] = {}

    def run(self) -> None:
        for op in list(self.fn.walk()):
            if any(v in self.shapes for v in op.operands) or any(
                not is_padded(shape_of(v.type)) for v in values_of(op)
            ):
                self._pad(op)

    def _pad(self, op: Op) -> None:
        rule = RULES.get(type(op))
        require(
            rule is not None or not needs_rule(op),
            op,
            "padding",
            "does not support tiles whose extents are not powers of two, as in ({types})",
            types=", ".join(text_of(v.type) for v in (*op.operands, *op.results)),
        )
        if rule is not None:
            with self.b.before(op):
                rule(self, op)
        elif op.operands and all(v in self.zeros for v in op.operands) and _keeps_zero(op):
            self.zeros.update(op.results)
        if op.parent is not None:
            for value in values_of(op):
                self.pad_type(value)
        self.ctx.count("padded")

    def pad_type(self, value: Value) -> None:
        """Change the type of a value to the padded one, and record its original shape."""
        shape = shape_of(value.type)
        if not is_padded(shape):
            self.shapes[value] = shape
            value.type = with_shape(value.type, padded(shape))

    # -- the interface of rules -----------------------------------------------------------------

    def shape(self, value: Value) -> Shape:
        """The shape of a value without padding."""
        return self.shapes.get(value, shape_of(value.type))

    def set_shape(self, value: Value, shape: Shape) -> None:
        """Record the shape without padding of a padded value."""
        if not is_padded(shape):
            self.shapes[value] = shape

    def replace(self, op: Op, *values: Value) -> None:
        """Replace the results of an op by padded values, and erase it."""
        for result, value in zip(op.results, values, strict=True):
            self.set_shape(value, shape_of(result.type))
            result.replace_with(value)
        if op is self.start:
            assert op.next is not None
            self.start = op.next
        op.erase()

    def constant(self, number: float, like: Type, shape: Shape | None = None) -> Value:
        """A constant of the element type of `like`."""
        type = like if shape is None else with_shape(like, shape)
        return self.b.value(arith.Constant(number, type))

    def coordinates(self, shape: Shape, axis: int) -> Value:
        """An i32 tile of the coordinates along an axis, in a padded shape."""
        key = shape, axis
        if key not in self._coordinates:
            with self.b.before(self.start):
                line = self.b.value(Arange(0, shape[axis]))
                if len(shape) > 1:
                    thin = tuple(n if a == axis else 1 for a, n in enumerate(shape))
                    line = self.b.value(Reshape(line, thin))
                    line = self.b.value(Broadcast(line, shape)) if thin != shape else line
                self._coordinates[key] = line
        return self._coordinates[key]

    def inside(self, shape: Shape, axes: Sequence[int] | None = None) -> Value | None:
        """The mask of elements that are not padding along some axes, by default all; None if there
        is no padding along them."""
        chosen = range(len(shape)) if axes is None else axes
        limits = tuple(n if a in chosen else 0 for a, n in enumerate(shape))
        if is_padded([n or 1 for n in limits]):
            return None
        full = padded(shape)
        key = full, limits
        if key not in self._masks:
            lines = [self.coordinates(full, a) for a, n in enumerate(limits) if n and n != full[a]]
            counts = [n for a, n in enumerate(limits) if n and n != full[a]]
            with self.b.before(self.start):
                mask: Value | None = None
                for line, count in zip(lines, counts, strict=True):
                    limit = self.constant(count, line.type)
                    one = self.b.value(arith.Cmp(line, limit, "lt"))
                    mask = one if mask is None else self.b.value(arith.And(mask, one))
                assert mask is not None
                self._masks[key] = mask
        return self._masks[key]

    def masked(self, mask: Value | None, shape: Shape) -> Value | None:
        """The conjunction of a mask and `inside`."""
        own = self.inside(shape)
        if mask is None or own is None:
            return mask or own
        return self.b.value(arith.And(own, mask))

    def filled(self, value: Value, number: float, axis: int) -> Value:
        """The value with its padding along an axis set to a number."""
        mask = self.inside(self.shape(value), (axis % len(shape_of(value.type)),))
        if mask is None or (value in self.zeros and number == 0):
            return value
        return self.b.value(arith.Select(mask, value, self.constant(number, value.type)))

    def gathered(self, value: Value, index: Value, axis: int) -> Value:
        return self.b.value(Gather(value, index, axis))

    def reshaped(self, value: Value, shape: Shape) -> Value:
        """The padded value reshaped according to the shapes without padding."""
        own = self.shape(value)
        if groups_match(own, shape):
            return self._reshape(value, padded(shape))
        flat = self._reshape(value, (prod(padded(own)),))
        index = self._source_positions(self._positions(padded(shape)), shape, own)
        return self._reshape(self.gathered(flat, index, 0), padded(shape))

    def _reshape(self, value: Value, shape: Shape) -> Value:
        return value if shape_of(value.type) == shape else self.b.value(Reshape(value, shape))

    def _positions(self, shape: Shape) -> Value:
        return self.b.value(Arange(0, prod(shape)))

    def _source_positions(self, position: Value, target: Shape, source: Shape) -> Value:
        """Convert row-major positions in the padded target to those in the padded source: through
        coordinates of the target, the position without padding, and coordinates of the source."""
        linear = self._linearised(
            self._delinearised(position, padded(target)), target, position.type
        )
        return self._linearised(self._delinearised(linear, source), padded(source), position.type)

    def _delinearised(self, position: Value, shape: Shape) -> list[Value]:
        """The coordinates of a row-major position in `shape`."""
        found: list[Value] = []
        for extent in reversed(shape[1:]):
            by = self.constant(extent, position.type)
            found.append(self.b.value(arith.Rem(position, by)))
            position = self.b.value(arith.IntDiv(position, by))
        return [position, *reversed(found)]

    def _linearised(self, coordinates: Sequence[Value], shape: Shape, type: Type) -> Value:
        """The row-major position of coordinates in `shape`."""
        position = coordinates[0]
        for extent, coordinate in zip(shape[1:], coordinates[1:], strict=True):
            scaled = self.b.value(arith.Mul(position, self.constant(extent, type)))
            position = self.b.value(arith.Add(scaled, coordinate))
        return position


def _is_aligned(op: Op) -> bool:
    return isinstance(op, View) and op.aligned


def _keeps_zero(op: Op) -> bool:
    """Whether the op maps zeros to zeros."""
    return isinstance(op, arith.Cast) or _is_aligned(op)


def groups_match(source: Shape, target: Shape) -> bool:
    """Whether a reshape of the padded tiles is that of the unpadded tiles, so that no gather is
    needed.

    In each group of axes, only the first may have an extent that is not a power of two: its padding
    follows all elements in row-major order.
    """
    return all(
        is_padded([source[axis] for axis in sources[1:]])
        and is_padded([target[axis] for axis in targets[1:]])
        for sources, targets in reshape_groups(source, target)
    )

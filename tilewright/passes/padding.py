"""The state of `pad_tiles`, what its rules ask of it, and the rules by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.define import require
from tilewright.ir.index_map import reshape_groups
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
    """Each extent as the least power of two that is not less."""
    return tuple(1 << (extent - 1).bit_length() for extent in shape)


def is_padded(shape: Sequence[int]) -> bool:
    return padded(shape) == tuple(shape)


Rule = Callable[["Padding", Any], None]
RULES: dict[type[Op], Rule] = {}

# Ops for which it is enough that their operands and results have other shapes.
PLAIN = (
    control.For, control.While, control.If, control.Yield, control.Condition, Join, Split,
)  # fmt: skip


def pads(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Register what becomes of ops that meet a tile of other extents.

    A rule runs with the place before the op; the operands are padded by then, the results not yet.
    It changes the op's attributes, or makes other ops and says with `Padding.replace` what stands
    in for its results.
    """

    def register(fn: Rule) -> Rule:
        for cls in classes:
            RULES[cls] = fn
        return fn

    return register


def values_of(op: Op) -> list[Value]:
    """The values that the op defines, in its regions too."""
    return [*op.results, *(arg for region in op.regions for arg in region.args)]


class Padding:
    """The pass at work.

    Attributes:
        b: where rules make ops.
        shapes: what was the shape of each value that is padded now.
        zeros: values whose padding is known to be 0.
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
        self._places: dict[tuple[Shape, int], Value] = {}
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
            rule is not None or op.elementwise or isinstance(op, PLAIN) or _is_aligned(op),
            op,
            "padding",
            "can't take tiles whose extents are no powers of two, as in ({types})",
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
        """Give a value the padded type, and remember its shape."""
        shape = shape_of(value.type)
        if not is_padded(shape):
            self.shapes[value] = shape
            value.type = with_shape(value.type, padded(shape))

    # -- what rules ask -------------------------------------------------------------------------

    def shape(self, value: Value) -> Shape:
        """The shape of a value before it was padded."""
        return self.shapes.get(value, shape_of(value.type))

    def note(self, value: Value, shape: Shape) -> None:
        """Say what is no padding of a value that is padded."""
        if not is_padded(shape):
            self.shapes[value] = shape

    def replace(self, op: Op, *values: Value) -> None:
        """Let padded values stand in for the results of an op, which goes."""
        for result, value in zip(op.results, values, strict=True):
            self.note(value, shape_of(result.type))
            result.replace_with(value)
        if op is self.start:
            assert op.next is not None
            self.start = op.next
        op.erase()

    def constant(self, number: float, like: Type, shape: Shape | None = None) -> Value:
        """A constant of the element type of `like`."""
        type = like if shape is None else with_shape(like, shape)
        return self.b.value(arith.Constant(number, type))

    def places(self, shape: Shape, axis: int) -> Value:
        """Of each element of a padded tile its place along an axis, as i32."""
        key = shape, axis
        if key not in self._places:
            with self.b.before(self.start):
                line = self.b.value(Arange(0, shape[axis]))
                if len(shape) > 1:
                    thin = tuple(n if a == axis else 1 for a, n in enumerate(shape))
                    line = self.b.value(Reshape(line, thin))
                    line = self.b.value(Broadcast(line, shape)) if thin != shape else line
                self._places[key] = line
        return self._places[key]

    def inside(self, shape: Shape, axes: Sequence[int] | None = None) -> Value | None:
        """Which elements of a padded tile are no padding along some axes, all by default; None
        where there is none."""
        chosen = range(len(shape)) if axes is None else axes
        limits = tuple(n if a in chosen else 0 for a, n in enumerate(shape))
        if is_padded([n or 1 for n in limits]):
            return None
        full = padded(shape)
        key = full, limits
        if key not in self._masks:
            lines = [self.places(full, a) for a, n in enumerate(limits) if n and n != full[a]]
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
        """A mask, and no padding."""
        own = self.inside(shape)
        if mask is None or own is None:
            return mask or own
        return self.b.value(arith.And(own, mask))

    def filled(self, value: Value, number: float, axis: int) -> Value:
        """The value with a number in the padding along an axis."""
        mask = self.inside(self.shape(value), (axis % len(shape_of(value.type)),))
        if mask is None or (value in self.zeros and number == 0):
            return value
        return self.b.value(arith.Select(mask, value, self.constant(number, value.type)))

    def gathered(self, value: Value, index: Value, axis: int) -> Value:
        return self.b.value(Gather(value, index, axis))

    def reshaped(self, value: Value, shape: Shape) -> Value:
        """The value in another shape, its padding like that of any."""
        own = self.shape(value)
        if groups_match(own, shape):
            return self._flatly(value, padded(shape))
        flat = self._flatly(value, (prod(padded(own)),))
        index = self._moved(self._counted(padded(shape)), shape, own)
        return self._flatly(self.gathered(flat, index, 0), padded(shape))

    def _flatly(self, value: Value, shape: Shape) -> Value:
        return value if shape_of(value.type) == shape else self.b.value(Reshape(value, shape))

    def _counted(self, shape: Shape) -> Value:
        return self.b.value(Arange(0, prod(shape)))

    def _moved(self, position: Value, target: Shape, source: Shape) -> Value:
        """Row-major positions in the padded source of elements at positions in the padded target.

        A position in the padded target gives coordinates, these the position without padding, this
        the coordinates in the source.
        """
        linear = self._ranked(self._coordinates(position, padded(target)), target, position.type)
        return self._ranked(self._coordinates(linear, source), padded(source), position.type)

    def _coordinates(self, position: Value, shape: Shape) -> list[Value]:
        found: list[Value] = []
        for extent in reversed(shape[1:]):
            by = self.constant(extent, position.type)
            found.append(self.b.value(arith.Rem(position, by)))
            position = self.b.value(arith.IntDiv(position, by))
        return [position, *reversed(found)]

    def _ranked(self, coordinates: Sequence[Value], shape: Shape, type: Type) -> Value:
        position = coordinates[0]
        for extent, coordinate in zip(shape[1:], coordinates[1:], strict=True):
            scaled = self.b.value(arith.Mul(position, self.constant(extent, type)))
            position = self.b.value(arith.Add(scaled, coordinate))
        return position


def _is_aligned(op: Op) -> bool:
    return isinstance(op, View) and op.aligned


def _keeps_zero(op: Op) -> bool:
    """Whether the op makes zeros of zeros."""
    return isinstance(op, arith.Cast) or _is_aligned(op)


def groups_match(source: Shape, target: Shape) -> bool:
    """Whether a reshape keeps the row-major order of padded tiles too.

    In each group of axes only the first, whose padding comes last, may be no power of two.
    """
    return all(
        is_padded([source[axis] for axis in sources[1:]])
        and is_padded([target[axis] for axis in targets[1:]])
        for sources, targets in reshape_groups(source, target)
    )

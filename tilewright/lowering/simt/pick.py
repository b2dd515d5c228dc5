"""Sums with a single nonzero term along the axis: `sum(where(arange == i, x, 0), axis)`.

Kernels select a row of a tile by its index in this way. Instead of adding zeros, the element is
moved: by selects among registers, one shuffle, and one partial result of the warps.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.core import Value
from tilewright.ir.index_map import Along
from tilewright.ir.types import FP32, I32, dtype_of, shape_of
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.emit import V, const
from tilewright.lowering.simt.combine import (
    Element,
    axis_bits,
    exchanged,
    first_lane,
    inline,
    moves_alone,
    share_partials,
)
from tilewright.lowering.simt.kernel import Kernel
from tilewright.ops.arith import Add, Cmp, Select, constant_value
from tilewright.ops.gpu import ConvertLayout
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.ops.shape import Arange, Splat
from tilewright.ops.view import View
from tilewright.passes.layout_rules import reduced_layout


class Picked(NamedTuple):
    """The elements of a tile at a number along an axis.

    Attributes:
        tile: what they are elements of.
        number: a scalar, counted from `start`.
    """

    tile: Value
    number: Value
    start: int


def picked(kernel: Kernel, op: Reduce) -> Picked | None:
    """The element that a sum selects; None if it has several terms."""
    source = op.srcs[0].op
    if len(op.srcs) != 1 or not isinstance(source, Select):
        return None
    if not isinstance(simple_combine(op), Add) or constant_value(source.on_false) != 0:
        return None
    tile, layout = source.on_true, op.srcs[0].layout
    assert layout is not None
    if dtype_of(tile.type) not in (FP32, I32) or tile not in kernel.env:
        return None
    found = _equal_to(source.condition, op.axis)
    if found is None or shape_of(tile.type)[op.axis] < 2 or not moves_alone(layout, op.axis):
        return None
    return Picked(tile, *found)


def _equal_to(condition: Value, axis: int) -> tuple[Value, int] | None:
    """The scalar that the numbers along an axis are compared with, and the first of them."""
    condition, axis = _source(condition, axis)
    test = condition.op
    if not isinstance(test, Cmp) or test.predicate != "eq":
        return None
    sides = [_source(value, axis) for value in test.operands]
    if isinstance(sides[1][0].op, Arange):
        sides.reverse()
    (numbers, along), (other, _) = sides
    scalar = other.op
    if not isinstance(numbers.op, Arange) or along != 0 or not isinstance(scalar, Splat):
        return None
    return (scalar.src, numbers.op.start) if scalar.src.type == I32 else None


def _source(value: Value, axis: int) -> tuple[Value, int]:
    """The operand that a tile broadcasts along other axes, and its axis that corresponds to `axis`
    of the tile."""
    while isinstance(op := value.op, View | ConvertLayout):
        found = op.index_maps()[0]
        if found is None or Along(axis) not in found.axes:
            break
        value, axis = op.src, found.axes.index(Along(axis))
    return value, axis


def emit_picked(kernel: Kernel, op: Reduce, found: Picked) -> list[Element]:
    """The element at the number for each register of the reduced tile."""
    b, layout = kernel.b, op.srcs[0].layout
    assert layout is not None
    extent = shape_of(found.tile.type)[op.axis]
    index = b.sub(kernel.scalar(found.number), found.start)
    inside = b.icmp("ult", index, extent)
    values = _among_registers(kernel, op, found.tile, index)
    bits = axis_bits(layout, LANE, op.axis)
    if bits:
        own = b.and_(kernel.lane, ~sum(1 << bit for bit in bits))
        lane = b.or_(own, _spread(kernel, layout, op.axis, LANE, index, bits))
        values = [exchanged(b, v, lambda word: kernel.hw.shuffle(b, word, lane)) for v in values]
    elements: list[Element] = [(value,) for value in values]
    warps = axis_bits(layout, WARP, op.axis)
    if warps:
        first = first_lane(kernel, reduced_layout(layout, op.axis))
        partials = share_partials(kernel, op, layout, elements, first)
        warp = _spread(kernel, layout, op.axis, WARP, index, range(len(warps)))
        elements = [partials.of(i, warp, 1)[0] for i in range(len(elements))]
    # The sum with zeros, which is 0 where the element is -0.0.
    zeros = [const(value.type, 0) for (value,) in elements]
    return [
        inline(kernel, op.combine, [b.select(inside, value, zero), zero])
        for (value,), zero in zip(elements, zeros, strict=True)
    ]


def _bit_of(kernel: Kernel, layout: LinearLayout, axis: int, column: int, index: V) -> V:
    """0 or 1: the bit of an index along an axis that a column of the layout moves."""
    place = layout.coordinates(column)[axis].bit_length() - 1
    return kernel.b.and_(kernel.b.lshr(index, place), 1)


def _spread(
    kernel: Kernel, layout: LinearLayout, axis: int, name: str, index: V, to: range | list[int]
) -> V:
    """The bits of an index that lanes or warps move, at the places `to`."""
    b, result = kernel.b, const(index.type, 0)
    for bit, place in zip(axis_bits(layout, name, axis), to, strict=True):
        moved = _bit_of(kernel, layout, axis, layout.bases(name)[bit], index)
        result = b.or_(result, b.shl(moved, place))
    return result


def _among_registers(kernel: Kernel, op: Reduce, tile: Value, index: V) -> list[V]:
    """Of the registers along the axis the one at the index, for each register of the result."""
    b, layout = kernel.b, op.srcs[0].layout
    assert layout is not None
    bits = axis_bits(layout, REGISTER, op.axis)
    copies, along = layout.free_variables(REGISTER), sum(1 << bit for bit in bits)
    groups: dict[int, list[V]] = {}
    for r, value in enumerate(kernel.env[tile]):
        if not r & copies:
            groups.setdefault(r & ~along, []).append(value)
    for bit in bits:  # ascending, as the registers of a group are
        column = layout.bases(REGISTER)[bit]
        odd = b.icmp("ne", _bit_of(kernel, layout, op.axis, column, index), 0)
        groups = {
            key: [b.select(odd, *pair[::-1]) for pair in zip(v[::2], v[1::2], strict=True)]
            for key, v in groups.items()
        }
    return [value for (value,) in groups.values()]

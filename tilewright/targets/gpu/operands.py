"""Operands of matrix instructions: their origin, and their layout in shared memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from tilewright.analysis.axis_info import AxisMap
from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.layout import families
from tilewright.layout.linear import LinearLayout
from tilewright.ops.dot import Dot
from tilewright.ops.memory import Load
from tilewright.ops.shape import Join, Permute
from tilewright.ops.view import View

ROW_BYTES = (128, 64, 32)  # row lengths of the swizzles, best first
SWIZZLED_ROWS = 8  # after which a swizzle repeats
MOST_STEPS = 64  # ops between two products of a chain that are looked at


def comes_from_memory(value: Value) -> bool:
    """Whether unary elementwise ops and permutations compute the value from a load."""
    return isinstance(source_of(value).op, Load)


def source_of(value: Value) -> Value:
    """The value from which unary elementwise ops and permutations compute this one."""
    op = value.op
    while op is not None and len(op.operands) == 1 and (op.elementwise or isinstance(op, Permute)):
        value = op.operands[0]
        op = value.op
    return value


def swizzled(type: ir.Type, contiguous: int) -> LinearLayout:
    """The swizzled layout of an operand whose adjacent elements are along the axis `contiguous`;
    row by row if its rows are shorter than a swizzle's, or longer but fewer than a swizzle's."""
    shape = ir.shape_of(type)
    element = ir.dtype_of(type)
    row = shape[contiguous] * element.nbytes_in_memory
    swizzle = next((size for size in ROW_BYTES if size <= row), 0)
    if not swizzle or (shape[1 - contiguous] < SWIZZLED_ROWS and row > swizzle):
        return families.shared_row_major(shape, (contiguous, 1 - contiguous))
    return families.shared_hopper(
        shape, element.primitive_bitwidth, swizzle, transposed=contiguous == 0
    )


def is_chained(op: Dot) -> bool:
    """Whether the left operand is computed elementwise from the result of another product of its
    class, or vice versa. A warp should compute whole rows of such products, so that they are its
    operand of the next one, without an exchange through shared memory."""
    return multiplies_product(op) or _is_multiplied(op)


def multiplies_product(op: Dot) -> bool:
    """Whether the left operand is computed elementwise from the result of another product."""
    values = deque([op.lhs])
    for _ in range(MOST_STEPS):
        if values and (source := values.popleft().op) is not None:
            if isinstance(source, type(op)):
                return True
            if source.elementwise:
                values.extend(v for v in source.operands if isinstance(v.type, ir.Tile))
    return False


def _is_multiplied(op: Dot) -> bool:
    """Whether the left operand of another product is computed elementwise from the result."""
    values = deque([op.result])
    for _ in range(MOST_STEPS):
        if values:
            value = values.popleft()
            if any(isinstance(user, type(op)) and user.lhs is value for user in value.users):
                return True
            values.extend(r for user in value.users if user.elementwise for r in user.results)
    return False


def fastest_axis(value: Value, infos: AxisMap) -> int:
    """The axis along which the elements are adjacent in memory, of the largest tile that the value
    is computed from; the last one if it comes from none."""
    found = _adjacent_along(value, infos, {})
    return len(ir.shape_of(value.type)) - 1 if found is None else found.axis


class _Adjacent(NamedTuple):
    """The elements of a load, and the axis of a value along which they are adjacent in memory."""

    elements: int
    axis: int


MOST_SOURCES = 64  # values that are looked at for what an operand is computed from


def _adjacent_along(
    value: Value, infos: AxisMap, seen: dict[Value, _Adjacent | None]
) -> _Adjacent | None:
    if value in seen or len(seen) > MOST_SOURCES:
        return seen.get(value)
    seen[value] = None
    op = value.op
    if not isinstance(value.type, ir.Tile):
        result = None
    elif isinstance(op, Load):
        result = _Adjacent(prod(value.type.shape), infos.order(op.ptr)[0])
    elif op is not None and (op.elementwise or isinstance(op, View | Join)):
        result = max(_from_operands(value, op, infos, seen), default=None)
    else:
        result = None
    seen[value] = result
    return result


def _from_operands(
    value: Value, op: Op, infos: AxisMap, seen: dict[Value, _Adjacent | None]
) -> Iterator[_Adjacent]:
    maps = op.index_maps(value.index)
    for operand, map in zip(op.operands, maps, strict=True):
        source = _adjacent_along(operand, infos, seen) if map is not None else None
        axis = None if source is None or map is None else map.moved_by(source.axis)
        if source is not None and axis is not None:
            yield source._replace(axis=axis)

"""How layouts pass through the ops that move nothing.

A thread that has the elements of an operand has those of the result, under other coordinates. So
one layout gives the other: `result_layout` from operand to result, `operand_layout` back.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir.core import Op, Value
from tilewright.ir.types import Tile, shape_of
from tilewright.layout import families, shape
from tilewright.layout.linear import LinearLayout
from tilewright.ops.arith import Constant
from tilewright.ops.shape import Arange, Broadcast, ExpandDims, Permute, Reshape, Splat

# What is as cheap to make again in another layout as to move there.
MADE_ANYWHERE = (Constant, Arange, Splat, Broadcast)


def is_tile(value: Value) -> bool:
    return isinstance(value.type, Tile)


def follows(op: Op) -> bool:
    """Whether the op works in whatever layout its result is wanted."""
    return op.elementwise or isinstance(
        op, Arange | Splat | Broadcast | ExpandDims | Permute | Reshape
    )


def result_layout(op: Op, operand: LinearLayout) -> LinearLayout | None:
    """The layout of the result, from that of an operand; None where it does not follow from it."""
    if op.elementwise:
        return operand
    match op:
        case ExpandDims():
            return shape.expand_dims(operand, op.axis)
        case Permute():
            return shape.transpose(operand, op.order)
        case Reshape() if op.shape:
            return shape.reshape(operand, op.shape)
        case _:
            return None


def operand_layout(op: Op, result: LinearLayout) -> LinearLayout:
    """The layout in which the op takes its tiles, from that of its result."""
    if op.elementwise:
        return result
    match op:
        case ExpandDims():
            return shape.drop_dim(result, op.axis)
        case Permute():
            inverse = sorted(range(len(op.order)), key=op.order.__getitem__)
            return shape.transpose(result, inverse)
        case Reshape():
            return shape.reshape(result, shape_of(op.src.type))
        case Broadcast():
            return _before_broadcast(result, shape_of(op.src.type))
        case _:
            raise AssertionError(f"{op.name} takes no tile")


def _before_broadcast(result: LinearLayout, source: Sequence[int]) -> LinearLayout:
    for axis, (before, after) in enumerate(zip(source, result.shape, strict=True)):
        if before != after:
            result = shape.expand_dims(shape.drop_dim(result, axis), axis)
    return families.without_duplicates(result)


def reduced_layout(source: LinearLayout, axis: int) -> LinearLayout:
    """Of a reduction's result: every thread that had a part of a row has its result."""
    return families.without_duplicates(families.sliced(source, axis))


def coalesced(
    extents: Sequence[int], order: Sequence[int], vector: int, lanes: int, warps: int
) -> LinearLayout:
    """Neighbouring lanes hold neighbouring vectors of `vector` elements along `order[0]`.

    Lanes fill the fastest dimension first. Warps fill the slowest first, so that a row lies within
    one warp where there are rows enough: reducing it then needs no shared memory.
    """
    rank = len(extents)
    registers, lane_grid, warp_grid = [1] * rank, [1] * rank, [1] * rank
    registers[order[0]] = min(vector, extents[order[0]])
    for dim in order:
        lane_grid[dim] = min(lanes, extents[dim] // registers[dim])
        lanes //= lane_grid[dim]
    for dim in reversed(order):
        warp_grid[dim] = min(warps, extents[dim] // (registers[dim] * lane_grid[dim]))
        warps //= warp_grid[dim]
    # Threads that are left over hold copies.
    lane_grid[order[-1]] *= lanes
    warp_grid[order[-1]] *= warps
    return families.blocked(extents, registers, lane_grid, warp_grid, order)


def per_thread(extents: Sequence[int], lanes: int, warps: int) -> int:
    """Elements of a tile that each thread has, at least."""
    return max(1, prod(extents) // (lanes * warps))

"""How layouts pass through the ops that move nothing.

A thread that has the elements of an operand has those of the result, under other coordinates. So
one layout gives the other: `result_layout` from operand to result, `operand_layout` back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from tilewright.ir.core import Op, Value
from tilewright.ir.index_map import IndexMap, Reversed
from tilewright.ir.types import Tile, shape_of
from tilewright.layout import families, gf2, shape
from tilewright.layout.linear import HARDWARE, LANE, REGISTER, WARP, LinearLayout, dim_name
from tilewright.ops.asm import InlineAsm, InlineAsmEffect
from tilewright.ops.gpu import ConvertLayout, Fetch
from tilewright.ops.histogram import Histogram
from tilewright.ops.map import Map
from tilewright.ops.reduce import Reduce, Scan
from tilewright.ops.shape import Arange, Cat, Flip, Gather, Join, Split
from tilewright.ops.sort import Sort
from tilewright.ops.view import View


def is_tile(value: Value) -> bool:
    return isinstance(value.type, Tile)


def follows(op: Op) -> bool:
    """Whether the op works in whatever layout its result is wanted."""
    return op.elementwise or isinstance(op, Arange | Fetch) or _renames(op)


def _renames(op: Op) -> bool:
    """Whether the op only gives elements other coordinates, which layouts can express."""
    if not isinstance(op, View) or isinstance(op, ConvertLayout) or not op.moves_all:
        return False
    return not any(isinstance(term, Reversed) for term in _map_of(op).axes)


def _map_of(op: View) -> IndexMap:
    (found,) = op.index_maps()
    assert found is not None
    return found


def result_layout(op: Op, operand: LinearLayout) -> LinearLayout | None:
    """The layout of the result, from that of an operand; None where it does not follow from it."""
    if op.elementwise:
        return operand
    if not isinstance(op, View) or not _renames(op):
        return None
    back = _map_of(op).inverse()
    if not back.source or not back.single:
        return None
    return shape.renamed(operand, back.source, _columns(back))


def operand_layout(op: Op, result: LinearLayout) -> LinearLayout:
    """The layout in which the op takes its tiles, from that of its result."""
    if op.elementwise:
        return result
    assert isinstance(op, View), f"{op.name} takes no tile"
    found = _map_of(op)
    layout = shape.renamed(result, found.source, _columns(found))
    return layout if found.inverse().single else families.without_duplicates(layout)


@lru_cache(1024)
def _columns(found: IndexMap) -> tuple[int, ...]:
    """For each bit of a flat index into the result, the flat index into the operand that it alone
    gives: where extents are powers of two, a map that moves elements is linear in them."""
    columns: list[int] = []
    for axis in reversed(range(len(found.target))):
        for unit in gf2.units(found.target[axis].bit_length() - 1):
            place = found.at([unit if own == axis else 0 for own in range(len(found.target))])
            assert place is not None
            flat = 0
            for coordinate, extent in zip(place, found.source, strict=True):
                flat = flat * extent + (coordinate or 0)
            columns.append(flat)
    return tuple(columns)


def reduced_layout(source: LinearLayout, axis: int) -> LinearLayout:
    """Of a reduction's result: every thread that had a part of a row has its result."""
    return families.without_duplicates(families.sliced(source, axis))


# -- ops whose layouts follow from one of their operands' -----------------------------------------


class Demands(NamedTuple):
    """The layouts in which an op takes its operands and gives its results; None for scalars."""

    operands: Sequence[LinearLayout | None]
    results: Sequence[LinearLayout | None]


_COMBINING = (
    *(Reduce, Scan, Join, Split, Cat, Flip, Gather, Sort, Histogram, Map),
    *(InlineAsm, InlineAsmEffect),
)


def combines(op: Op) -> bool:
    """Whether the layouts of all the op's tiles follow from that of its first operand."""
    return isinstance(op, _COMBINING) and bool(op.operands) and is_tile(op.operands[0])


def demands_from(op: Op, source: LinearLayout) -> Demands:
    """What an op that `combines` demands when `source` is the layout of its first operand."""
    match op:
        case Reduce():
            result = reduced_layout(source, op.axis) if is_tile(op.results[0]) else None
            return Demands([source] * len(op.srcs), [result] * len(op.results))
        case Scan():
            layout = scannable(source, op.axis)
            return Demands([layout] * len(op.srcs), [layout] * len(op.results))
        case Join():
            half = families.without_idle_threads(source)
            return Demands([half] * 2, [shape.join(half)])
        case Cat():
            half = families.without_idle_threads(source)
            return Demands([half] * 2, [cat_layout(half, op.axis)])
        case Split():
            return _split_demands(source)
        case InlineAsm() | InlineAsmEffect():
            return Demands([source] * len(op.operands), [source] * len(op.results))
        case Flip() | Sort():
            return Demands([source], [source])
        case Histogram():
            bins = spread((op.bins,), (0,), 1, source)
            return Demands([source] * len(op.operands), [bins])
        case Map():
            layout = packed_layout(source, op.pack)
            return Demands([layout] * len(op.srcs), [layout] * len(op.results))
        case Gather():
            index = source
            if shape_of(op.src.type) != shape_of(op.index.type):
                extents = shape_of(op.index.type)
                index = spread(extents, families.row_major(len(extents)), 1, source)
            return Demands([source, index], [index])
        case _:
            raise AssertionError(f"{op.name} has no such layouts")


def packed_layout(source: LinearLayout, pack: int) -> LinearLayout:
    """A layout whose registers, `pack` at a time, hold neighbours in row-major order: this one, or
    one like it."""
    wanted = tuple(1 << i for i in range(pack.bit_length() - 1))
    if source.bases(REGISTER)[: len(wanted)] == wanted:
        return source
    flat = spread((prod(source.shape),), (0,), pack, source)
    return shape.reshape(flat, source.shape)


def cat_layout(half: LinearLayout, axis: int) -> LinearLayout:
    """Of two tiles one after the other: the second one in the upper half of the registers."""
    return half * LinearLayout.identity1d(2, REGISTER, dim_name(axis))


def _split_demands(source: LinearLayout) -> Demands:
    """The pair in a register of each thread.

    Where lanes or warps hold the pair, they take other registers in exchange. If they held copies
    of a half instead, each of n splits in a row would double the work of a thread.
    """
    found = shape.split(source)
    if found is not None:
        return Demands([source], [found[0]] * 2)
    half = families.without_duplicates(shape.drop_dim(source, len(source.shape) - 1))
    half = families.without_idle_threads(half)
    return Demands([shape.join(half)], [half] * 2)


class AxisBits(NamedTuple):
    """Who holds the bits of a coordinate, the lowest first.

    Each field lists bits of one input: registers that are neighbours, then lanes, warps, and
    registers again for what is left.
    """

    near: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    far: tuple[int, ...]


def axis_order(layout: LinearLayout, axis: int) -> AxisBits | None:
    """How an axis is spread, if each bit of its coordinate is one bit of register, lane or warp.

    The order must be that of `AxisBits`, and bits that move along the axis move along no other.
    Higher bits of the coordinate are higher bits of the lane and of the warp, so that counting
    down gives the one before.
    """
    extents = layout.shape
    low = prod(extents[axis + 1 :])
    within = (extents[axis] - 1) * low
    holders: dict[int, tuple[int, int]] = {}
    for stage, name in enumerate((REGISTER, LANE, WARP)):
        for bit, column in enumerate(layout.bases(name)):
            if column & within:
                if column & (column - 1) or column in holders:
                    return None
                holders[column] = stage, bit
    found: tuple[list[int], ...] = ([], [], [], [])
    last = 0
    for unit in gf2.units(extents[axis].bit_length() - 1, low.bit_length() - 1):
        if unit not in holders:
            return None
        stage, bit = holders[unit]
        if stage == 0 and last > 0:
            stage = 3
        if stage < last:
            return None
        if stage in (1, 2) and found[stage] and bit < found[stage][-1]:
            return None
        last = stage
        found[stage].append(bit)
    return AxisBits(*(tuple(bits) for bits in found))


def scannable(source: LinearLayout, axis: int) -> LinearLayout:
    """A layout along whose axis prefixes can be formed: this one, or one like it."""
    if axis_order(source, axis) is not None:
        return source
    rank = len(source.shape)
    order = (axis, *(other for other in families.row_major(rank) if other != axis))
    return spread(source.shape, order, 1, source)


def spread(
    extents: Sequence[int], order: Sequence[int], vector: int, like: LinearLayout
) -> LinearLayout:
    """`coalesced` over as many lanes and warps as another layout has."""
    layout = coalesced(extents, order, vector, like.in_size(LANE), like.in_size(WARP))
    return layout.select_ins(*HARDWARE)


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


def run_of_a_warp(layout: LinearLayout, order: Sequence[int], vector: int) -> int:
    """Neighbours along the fastest axis that a warp accesses at once, `vector` a thread at most."""
    axis = order[0]
    step = prod(layout.shape[axis + 1 :])
    lanes = set(layout.bases(LANE))
    run = min(layout.num_consecutive(order), vector)
    while run < layout.shape[axis] and run * step in lanes:
        run *= 2
    return run

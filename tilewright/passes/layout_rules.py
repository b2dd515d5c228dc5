"""Layout rules: the relation between the layouts of an op's operands and those of its results.

Ops fall into three classes. Some work in any layout (`propagates_layout`): elementwise ops, and ops
that only rename coordinates, such as `permute`, so that each thread already holds the elements of
the result. `result_layout` maps the layout of an operand to that of the result, `operand_layout`
the reverse. For others, such as reductions, the layout of the first operand determines all others
(`derives_layouts`). The rest prescribe layouts: memory accesses, and the ops in
`layout_choice.ANCHORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeVar

from tilewright.ir.core import Op, is_tile
from tilewright.ir.index_map import IndexMap, Reversed
from tilewright.ir.op_table import OpTable
from tilewright.ir.types import shape_of
from tilewright.layout import families, gf2, shape
from tilewright.layout.linear import BLOCK, HARDWARE, LANE, REGISTER, WARP, LinearLayout, dim_name
from tilewright.ops.asm import InlineAsm, InlineAsmEffect
from tilewright.ops.gpu import ConvertLayout
from tilewright.ops.histogram import Histogram
from tilewright.ops.map import Map
from tilewright.ops.reduce import Reduce, Scan
from tilewright.ops.shape import Broadcast, Cat, Flip, Gather, Join, Split
from tilewright.ops.sort import Sort
from tilewright.ops.view import View


def propagates_layout(op: Op) -> bool:
    """Whether the op can compute its result in any layout, given operands in the layout that
    `operand_layout` returns."""
    return op.elementwise or op.free_layout or _renames(op)


def _renames(op: Op) -> bool:
    """Whether the op only renames coordinates by a map that is linear over GF(2)."""
    if not isinstance(op, View) or isinstance(op, ConvertLayout) or not op.moves_all:
        return False
    return not any(isinstance(term, Reversed) for term in _map_of(op).axes)


def _map_of(op: View) -> IndexMap:
    (result,) = op.index_maps()
    assert result is not None
    return result


def result_layout(op: Op, operand: LinearLayout) -> LinearLayout | None:
    """The layout of the result, given that of an operand; None if that does not determine it."""
    if op.elementwise:
        return operand
    if not isinstance(op, View) or not _renames(op):
        return None
    back = _map_of(op).inverse()
    if not back.source or not back.single:
        return None
    return shape.renamed(operand, back.source, _columns(back))


def repeated_layout(op: Op, operand: LinearLayout) -> LinearLayout | None:
    """A layout of a tile that is broadcast along its last axis in which each thread repeats the
    elements that it holds; None if some threads have no elements of their own."""
    if not isinstance(op, Broadcast) or operand.free_variables(LANE) | operand.free_variables(WARP):
        return None
    *outer, last = shape_of(op.result.type)
    if tuple(outer) != operand.shape[:-1]:
        return None
    return LinearLayout.identity1d(last, REGISTER, dim_name(len(outer))) * operand


def operand_layout(op: Op, result: LinearLayout) -> LinearLayout:
    """The required layout of the op's tile operands, given that of its result."""
    if op.elementwise:
        return result
    assert isinstance(op, View), f"{op.name} takes no tile"
    return _renamed_back(_map_of(op), result)


@lru_cache(1024)
def _renamed_back(found: IndexMap, result: LinearLayout) -> LinearLayout:
    """The layout of the operand of a view, given its index map and the layout of the result."""
    layout = shape.renamed(result, found.source, _columns(found))
    return layout if found.inverse().single else families.without_duplicates(layout)


@lru_cache(1024)
def _columns(found: IndexMap) -> tuple[int, ...]:
    """The columns of the index map as a matrix over GF(2), from bits of the flat index of the
    result to the flat index of the operand. The map is linear because extents are powers of two."""
    columns: list[int] = []
    for axis in reversed(range(len(found.target))):
        for unit in gf2.units(found.target[axis].bit_length() - 1):
            index = found.at([unit if own == axis else 0 for own in range(len(found.target))])
            assert index is not None
            flat = 0
            for coordinate, extent in zip(index, found.source, strict=True):
                flat = flat * extent + (coordinate or 0)
            columns.append(flat)
    return tuple(columns)


def reduced_layout(source: LinearLayout, axis: int) -> LinearLayout:
    """The layout of a reduction's result: each thread that held an element of a row holds the
    result of that row."""
    return families.without_duplicates(families.sliced(source, axis))


# -- ops whose layouts are derived from that of their first operand -------------------------------


class Demands(NamedTuple):
    """The required layouts of an op's operands, and the layouts of its results; None for
    scalars."""

    operands: Sequence[LinearLayout | None]
    results: Sequence[LinearLayout | None]


Rule = TypeVar("Rule", bound=Callable[..., Demands])
DERIVED: OpTable[Callable[[Any, LinearLayout], Demands]] = OpTable("layouts by the first operand")


def derives_layouts(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Register the layouts of op classes: a function of the op and the preferred layout of its
    first operand, a tile, which returns the layouts that its emitter requires."""
    return DERIVED.of(*classes)


def derives_from_first_operand(op: Op) -> bool:
    """Whether the layout of the op's first operand determines those of its other operands and of
    its results."""
    return type(op) in DERIVED and bool(op.operands) and is_tile(op.operands[0])


def derived_demands(op: Op, source: LinearLayout) -> Demands:
    """The layouts of an op that `derives_from_first_operand`, `source` being the preferred layout
    of that operand."""
    return DERIVED[type(op)](op, source)


@derives_layouts(InlineAsm, InlineAsmEffect, Flip, Sort)
def _same(op: Op, source: LinearLayout) -> Demands:
    return Demands([source] * len(op.operands), [source] * len(op.results))


@derives_layouts(Reduce)
def _reduced(op: Reduce, source: LinearLayout) -> Demands:
    result = reduced_layout(source, op.axis) if is_tile(op.results[0]) else None
    return Demands([source] * len(op.srcs), [result] * len(op.results))


@derives_layouts(Scan)
def _scanned(op: Scan, source: LinearLayout) -> Demands:
    return _same(op, scannable(source, op.axis))


@derives_layouts(Map)
def _mapped(op: Map, source: LinearLayout) -> Demands:
    return _same(op, packed_layout(source, op.pack))


@derives_layouts(Join)
def _joined(op: Join, source: LinearLayout) -> Demands:
    half = families.without_idle_threads(source)
    return Demands([half] * 2, [shape.join(half)])


@derives_layouts(Cat)
def _concatenated(op: Cat, source: LinearLayout) -> Demands:
    half = families.without_idle_threads(source)
    return Demands([half] * 2, [cat_layout(half, op.axis)])


@derives_layouts(Split)
def _split(op: Split, source: LinearLayout) -> Demands:
    """The pair in a register of each thread.

    Where lanes or warps hold the pair, they take other registers in exchange. If they held copies
    of a half instead, each of n splits in a row would double the work of a thread.
    """
    found = shape.split(source)
    if found is not None:
        return Demands([source], [found[0]] * 2)
    half = families.without_duplicates(shape.drop_dim(source, len(source.shape) - 1))
    half = families.without_idle_threads(_lowest_last(half))
    return Demands([shape.join(half)], [half] * 2)


def _lowest_last(layout: LinearLayout) -> LinearLayout:
    """The layout with its register bits reordered: first those along the last axis, from the
    highest to the lowest, as a transform that splits one bit after the other splits the lowest
    last; then the others, which no transform of rows splits."""
    if not layout.shape:
        return layout
    last = layout.shape[-1]
    columns = {name: list(layout.bases(name)) for name, _ in layout.ins}
    columns[REGISTER].sort(key=lambda column: (column >= last, -column))
    return LinearLayout.from_columns(columns, {name: 1 << count for name, count in layout.outs})


@derives_layouts(Histogram)
def _counted(op: Histogram, source: LinearLayout) -> Demands:
    bins = spread((op.bins,), (0,), 1, source)
    return Demands([source] * len(op.operands), [bins])


@derives_layouts(Gather)
def _gathered(op: Gather, source: LinearLayout) -> Demands:
    index = source
    if shape_of(op.src.type) != shape_of(op.index.type):
        extents = shape_of(op.index.type)
        index = spread(extents, families.row_major(len(extents)), 1, source)
    return Demands([source, index], [index])


def packed_layout(source: LinearLayout, pack: int) -> LinearLayout:
    """A layout in which groups of `pack` registers hold elements that are consecutive in row-major
    order: `source` if it does, otherwise one over the same lanes and warps."""
    consecutive = tuple(1 << i for i in range(pack.bit_length() - 1))
    if source.bases(REGISTER)[: len(consecutive)] == consecutive:
        return source
    flat = spread((prod(source.shape),), (0,), pack, source)
    return shape.reshape(flat, source.shape)


def cat_layout(half: LinearLayout, axis: int) -> LinearLayout:
    """The layout of a concatenation: the second tile is in the upper half of the registers."""
    return half * LinearLayout.identity1d(2, REGISTER, dim_name(axis))


class AxisBits(NamedTuple):
    """The bits of register, lane and warp that hold the bits of a coordinate, least significant
    bits first: `near` register bits, then lane bits, warp bits, and `far` register bits."""

    near: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    far: tuple[int, ...]


def axis_order(layout: LinearLayout, axis: int) -> AxisBits | None:
    """The distribution of an axis over registers, lanes and warps, if a scan can use it.

    Each bit of the coordinate must be one bit of register, lane or warp, which affects no other
    axis, in the order of `AxisBits`. Lane bits, and warp bits, must be in ascending order, so that
    the thread that holds the preceding elements has the preceding index. None otherwise.
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
    """A layout in which a scan along `axis` can be computed (`axis_order`): `source` if possible,
    otherwise one over the same lanes and warps."""
    if axis_order(source, axis) is not None:
        return source
    rank = len(source.shape)
    order = (axis, *(other for other in families.row_major(rank) if other != axis))
    return spread(source.shape, order, 1, source)


def spread(
    extents: Sequence[int], order: Sequence[int], vector: int, like: LinearLayout
) -> LinearLayout:
    """`coalesced` with the numbers of lanes and warps of another layout."""
    layout = coalesced(extents, order, vector, like.in_size(LANE), like.in_size(WARP))
    return layout.select_ins(*HARDWARE)


def coalesced(
    extents: Sequence[int],
    order: Sequence[int],
    vector: int,
    lanes: int,
    warps: int,
    rows: int = 1,
    warp_order: Sequence[int] = (),
) -> LinearLayout:
    """A layout in which consecutive lanes hold consecutive vectors of `vector` elements along
    `order[0]`, the fastest dimension; each of `rows` consecutive rows, if there is more than one.

    Lanes are distributed over the fastest dimension first. Warps are distributed over the slowest
    dimension first, so that, if there are enough rows, each row is within one warp and its
    reduction does not need shared memory; or in another order of the dimensions, if given.
    """
    rank = len(extents)
    registers, lane_grid, warp_grid = [1] * rank, [1] * rank, [1] * rank
    registers[order[0]] = min(vector, extents[order[0]])
    if rows > 1:
        registers[order[1]] = rows
    for dim in order:
        lane_grid[dim] = min(lanes, extents[dim] // registers[dim])
        lanes //= lane_grid[dim]
    for dim in warp_order or reversed(order):
        warp_grid[dim] = min(warps, extents[dim] // (registers[dim] * lane_grid[dim]))
        warps //= warp_grid[dim]
    # The remaining threads hold duplicates.
    lane_grid[order[-1]] *= lanes
    warp_grid[order[-1]] *= warps
    return families.blocked(extents, registers, lane_grid, warp_grid, order)


LINE_BYTES = 128  # of memory, which a warp should access as a whole


def coalesced_within(
    warps: LinearLayout, order: Sequence[int], vector: int, size: int
) -> LinearLayout | None:
    """A layout like `coalesced`, in which each warp holds the elements that it holds in another.

    Consecutive lanes hold a line of memory, then the same line of further rows. None if warps do
    not have whole rows along `order[0]`, or several threads hold an element.

    Args:
        warps: the other layout.
        vector: consecutive elements of a lane.
        size: bytes of an element in memory.
    """
    lanes = warps.in_bits(LANE)
    own = [*warps.bases(REGISTER), *warps.bases(LANE)]
    fastest = (warps.shape[order[0]] - 1) * prod(warps.shape[order[0] + 1 :])
    columns = {*own, *warps.bases(WARP)}
    if len(columns) < warps.total_in_bits or any(c.bit_count() != 1 for c in columns):
        return None
    if any(column & fastest for column in warps.bases(WARP)):
        return None
    along = [sorted(c for c in own if _axis_of(warps, c) == axis) for axis in order]
    near, row = along[0][: vector.bit_length() - 1], along[0][vector.bit_length() - 1 :]
    across = [column for columns in along[1:] for column in columns]
    line = max(LINE_BYTES // (vector * size), 1).bit_length() - 1
    line = min(max(line, lanes - len(across)), len(row))
    spread = [*row[:line], *across]
    if len(spread) < lanes:
        return None
    found = {
        REGISTER: [*near, *row[line:], *spread[lanes:]],
        LANE: spread[:lanes],
        WARP: warps.bases(WARP),
        BLOCK: (),
    }
    return LinearLayout.from_columns(found, {d.name: 1 << d.bits for d in warps.outs})


def _axis_of(layout: LinearLayout, column: int) -> int:
    return next(axis for axis, at in enumerate(layout.coordinates(column)) if at)


def per_thread(extents: Sequence[int], lanes: int, warps: int) -> int:
    """The minimum number of elements of a tile per thread."""
    return max(1, prod(extents) // (lanes * warps))


def warp_run(layout: LinearLayout, order: Sequence[int], vector: int) -> int:
    """The number of consecutive elements along the fastest axis that one access of a warp covers,
    at most `vector` per thread."""
    axis = order[0]
    step = prod(layout.shape[axis + 1 :])
    lanes = set(layout.bases(LANE))
    run = min(layout.num_consecutive(order), vector)
    while run < layout.shape[axis] and run * step in lanes:
        run *= 2
    return run

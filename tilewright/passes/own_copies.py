"""Loads that become asynchronous copies by the threads that hold the elements.

Each thread copies to shared memory the elements that it later reads, in the layout of the load, so
the copies need a wait, but no barrier. The elements of a slot are ordered by vector, lane and warp,
so there are no bank conflicts either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tilewright.analysis.axis_info import AxisMap
from tilewright.ir.core import Function, Value
from tilewright.ir.types import Shared, dtype_of, shape_of
from tilewright.layout.families import without_duplicates
from tilewright.layout.linear import LANE, OFFSET, REGISTER, WARP, LinearLayout, log2
from tilewright.ops.arith import Select, is_positive_zero
from tilewright.ops.control import For
from tilewright.ops.gpu import Fetch
from tilewright.ops.memory import Load
from tilewright.passes.software_pipelining import LoopRewrite, is_unmodified

MIN_COPY_BYTES = 4  # the minimum size of one asynchronous copy
MAX_COPY_BYTES = 16


class OwnCopy(NamedTuple):
    """A load, the layout of its slots, and the bytes of one copy of a thread."""

    load: Load
    slot: LinearLayout
    copy_bytes: int

    @property
    def type(self) -> Shared:
        kind = self.load.result.type
        return Shared(shape_of(kind), dtype_of(kind))


def own_copy(fn: Function, loop: For, load: Load, infos: AxisMap) -> OwnCopy | str:
    """The copy that replaces a load of a loop, or the reason why there is none, "" for scalars and
    volatile loads."""
    tile = load.result.layout
    if load.volatile or tile is None:
        return ""
    kind = dtype_of(load.result.type)
    size = kind.nbytes_in_memory
    length = min(adjacent_elements(load, infos)[1], MAX_COPY_BYTES // size)
    if tile.free_variables(LANE) or tile.free_variables(WARP) or kind.is_bool():
        return "threads hold copies of elements: they are loaded into registers"
    if length * size < MIN_COPY_BYTES:
        return "threads do not hold enough adjacent elements for a copy"
    if not is_unmodified(fn, loop, load.ptr):
        return "the loop may write the same memory"
    return OwnCopy(load, _slot_layout(tile, length), length * size)


def _slot_layout(tile: LinearLayout, length: int) -> LinearLayout:
    """Offsets count the elements of a copy, then lanes, warps, and the remaining registers."""
    registers = without_duplicates(tile).bases(REGISTER)
    within = log2(length)
    columns = [*registers[:within], *tile.bases(LANE), *tile.bases(WARP), *registers[within:]]
    return LinearLayout.from_columns(
        {OFFSET: columns}, {name: 1 << count for name, count in tile.outs}
    )


def adjacent_elements(load: Load, infos: AxisMap) -> tuple[int, int]:
    """An axis, and the number of elements along it that each thread holds in successive registers
    and that are adjacent in memory, aligned, and masked off together."""
    layout = load.result.layout
    assert layout is not None
    axis = infos[load.ptr].order[0]
    size = dtype_of(load.result.type).nbytes_in_memory
    length = infos.access_length(load.ptr, load.mask, axis, size)
    return axis, min(length, layout.num_consecutive((axis,)))


def fetch_own(rewrite: LoopRewrite, load: Load, slot: Value) -> Value:
    """Insert the fetch of the tile that a load would have loaded."""
    op = Fetch(slot, own=True)
    op.loc = load.loc
    return rewrite.value(op, load.result.layout)


def with_other(
    rewrite: LoopRewrite, load: Load, tile: Value, mapping: Mapping[Value, Value]
) -> Value:
    """The tile with `other` in lanes that are masked off, where copies write 0."""
    if load.mask is None or load.other is None or is_positive_zero(load.other):
        return tile
    mask, other = (mapping.get(v, v) for v in (load.mask, load.other))
    op = Select(mask, tile, other)
    op.loc = load.loc
    return rewrite.value(op, load.result.layout)

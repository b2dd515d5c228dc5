"""Software pipelining of loads that a loop computes with, as its `num_stages` specifies.

Input: laid-out IR in which the operands of products are already pipelined. A load qualifies if it
is in an innermost loop with a `num_stages` S > 1 of its own (`tl.range(num_stages=S)`), no two
threads hold the same element, and each thread can copy at least `MIN_COPY_BYTES` at once. Output:
for each such load a buffer of S - 1 slots; before the loop, the asynchronous copies of the first
S - 1 iterations; in the loop, a wait for the copies of this iteration, loads of the tile from its
slot, and the start of the copies of iteration i + S - 1 to the same slot.

Each thread copies the elements that it holds, so the pipeline has no barriers. The elements of a
buffer are ordered by vector, lane and warp, so there are no bank conflicts either. Loads that do
not qualify are left to `prefetch_loads`. Linear in the size of the loops, plus loads times stores
for the alias analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign
from typing import NamedTuple

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Shared, dtype_of, shape_of
from tilewright.layout.families import without_duplicates
from tilewright.layout.linear import LANE, OFFSET, REGISTER, WARP, LinearLayout, log2
from tilewright.lowering.simt.shared_memory import ALIGN, allocated_bytes
from tilewright.ops.arith import Add, Cmp, Select, constant_value
from tilewright.ops.control import For, Yield
from tilewright.ops.gpu import Allocate, CommitCopies, CopyAsync, Fetch, Slot, WaitCopies
from tilewright.ops.memory import Load
from tilewright.ops.roles import Roles
from tilewright.passes.pipeline_loads import MIN_COPY_BYTES, adjacent_elements
from tilewright.passes.software_pipelining import (
    LoopRewrite,
    Slice,
    backward_slice,
    is_unmodified,
)

NAME = "stream_loads"
MAX_COPY_BYTES = 16


class Stream(NamedTuple):
    """A load, the layout of its slots, and the bytes of one copy of a thread."""

    load: Load
    slot: LinearLayout
    copy_bytes: int

    @property
    def type(self) -> Shared:
        kind = self.load.result.type
        return Shared(shape_of(kind), dtype_of(kind))


@compiler_pass(NAME)
def stream_loads(fn: Function, ctx: PassContext) -> bool:
    """Replace loads in loops with a `num_stages` by asynchronous copies for later iterations; see
    the module docstring.

    Needs: laid-out IR, after `pipeline_loads`.  Leaves: all other loads to `prefetch_loads`.
    """
    loops = [op for op in fn.walk() if isinstance(op, For) and op.num_stages > 1]
    infos = axis_info(fn) if loops else AxisMap()
    changed = False
    for loop in loops:
        found = _find(fn, loop, infos, ctx)
        if found is not None:
            _report(found[1], found[2], ctx)
            _Stream(loop, *found).rewrite()
            ctx.count("streamed", len(found[1]))
            changed = True
    return changed


def _report(streams: Sequence[Stream], slots: int, ctx: PassContext) -> None:
    for stream in streams:
        ctx.did(
            NAME,
            f"starts {slots} iteration{'s' * (slots > 1)} ahead, by asynchronous copies of "
            f"{stream.copy_bytes} bytes into {slots} buffer{'s' * (slots > 1)} of "
            f"{stream.type.nbytes / 1024:g} KiB in shared memory",
            stream.load.loc,
        )


# -- analysis -------------------------------------------------------------------------------------


def _find(
    fn: Function, loop: For, infos: AxisMap, ctx: PassContext
) -> tuple[Slice, list[Stream], int] | None:
    """The slice that the addresses depend on, the loads, and the number of slots."""
    # The copies of operands of products are counted by waits in the same loop.
    if any(isinstance(op, For | CopyAsync | Roles) for op in loop.body.walk()):
        return None
    loads = [op for op in loop.body if isinstance(op, Load)]
    streams = [s for load in loads if (s := _stream(fn, loop, load, infos, ctx)) is not None]
    if not streams:
        return None
    ahead = backward_slice(loop, [v for s in streams for v in s.load.operands])
    if ahead is None:
        ctx.missed(NAME, "an address depends on memory that the loop reads", loop.loc)
        return None
    slots = _slots_that_fit(fn, loop, streams, ctx)
    return (ahead, streams, slots) if slots else None


def _stream(fn: Function, loop: For, load: Load, infos: AxisMap, ctx: PassContext) -> Stream | None:
    tile = load.result.layout
    if load.volatile or tile is None:
        return None
    kind = dtype_of(load.result.type)
    size = kind.nbytes_in_memory
    length = min(adjacent_elements(load, infos)[1], MAX_COPY_BYTES // size)
    if tile.free_variables(LANE) or tile.free_variables(WARP) or kind.is_bool():
        reason = "threads hold copies of elements: they are loaded into registers"
    elif length * size < MIN_COPY_BYTES:
        reason = "threads do not hold enough adjacent elements for a copy"
    elif not is_unmodified(fn, loop, load.ptr):
        reason = "the loop may write the same memory"
    else:
        return Stream(load, _slot_layout(tile, length), length * size)
    ctx.missed(NAME, reason, load.loc)
    return None


def _slot_layout(tile: LinearLayout, length: int) -> LinearLayout:
    """Offsets count the elements of a copy, then lanes, warps, and the remaining registers."""
    registers = without_duplicates(tile).bases(REGISTER)
    within = log2(length)
    columns = [*registers[:within], *tile.bases(LANE), *tile.bases(WARP), *registers[within:]]
    return LinearLayout.from_columns(
        {OFFSET: columns}, {name: 1 << count for name, count in tile.outs}
    )


def _slots_that_fit(fn: Function, loop: For, streams: Sequence[Stream], ctx: PassContext) -> int:
    """The number of slots: one less than the stages, or fewer if they exceed shared memory."""
    limit, taken = ctx.gpu.shared_bytes, allocated_bytes(fn)
    slots = loop.num_stages - 1
    while slots and taken + sum(_aligned(slots * s.type.nbytes) for s in streams) > limit:
        slots -= 1
    if slots < loop.num_stages - 1:
        ctx.missed(
            NAME,
            f"num_stages is {slots + 1} instead of {loop.num_stages}: more buffers do not fit into "
            f"{limit / 1024:g} KiB of shared memory",
            loop.loc,
        )
    return slots


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


# -- transformation -------------------------------------------------------------------------------


class _Stream(LoopRewrite):
    """The rewrite of one loop."""

    def __init__(self, loop: For, ahead: Slice, streams: Sequence[Stream], slots: int) -> None:
        super().__init__(loop, ahead)
        self.streams = streams
        self.slots = slots
        self.buffers: list[Value] = []

    def rewrite(self) -> None:
        for stream in self.streams:
            type = Shared((self.slots, *stream.type.shape), stream.type.element)
            self.buffers.append(self.add(Allocate(type)).results[0])
        carried = [self.number(0), *self.first_iterations(self.slots, self._first)]
        self.replace(carried, self._new_body(carried))
        self.add(WaitCopies(0))
        self.old.erase()

    def _first(self, number: int, index: Value, values: Sequence[Value]) -> list[Value]:
        """Start the copies of an iteration before the loop."""
        slots = self._slots(self.number(number))
        return self._copies(index, values, slots, self.exists(self.old.start, number))

    def _slots(self, index: Value) -> list[Value]:
        return [
            self.value(Slot(buffer, index), stream.slot)
            for buffer, stream in zip(self.buffers, self.streams, strict=True)
        ]

    def _copies(
        self, index: Value, values: Sequence[Value], slots: Sequence[Value], exists: Value
    ) -> list[Value]:
        """Start the copies of an iteration. Returns the loop-carried values of the next one."""
        mapping, following = self.compute(index, values)
        for (load, *_), slot in zip(self.streams, slots, strict=True):
            mask = self.mask(load, mapping, exists)
            self.add(CopyAsync(mapping.get(load.ptr, load.ptr), slot, mask)).loc = load.loc
        self.add(CommitCopies())
        return following

    def _new_body(self, carried: Sequence[Value]) -> Region:
        """The new body, which also carries the slot of the iteration, and the state of the
        iteration ahead."""
        old = self.old.body
        body, (slot, index, *values) = self.body_with(carried)
        mapping = dict(zip(old.args, body.args, strict=False))
        end = Yield([])
        body.append(end)
        self.anchor = end
        self.add(WaitCopies(self.slots - 1))
        slots = self._slots(slot)
        tiles: dict[Op, Value] = {
            stream.load: self._fetch(stream.load, place)
            for stream, place in zip(self.streams, slots, strict=True)
        }
        # The slots have been read by this thread, which is the only one that writes them.
        following = self._copies(index, values, slots, self.exists(body.args[0], self.slots))
        for op in old:
            if isinstance(op, Load) and op in tiles:
                mapping[op.result] = self._filled(op, tiles[op], mapping)
            elif not op.terminator:
                self.add(op.clone(mapping))
        yielded = [mapping.get(v, v) for v in old.terminator.operands]
        next_index = self.value(Add(index, self.old.step))
        end.add_operands([*yielded, self._after(slot), next_index, *following])
        end.spans = (len(end.operands),)
        return body

    def _fetch(self, load: Load, slot: Value) -> Value:
        op = Fetch(slot, own=True)
        op.loc = load.loc
        return self.value(op, load.result.layout)

    def _filled(self, load: Load, tile: Value, mapping: dict[Value, Value]) -> Value:
        """The tile with `other` in lanes that are masked off, where copies write 0."""
        if load.mask is None or load.other is None or _is_positive_zero(load.other):
            return tile
        mask, other = (mapping.get(v, v) for v in (load.mask, load.other))
        op = Select(mask, tile, other)
        op.loc = load.loc
        return self.value(op, load.result.layout)

    def _after(self, slot: Value) -> Value:
        if self.slots == 1:
            return slot
        following = self.value(Add(slot, self.number(1)))
        over = self.value(Cmp(following, self.number(self.slots), "eq"))
        return self.value(Select(over, self.number(0), following))


def _is_positive_zero(value: Value) -> bool:
    constant = constant_value(value)
    return constant == 0 and copysign(1, constant) > 0

"""Software pipelining of loads that are not operands of products, in loops with an explicit
`num_stages`.

Input: laid-out IR in which the operands of products are already pipelined. A load qualifies if it
is in an innermost loop with a `num_stages` S > 1 of its own (`tl.range(num_stages=S)`), no two
threads hold the same element, and each thread can copy at least `MIN_COPY_BYTES` at once. Output:
for each such load a buffer of S - 1 slots; before the loop, the asynchronous copies of the first
S - 1 iterations; in the loop, a wait for the copies of this iteration, loads of the tile from its
slot, and the start of the copies of iteration i + S - 1 to the same slot.

Each thread copies the elements that it holds (`own_copies`), so the pipeline has no barriers. Loads
that do not qualify are left to `prefetch_loads`. Linear in the size of the loops, plus loads times
stores for the alias analysis.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Shared
from tilewright.lowering.simt.shared_memory import ALIGN, allocated_bytes
from tilewright.ops.arith import Add, Cmp, Select
from tilewright.ops.control import For, Yield
from tilewright.ops.gpu import Allocate, CommitCopies, CopyAsync, Slot, WaitCopies
from tilewright.ops.memory import Load
from tilewright.ops.roles import Roles
from tilewright.passes.own_copies import OwnCopy, fetch_own, own_copy, with_other
from tilewright.passes.software_pipelining import (
    LoopRewrite,
    Slice,
    backward_slice,
)

NAME = "stream_loads"


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


def _report(streams: Sequence[OwnCopy], slots: int, ctx: PassContext) -> None:
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
) -> tuple[Slice, list[OwnCopy], int] | None:
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


def _stream(
    fn: Function, loop: For, load: Load, infos: AxisMap, ctx: PassContext
) -> OwnCopy | None:
    result = own_copy(fn, loop, load, infos)
    if isinstance(result, str):
        if result:
            ctx.missed(NAME, result, load.loc)
        return None
    return result


def _slots_that_fit(fn: Function, loop: For, streams: Sequence[OwnCopy], ctx: PassContext) -> int:
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

    def __init__(self, loop: For, ahead: Slice, streams: Sequence[OwnCopy], slots: int) -> None:
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
        mapping, following = self.compute(index, values, exists)
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
            stream.load: fetch_own(self, stream.load, place)
            for stream, place in zip(self.streams, slots, strict=True)
        }
        # The slots have been read by this thread, which is the only one that writes them.
        following = self._copies(index, values, slots, self.exists_after(body.args[0], self.slots))
        for op in old:
            if isinstance(op, Load) and op in tiles:
                mapping[op.result] = with_other(self, op, tiles[op], mapping)
            elif not op.terminator:
                self.add(op.clone(mapping))
        yielded = [mapping.get(v, v) for v in old.terminator.operands]
        next_index = self.value(Add(index, self.old.step))
        end.add_operands([*yielded, self._after(slot), next_index, *following])
        end.spans = (len(end.operands),)
        return body

    def _after(self, slot: Value) -> Value:
        if self.slots == 1:
            return slot
        following = self.value(Add(slot, self.number(1)))
        over = self.value(Cmp(following, self.number(self.slots), "eq"))
        return self.value(Select(over, self.number(0), following))

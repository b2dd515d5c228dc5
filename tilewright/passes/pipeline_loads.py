"""Software pipelining of loads through shared memory, by asynchronous copies.

Input: laid-out IR. A load qualifies if its only use is a `gpu.share` in the same loop and each
thread can copy at least `MIN_COPY_BYTES` at once. Output: for each such load a buffer of S =
`num_stages` slots; before the loop, the copies of the first S - 1 iterations; in the loop, a wait
for the copies of this iteration, and the start of those of iteration i + S - 1. These write the
slot that iteration i - 1 read, so they follow a barrier.

If one slot fewer increases occupancy, there are S - 1 slots, and the copies of iteration i + S - 1
write the slot that iteration i has read, after its products and another barrier. If there are at
most S iterations, all copies start before the loop, and each iteration has a slot.

Other tiles that such a loop loads, such as quantised operands, which are converted before they are
shared, are also copied ahead if each thread can copy its own elements (`own_copies`), and if an
iteration is too short to hide the memory latency: they are loaded from their slots in the layout of
the load. Linear in the size of the loops, plus loads times stores for the alias analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass, optional_part
from tilewright.ir.types import Shared, dtype_of, shape_of
from tilewright.layout.linear import OFFSET, REGISTER, LinearLayout
from tilewright.ops.arith import Add, Cmp, Select
from tilewright.ops.control import Barrier, For, Yield
from tilewright.ops.gpu import Allocate, CommitCopies, CopyAsync, Share, Slot, WaitCopies
from tilewright.ops.memory import Load
from tilewright.ops.roles import Roles
from tilewright.passes.layout_choice import ANCHORS
from tilewright.passes.own_copies import (
    MIN_COPY_BYTES,
    OwnCopy,
    adjacent_elements,
    fetch_own,
    own_copy,
    with_other,
)
from tilewright.passes.prefetch_loads import MAX_BYTES
from tilewright.passes.software_pipelining import (
    LoopRewrite,
    Slice,
    backward_slice,
    is_unmodified,
    shares_of,
    stages_of,
)
from tilewright.rewrites.control import known_trips

NAME = "pipeline_loads"
OWN_COPIES = optional_part("own_copies")
COPIES_BEFORE = optional_part("copies_before_loops")
LATE_COPIES = optional_part("late_copies")

FEW_ROWS = 64
"""Products with fewer rows or columns in a loop use each element of the other operand so few times
that an iteration ends before the loads of the next. Of others, the copies are worth it only if a
second program is still resident. On an H200, copies of int4 weights ahead took a product of 16 rows
from 74 to 45 µs, one of 128 x 128 that takes 80 KiB from 158 to 140, and one that takes 162 KiB
from 128 to 151."""
LONG_TILE = 64
"""More elements of a thread take as long to compute with as a load takes: one iteration ahead, as
`prefetch_loads` has them, is enough."""
SMALL_TILE = 8
"""Fewer bytes of a thread, such as those of scales, take fewer instructions in registers."""
FEW_WARPS = 16
"""With more resident warps, others compute while one waits for its copies."""
FEWEST_PROGRAMS = 3
"""A second barrier in each iteration costs more where the warps of two programs wait for it."""
OTHER_REGISTERS = 64
"""Of a thread, beside the sums that a loop carries: fragments of operands, addresses."""


class Pipeline(NamedTuple):
    """The copies that a loop issues ahead.

    Attributes:
        ahead: the slice that the addresses depend on.
        shares: those whose loads become copies to their buffers.
        own: the loads that become copies by the threads that hold the elements.
    """

    ahead: Slice
    shares: list[Share]
    own: list[OwnCopy]

    @property
    def nbytes(self) -> int:
        """The size of one slot of each tile."""
        kinds = [share.result.type for share in self.shares]
        shared = sum(kind.nbytes for kind in kinds if isinstance(kind, Shared))
        return shared + sum(copy.type.nbytes for copy in self.own)


class _Schedule(NamedTuple):
    """When copies start, and where to.

    Attributes:
        distance: the iterations from a copy to its use.
        slots: for the tiles of as many iterations.
        late: whether copies write the slot that the iteration has read, not one more.
        before: whether all copies start before the loop.
    """

    distance: int
    slots: int
    late: bool = False
    before: bool = False


@compiler_pass(NAME)
def pipeline_loads(fn: Function, ctx: PassContext) -> bool:
    """Replace loads to shared memory in loops by asynchronous copies for later iterations; see the
    module docstring."""
    loops = [op for op in fn.walk() if isinstance(op, For) and stages_of(op, ctx) > 1]
    loops = [loop for loop in loops if shares_of(loop)]
    if not loops:
        return False
    infos = axis_info(fn)
    changed = False
    for loop in loops:
        found = find_pipeline(fn, loop, infos, ctx)
        if found is not None:
            schedule = _schedule(loop, found, ctx)
            _report(found, schedule, infos, ctx)
            _Pipeline(loop, found, schedule).rewrite()
            ctx.count("pipelined")
            ctx.count("late", schedule.late)
            changed = True
    return changed


def _report(found: Pipeline, schedule: _Schedule, infos: AxisMap, ctx: PassContext) -> None:
    distance, slots = schedule.distance, schedule.slots
    ahead = f"{distance} iteration{'s' * (distance > 1)} ahead"
    copies = [
        (_load_of(s), s.result.type, _copy_bytes(s, _load_of(s), infos)) for s in found.shares
    ]
    copies += [(copy.load, copy.type, copy.copy_bytes) for copy in found.own]
    for load, kind, size in copies:
        assert isinstance(kind, Shared)
        ctx.did(
            NAME,
            f"starts {ahead}, by asynchronous copies of {size} bytes "
            f"into {slots} buffers of {kind.nbytes / 1024:g} KiB in shared memory",
            load.loc,
        )


# -- analysis -------------------------------------------------------------------------------------


def find_pipeline(fn: Function, loop: For, infos: AxisMap, ctx: PassContext) -> Pipeline | None:
    """The copies that a loop can issue ahead; None if there are none."""
    shared = shares_of(loop)  # the share of a loop-invariant tile is hoisted by licm
    reasons = {op: _why_not(fn, loop, op, infos) for op in shared}
    shares = [op for op, reason in reasons.items() if not reason]
    own = _own_copies(fn, loop, shares, infos, ctx) if shared else []
    for op, reason in reasons.items():
        if reason and all(copy.load is not op.src.op for copy in own):
            ctx.missed(NAME, reason, op.loc)
    if not shares and not own:
        return None
    loads = [*map(_load_of, shares), *(copy.load for copy in own)]
    ahead = backward_slice(loop, [v for load in loads for v in load.operands], tables_of=fn)
    if ahead is None:
        ctx.missed(NAME, "an address depends on memory that the loop reads", loop.loc)
        return None
    return Pipeline(ahead, shares, own)


def _schedule(loop: For, found: Pipeline, ctx: PassContext) -> _Schedule:
    """When the copies of a loop start. Those of a loop with at most as many iterations as stages
    start before it: each iteration has a slot, and there are no copies in the loop."""
    if (trips := trips_before(loop, ctx)) is not None:
        return _Schedule(trips, trips, before=True)
    stages = stages_of(loop, ctx)
    late = _may_be_late(loop) and _gains_programs(loop, found, stages, ctx)
    return _Schedule(stages - 1, stages - late, late=late)


def trips_before(loop: For, ctx: PassContext) -> int | None:
    """The iterations of a loop if the copies of all of them start before it; else None."""
    trips = known_trips(loop)
    if trips is None or trips > stages_of(loop, ctx) or not ctx.enabled(COPIES_BEFORE):
        return None
    return trips


def waits_for_products(loop: For) -> bool:
    """Whether no product is asynchronous."""
    return not any(op.in_flight for op in loop.body)


def resident_by_registers(loop: For, ctx: PassContext) -> int:
    """The programs for which a multiprocessor has registers: for the tiles that the loop carries,
    other results of its products, and `OTHER_REGISTERS`."""
    gpu = ctx.gpu
    products = [v for op in loop.body if type(op) in ANCHORS for v in op.results]
    carried = set(loop.body.terminator.operands)
    tiles = [*loop.body.args, *(v for v in products if v not in carried)]
    layouts = [v.layout for v in tiles if v.layout is not None]
    needed = sum(layout.in_size(REGISTER) for layout in layouts) + OTHER_REGISTERS
    return gpu.registers // (gpu.threads * needed)


def _may_be_late(loop: For) -> bool:
    """Whether the readers of the slots have read them when the next op starts, and consist of a
    single product: after several products, copies start too late for the next iteration."""
    products = sum(type(op) in ANCHORS for op in loop.body)
    return products == 1 and waits_for_products(loop)


def _gains_programs(loop: For, found: Pipeline, stages: int, ctx: PassContext) -> bool:
    """Whether one slot fewer increases the number of resident programs, from a few but not very
    few: see docs/decisions/0077."""
    if stages < 3 or not ctx.enabled(LATE_COPIES):
        return False
    most = resident_by_registers(loop, ctx)
    memory = ctx.gpu.shared_bytes // found.nbytes
    now, then = (min(most, memory // slots) for slots in (stages, stages - 1))
    return now >= FEWEST_PROGRAMS and now * ctx.gpu.warps < FEW_WARPS and now < then


def _own_copies(
    fn: Function, loop: For, shares: Sequence[Share], infos: AxisMap, ctx: PassContext
) -> list[OwnCopy]:
    """The other tiles that are worth copying ahead, if the slots of all fit into shared memory."""
    if not ctx.enabled(OWN_COPIES) or _in_role(loop):
        return []
    loads = set[Op](map(_load_of, shares))
    ahead = backward_slice(loop, [v for op in loads for v in op.operands], tables_of=fn)
    loads.update(ahead.body if ahead is not None else ())  # tables are loaded as others need them
    others = [op for op in loop.body if isinstance(op, Load) and op not in loads]
    others = [load for load in others if _is_short(load)]
    found = [own_copy(fn, loop, load, infos) for load in others]
    own = [
        copy
        for copy in found
        if isinstance(copy, OwnCopy)
        and backward_slice(loop, copy.load.operands, tables_of=fn) is not None
    ]
    slot = Pipeline(Slice([], []), list(shares), own).nbytes
    slots = 2 if _has_few_rows(loop) else _fewest_programs(ctx) * stages_of(loop, ctx)
    return own if slots * slot <= ctx.gpu.shared_bytes else []


def _fewest_programs(ctx: PassContext) -> int:
    """The programs that must still be resident: two, and as many as may be by all registers that a
    thread can have."""
    return max(2, ctx.gpu.registers // (ctx.gpu.threads * ctx.gpu.thread_registers))


def _in_role(op: Op) -> bool:
    """Whether the operands of products are copied by other warps."""
    parent = op.parent_op()
    return parent is not None and (isinstance(parent, Roles) or _in_role(parent))


def _has_few_rows(loop: For) -> bool:
    """Whether the matrices that a loop carries, the sums of its products, are narrow."""
    shapes = [shape_of(v.type) for v in loop.body.args if v.layout is not None]
    return all(min(shape) < FEW_ROWS for shape in shapes if len(shape) == 2)


def _is_short(load: Load) -> bool:
    """Whether threads compute with a tile in less time than its load takes, or can't prefetch it
    into registers."""
    layout = load.result.layout
    if layout is None:
        return False
    elements = layout.in_size(REGISTER)
    size = elements * dtype_of(load.result.type).nbytes_in_memory
    return size >= SMALL_TILE and (elements <= LONG_TILE or size > MAX_BYTES)


def _load_of(share: Share) -> Load:
    load = share.src.op
    assert isinstance(load, Load)
    return load


def _why_not(fn: Function, loop: For, share: Share, infos: AxisMap) -> str:
    """The reason why the load of a share can't become a copy; "" if it can."""
    load = share.src.op
    if not isinstance(load, Load) or load.parent is not loop.body:
        return "the operand is computed, not loaded, in the loop"
    if len(share.src.users) != 1:
        return "the loaded tile has other uses too"
    if load.other is not None or load.volatile:
        return "asynchronous copies support neither `other` nor volatile loads"
    if not is_unmodified(fn, loop, load.ptr):
        return "the loop may write the same memory"
    if _copy_bytes(share, load, infos) < MIN_COPY_BYTES:
        return "threads do not hold enough adjacent elements for a copy"
    return ""


def _copy_bytes(share: Share, load: Load, infos: AxisMap) -> int:
    """Bytes that a thread can copy at once: adjacent in global and in shared memory."""
    axis, length = adjacent_elements(load, infos)
    assert share.result.layout is not None
    length = min(length, _run_in_memory(share.result.layout, axis))
    return length * dtype_of(load.result.type).nbytes_in_memory


def _run_in_memory(buffer: LinearLayout, axis: int) -> int:
    """The length of runs of elements along an axis that are consecutive in the buffer."""
    start = sum(dim.bits for dim in buffer.outs[: len(buffer.outs) - 1 - axis])
    run = 1
    for bit, column in enumerate(buffer.bases(OFFSET)):
        others = buffer.bases(OFFSET)[bit + 1 :]
        if column != 1 << (start + bit) or any(c & column for c in others):
            break
        run *= 2
    return run


# -- transformation -------------------------------------------------------------------------------


class _Pipeline(LoopRewrite):
    """The rewrite of one loop."""

    def __init__(self, loop: For, found: Pipeline, schedule: _Schedule) -> None:
        super().__init__(loop, found.ahead)
        self.shares = found.shares
        self.own = found.own
        self.distance, self.slots, self.late, self.before = schedule
        self.buffers: list[Value] = []

    def rewrite(self) -> None:
        for made in (*(share.result for share in self.shares), *self.own):
            kind = made.type
            assert isinstance(kind, Shared)
            type = Shared((self.slots, *kind.shape), kind.element)
            self.buffers.append(self.add(Allocate(type)).results[0])
        state = self.first_iterations(self.distance, self._first)
        carried = [self.number(0), self.number(self.distance % self.slots), *state]
        body = self._new_body(carried)
        self.replace(carried, body)
        self.add(WaitCopies(0))
        # If this loop is nested, other warps may still read slots when its next execution starts.
        self.add(Barrier())
        self.old.erase()

    def _first(self, number: int, index: Value, values: Sequence[Value]) -> list[Value]:
        """Start the copies of an iteration before the loop."""
        slot = self.number(number)
        return self._copies(index, values, slot, self.exists(self.old.start, number))

    def _copies(
        self, index: Value, values: Sequence[Value], slot: Value, exists: Value
    ) -> list[Value]:
        """Start the copies of an iteration. Returns the loop-carried values of the next one."""
        mapping, following = self.compute(index, values, exists)
        for (load, layout), buffer in zip(self._slots(), self.buffers, strict=True):
            ptr = mapping.get(load.ptr, load.ptr)
            mask = self.mask(load, mapping, exists)
            target = self.value(Slot(buffer, slot), layout)
            self.add(CopyAsync(ptr, target, mask)).loc = load.loc
        self.add(CommitCopies())
        return following

    def _slots(self) -> list[tuple[Load, LinearLayout | None]]:
        """The load and the layout of the slots of each buffer."""
        shared = [(_load_of(share), share.result.layout) for share in self.shares]
        return [*shared, *((copy.load, copy.slot) for copy in self.own)]

    def _new_body(self, carried: Sequence[Value]) -> Region:
        """The new body, which also carries the slots to read and to fill, and the state of the
        iteration ahead."""
        old = self.old.body
        body, (read, fill, index, *values) = self.body_with(carried)
        mapping = dict(zip(old.args, body.args, strict=False))
        buffers: dict[Op, Value] = dict(zip(self.shares, self.buffers, strict=False))
        own = dict(zip((copy.load for copy in self.own), self.buffers[len(buffers) :], strict=True))
        layouts = {copy.load: copy.slot for copy in self.own}
        copied = set[Op](map(_load_of, self.shares))
        end = Yield([])
        body.append(end)
        self.anchor = end
        self.add(WaitCopies(self.distance - 1))
        self.add(Barrier())
        following: list[Value] = []

        def copy_ahead() -> None:
            if self.before:
                following[:] = values
                self.add(CommitCopies())  # none: each iteration waits for the oldest ones
                return
            exists = self.exists_after(body.args[0], self.distance)
            following[:] = self._copies(index, values, fill, exists)

        last = self._last_reader() if self.late else None
        if last is None:  # the rest of the body hides the latency of the copies
            copy_ahead()
        for op in old:
            if op.terminator or op in copied:
                continue
            if op in buffers:
                mapping[op.results[0]] = self.value(Slot(buffers[op], read), op.results[0].layout)
            elif isinstance(op, Load) and op in own:
                tile = fetch_own(self, op, self.value(Slot(own[op], read), layouts[op]))
                mapping[op.result] = with_other(self, op, tile, mapping)
            else:
                self.add(op.clone(mapping))
            if op is last:
                self.add(Barrier())
                copy_ahead()
        yielded = [mapping.get(v, v) for v in old.terminator.operands]
        after = [self._after(read), self._after(fill)]
        next_index = self.value(Add(index, self.old.step))
        end.add_operands([*yielded, *after, next_index, *following])
        end.spans = (len(end.operands),)
        return body

    def _last_reader(self) -> Op:
        """The last op that reads a slot, or that multiplies the values read: fragments of the
        operands of all products would not fit into registers at once."""
        reading = {user for share in self.shares for user in share.result.users}
        reading |= {user for op in reading for v in op.results for user in v.users}
        reading.update(copy.load for copy in self.own)
        return [op for op in self.old.body if op in reading and not op.terminator][-1]

    def _after(self, slot: Value) -> Value:
        following = self.value(Add(slot, self.number(1)))
        over = self.value(Cmp(following, self.number(self.slots), "eq"))
        return self.value(Select(over, self.number(0), following))

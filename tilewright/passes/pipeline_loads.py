"""Loads of a loop's operands start iterations ahead, as asynchronous copies to shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Shared, dtype_of
from tilewright.layout.families import row_major
from tilewright.layout.linear import OFFSET, LinearLayout
from tilewright.ops.arith import Add, Cmp, Select
from tilewright.ops.control import Barrier, For, Yield
from tilewright.ops.gpu import Allocate, CommitCopies, CopyAsync, Share, Slot, WaitCopies
from tilewright.ops.memory import Load
from tilewright.passes.loop_ahead import Ahead, LoopRewrite, ahead_of, stays

NAME = "pipeline_loads"
MIN_COPY_BYTES = 4  # the least that one asynchronous copy moves


@compiler_pass(NAME)
def pipeline_loads(fn: Function, ctx: PassContext) -> bool:
    """Turn loads that a loop puts in shared memory into copies for a later iteration.

    Needs: layouts; loads in the loop whose only use is a `gpu.share`.
    Leaves: for each such load a buffer of `num_stages` slots; before the loop the copies of the
    first iterations; in it, a wait for this iteration's copies and the start of later ones.

    With S slots, the copies of iteration i + S - 1 start in iteration i. They go to the slot that
    iteration i - 1 has read, so they follow a barrier.
    """
    stages: int = ctx.options.get("num_stages", 1)
    infos = axis_info(fn)
    changed = False
    for op in list(fn.walk()):
        if isinstance(op, For) and (op.num_stages or stages) > 1:
            found = _find(fn, op, infos, ctx)
            if found is not None:
                _tell(found[1], op.num_stages or stages, infos, ctx)
                _Pipeline(op, *found, op.num_stages or stages).rewrite()
                ctx.count("pipelined")
                changed = True
    return changed


def _tell(shares: list[Share], slots: int, infos: AxisMap, ctx: PassContext) -> None:
    for share in shares:
        load, kind = _load_of(share), share.result.type
        assert isinstance(kind, Shared)
        size = prod(kind.shape) * kind.element.nbytes_in_memory
        ahead = f"{slots - 1} iteration{'s' * (slots > 2)} ahead"
        ctx.did(
            NAME,
            f"starts {ahead}, by asynchronous copies of {_copy_bytes(share, load, infos)} bytes "
            f"into {slots} buffers of {size / 1024:g} KiB in shared memory",
            load.loc,
        )


# -- what can be done -----------------------------------------------------------------------------


def _find(
    fn: Function, loop: For, infos: AxisMap, ctx: PassContext
) -> tuple[Ahead, list[Share]] | None:
    """The shares whose loads can become copies, and what their addresses depend on."""
    shares: list[Share] = []
    for op in loop.body:
        # What comes from outside of the loop is shared there, once loop invariants are hoisted.
        if isinstance(op, Share) and op.src.region is loop.body:
            reason = _refusal(fn, loop, op, infos)
            if reason:
                ctx.missed(NAME, reason, op.loc)
            else:
                shares.append(op)
    if not shares:
        return None
    ahead = ahead_of(loop, [v for s in shares for v in _load_of(s).operands])
    if ahead is None:
        ctx.missed(NAME, "an address depends on memory that the loop reads", loop.loc)
        return None
    return ahead, shares


def _load_of(share: Share) -> Load:
    load = share.src.op
    assert isinstance(load, Load)
    return load


def _refusal(fn: Function, loop: For, share: Share, infos: AxisMap) -> str:
    """Why the load behind a share can't become a copy; "" if it can."""
    load = share.src.op
    if not isinstance(load, Load) or load.parent is not loop.body:
        return "the operand is computed, not loaded, in the loop"
    if len(share.src.users) != 1:
        return "the loaded tile has other uses too"
    if load.other is not None or load.volatile:
        return "copies give 0 where the mask is false, and are not volatile"
    if not stays(fn, loop, load.ptr):
        return "the loop writes what may be the same memory"
    if _copy_bytes(share, load, infos) < MIN_COPY_BYTES:
        return "threads do not hold enough adjacent elements for a copy"
    return ""


def _copy_bytes(share: Share, load: Load, infos: AxisMap) -> int:
    """Bytes that a thread can copy at once: adjacent in global and in shared memory."""
    info = infos[load.ptr]
    size = dtype_of(load.result.type).nbytes_in_memory
    layout, buffer = load.result.layout, share.result.layout
    assert layout is not None
    assert buffer is not None
    axis = max(row_major(info.rank), key=lambda a: info.contiguity[a])
    length = min(
        info.vector_length(axis, size),
        layout.num_consecutive((axis,)),
        _run_in_memory(buffer, axis),
    )
    if load.mask is not None:
        length = min(length, infos[load.mask].constancy[axis])
    return length * size


def _run_in_memory(buffer: LinearLayout, axis: int) -> int:
    """Elements along an axis that follow each other in memory, wherever they start."""
    start = sum(dim.bits for dim in buffer.outs[: len(buffer.outs) - 1 - axis])
    run = 1
    for bit, column in enumerate(buffer.bases(OFFSET)):
        others = buffer.bases(OFFSET)[bit + 1 :]
        if column != 1 << (start + bit) or any(c & column for c in others):
            break
        run *= 2
    return run


# -- doing it -------------------------------------------------------------------------------------


class _Pipeline(LoopRewrite):
    """The rewrite of one loop."""

    def __init__(self, loop: For, ahead: Ahead, shares: list[Share], slots: int) -> None:
        super().__init__(loop, ahead)
        self.shares = shares
        self.slots = slots
        self.distance = slots - 1
        self.buffers: list[Value] = []

    def rewrite(self) -> None:
        for share in self.shares:
            kind = share.result.type
            assert isinstance(kind, Shared)
            type = Shared((self.slots, *kind.shape), kind.element)
            self.buffers.append(self.add(Allocate(type)).results[0])
        state = self._prologue()
        carried = [self.number(0), self.number(self.distance), *state]
        body = self._new_body(carried)
        self.replace(carried, body)
        self.add(WaitCopies(0))
        # Other warps may still read slots that the next turn of a loop around this one fills.
        self.add(Barrier())
        self.old.erase()

    def _prologue(self) -> list[Value]:
        """Copies for the first iterations; index and carried values of the one after them."""
        index = self.old.start
        values = [self.old.inits[i] for i in self.ahead.carried]
        for number in range(self.distance):
            slot = self.number(number)
            inside = self.inside(self.old.start, number)
            values = self._copies(index, values, slot, inside)
            index = self.value(Add(index, self.old.step))
        return [index, *values]

    def _copies(
        self, index: Value, values: Sequence[Value], slot: Value, inside: Value
    ) -> list[Value]:
        """Start the copies of an iteration; the carried values of the next one."""
        mapping, following = self.compute(index, values)
        for share, buffer in zip(self.shares, self.buffers, strict=True):
            load = _load_of(share)
            ptr = mapping.get(load.ptr, load.ptr)
            mask = self.mask(load, mapping, inside)
            place = self.value(Slot(buffer, slot), share.result.layout)
            self.add(CopyAsync(ptr, place, mask)).loc = load.loc
        self.add(CommitCopies())
        return following

    def _new_body(self, carried: Sequence[Value]) -> Region:
        """The loop's body with the slots to read and to fill, and the state ahead."""
        old = self.old.body
        body, (read, fill, index, *values) = self.body_with(carried)
        mapping = dict(zip(old.args, body.args, strict=False))
        loads: list[Op] = [_load_of(share) for share in self.shares]
        end = Yield([])
        body.append(end)
        self.anchor = end
        self.add(WaitCopies(self.distance - 1))
        self.add(Barrier())
        # The values ahead are computed and copies started first: the rest of the body hides them.
        following = self._copies(index, values, fill, self.inside(body.args[0], self.distance))
        for op in old:
            if op.terminator or op in loads:
                continue
            if isinstance(op, Share) and op in self.shares:
                buffer = self.buffers[self.shares.index(op)]
                mapping[op.result] = self.value(Slot(buffer, read), op.result.layout)
            else:
                self.add(op.clone(mapping))
        yielded = [mapping.get(v, v) for v in old.terminator.operands]
        after = [self._after(read), self._after(fill)]
        next_index = self.value(Add(index, self.old.step))
        end.add_operands([*yielded, *after, next_index, *following])
        end.spans = (len(end.operands),)
        return body

    def _after(self, slot: Value) -> Value:
        following = self.value(Add(slot, self.number(1)))
        over = self.value(Cmp(following, self.number(self.slots), "eq"))
        return self.value(Select(over, self.number(0), following))

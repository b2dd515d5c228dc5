"""Loads of a loop's operands start iterations ahead, as asynchronous copies to shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.ir.analysis.axis_info import AxisMap, axis_info
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I32, I64, Shared, Type, dtype_of, shape_of
from tilewright.layout.families import row_major
from tilewright.layout.linear import OFFSET, LinearLayout
from tilewright.ops.arith import Add, And, Cast, Cmp, Constant, Mul, Select
from tilewright.ops.control import Barrier, For, Yield
from tilewright.ops.gpu import Allocate, CommitCopies, CopyAsync, Share, Slot, WaitCopies
from tilewright.ops.memory import Load
from tilewright.ops.shape import Splat

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
            loop = _find(op, infos, ctx)
            if loop is not None:
                _Pipeline(loop, op.num_stages or stages).rewrite()
                ctx.count("pipelined")
                changed = True
    return changed


class _Loop(NamedTuple):
    """A loop that can be pipelined.

    Attributes:
        shares: what puts the loaded tiles into shared memory.
        ahead: indices of carried values that addresses and masks depend on.
        body: the ops that compute these and the addresses, in order.
    """

    op: For
    shares: list[Share]
    ahead: list[int]
    body: list[Op]


# -- what can be done -----------------------------------------------------------------------------


def _find(op: For, infos: AxisMap, ctx: PassContext) -> _Loop | None:
    shares: list[Share] = []
    for inner in op.body:
        if isinstance(inner, Share):
            reason = _refusal(op, inner, infos)
            if reason:
                ctx.missed(NAME, reason, inner.loc)
            else:
                shares.append(inner)
    if not shares:
        return None
    roots = [v for s in shares for v in _load_of(s).operands]
    closure = _closure(op, roots)
    if closure is None:
        ctx.missed(NAME, "an address depends on a tile that the loop computes", op.loc)
        return None
    ahead, body = closure
    return _Loop(op, shares, ahead, body)


def _load_of(share: Share) -> Load:
    load = share.src.op
    assert isinstance(load, Load)
    return load


def _refusal(loop: For, share: Share, infos: AxisMap) -> str:
    """Why the load behind a share can't become a copy; "" if it can."""
    load = share.src.op
    if not isinstance(load, Load) or load.parent is not loop.body:
        return "the operand is computed, not loaded, in the loop"
    if len(share.src.users) != 1:
        return "the loaded tile has other uses too"
    if load.other is not None or load.volatile:
        return "copies give 0 where the mask is false, and are not volatile"
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


def _closure(loop: For, roots: Sequence[Value]) -> tuple[list[int], list[Op]] | None:
    """What must be known of an iteration to compute `roots`: carried values and ops.

    None if that includes reading memory or a nested loop.
    """
    carried: set[int] = set()
    needed: set[Op] = set()
    pending = list(roots)
    while pending:
        value = pending.pop()
        if value.owner is loop.body:
            if value.index and value.index - 1 not in carried:
                carried.add(value.index - 1)
                pending.append(loop.body.terminator.operands[value.index - 1])
        elif value.region is loop.body and value.op is not None and value.op not in needed:
            if value.op.regions or not value.op.pure:
                return None
            needed.add(value.op)
            pending += value.op.operands
    return sorted(carried), [op for op in loop.body if op in needed]


# -- doing it -------------------------------------------------------------------------------------


class _Pipeline:
    """The rewrite of one loop."""

    def __init__(self, loop: _Loop, slots: int) -> None:
        self.loop = loop
        self.slots = slots
        self.distance = slots - 1
        self.old = loop.op
        self.buffers: list[Value] = []

    def rewrite(self) -> None:
        self._before(self.old)
        for share in self.loop.shares:
            kind = share.result.type
            assert isinstance(kind, Shared)
            type = Shared((self.slots, *kind.shape), kind.element)
            self.buffers.append(self._add(Allocate(type)).results[0])
        state = self._prologue()
        self._replace_loop(state)

    # Where ops are inserted: before `anchor`.

    def _before(self, anchor: Op) -> None:
        self.anchor = anchor

    def _add(self, op: Op) -> Op:
        region = self.anchor.parent
        assert region is not None
        op.loc = self.old.loc
        region.insert_before(op, self.anchor)
        return op

    def _value(self, op: Op, layout: LinearLayout | None = None) -> Value:
        self._add(op)
        op.results[0].layout = layout
        return op.results[0]

    def _number(self, value: int, type: Type = I32) -> Value:
        return self._value(Constant(value, type))

    # Iterations.

    def _prologue(self) -> list[Value]:
        """Copies for the first iterations; index and carried values of the one after them."""
        index = self.old.start
        values = [self.old.inits[i] for i in self.loop.ahead]
        for number in range(self.distance):
            slot = self._number(number)
            inside = self._inside(self.old.start, number)
            values = self._copies(index, values, slot, inside)
            index = self._value(Add(index, self.old.step))
        return [index, *values]

    def _inside(self, index: Value, iterations: int) -> Value:
        """Whether there is an iteration so many after the one with this index.

        In 64 bits, as the index of one that there is not may be beyond its type.
        """
        wide = [
            v if v.type == I64 else self._value(Cast(v, I64, "rtne"))
            for v in (index, self.old.step, self.old.stop)
        ]
        index, step, stop = wide
        ahead = self._value(Mul(step, self._number(iterations, I64)))
        return self._value(Cmp(self._value(Add(index, ahead)), stop, "lt"))

    def _copies(
        self, index: Value, values: Sequence[Value], slot: Value, inside: Value
    ) -> list[Value]:
        """Start the copies of an iteration; the carried values of the next one."""
        args = self.old.body.args
        mapping: dict[Value, Value] = {args[0]: index}
        for i, value in zip(self.loop.ahead, values, strict=True):
            mapping[args[i + 1]] = value
        for op in self.loop.body:
            self._add(op.clone(mapping)).loc = op.loc
        for share, buffer in zip(self.loop.shares, self.buffers, strict=True):
            load = _load_of(share)
            ptr = mapping.get(load.ptr, load.ptr)
            mask = self._mask(load, mapping, inside)
            place = self._value(Slot(buffer, slot), share.result.layout)
            self._add(CopyAsync(ptr, place, mask)).loc = load.loc
        self._add(CommitCopies())
        yielded = self.old.body.terminator.operands
        return [mapping.get(yielded[i], yielded[i]) for i in self.loop.ahead]

    def _mask(self, load: Load, mapping: dict[Value, Value], inside: Value) -> Value:
        layout = load.ptr.layout
        every = self._value(Splat(inside, shape_of(load.ptr.type)), layout)
        if load.mask is None:
            return every
        return self._value(And(mapping.get(load.mask, load.mask), every), layout)

    # The loop.

    def _replace_loop(self, state: list[Value]) -> None:
        """A loop that carries more: the slots to read and to fill, and the state ahead."""
        old = self.old
        slots = [self._number(0), self._number(self.distance)]
        body = self._new_body(slots, state)
        self._before(old)
        new = For(
            old.start,
            old.stop,
            old.step,
            [*old.inits, *slots, *state],
            num_stages=1,
            unroll=old.unroll,
            hints=old.hints,
            body=body,
        )
        self._add(new)
        for before, after in zip(old.results, new.results, strict=False):
            after.layout = before.layout
            before.replace_with(after)
        self._add(WaitCopies(0))
        old.erase()

    def _new_body(self, slots: Sequence[Value], state: Sequence[Value]) -> Region:
        old = self.old.body
        body = Region([a.type for a in (*old.args, *slots, *state)])
        for before, after in zip(old.args, body.args, strict=False):
            after.layout = before.layout
        for value, arg in zip(state, body.args[len(old.args) + 2 :], strict=True):
            arg.layout = value.layout
        mapping = dict(zip(old.args, body.args, strict=False))
        read, fill, index, *ahead = body.args[len(old.args) :]
        loads: list[Op] = [_load_of(share) for share in self.loop.shares]
        end = Yield([])
        body.append(end)
        self._before(end)
        self._add(WaitCopies(self.distance - 1))
        self._add(Barrier())
        # The values ahead are computed and copies started first: the rest of the body hides them.
        following = self._copies(index, ahead, fill, self._inside(body.args[0], self.distance))
        for op in old:
            if op.terminator or op in loads:
                continue
            if isinstance(op, Share) and op in self.loop.shares:
                buffer = self.buffers[self.loop.shares.index(op)]
                mapping[op.result] = self._value(Slot(buffer, read), op.result.layout)
            else:
                self._add(op.clone(mapping)).loc = op.loc
        yielded = [mapping.get(v, v) for v in old.terminator.operands]
        after = [self._after(read), self._after(fill)]
        next_index = self._value(Add(index, self.old.step))
        end.add_operands([*yielded, *after, next_index, *following])
        end.spans = (len(end.operands),)
        return body

    def _after(self, slot: Value) -> Value:
        following = self._value(Add(slot, self._number(1)))
        over = self._value(Cmp(following, self._number(self.slots), "eq"))
        return self._value(Select(over, self._number(0), following))

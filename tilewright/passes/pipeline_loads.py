"""Software pipelining of loads through shared memory, by asynchronous copies.

Input: laid-out IR. A load qualifies if its only use is a `gpu.share` in the same loop and each
thread can copy at least `MIN_COPY_BYTES` at once. Output: for each such load a buffer of S =
`num_stages` slots; before the loop, the copies of the first S - 1 iterations; in the loop, a wait
for the copies of this iteration, and the start of those of iteration i + S - 1. These write the
slot that iteration i - 1 read, so they follow a barrier. Linear in the size of the loops, plus
loads times stores for the alias analysis.
"""

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
from tilewright.passes.software_pipelining import (
    LoopRewrite,
    Slice,
    backward_slice,
    is_unmodified,
    shares_of,
)

NAME = "pipeline_loads"
MIN_COPY_BYTES = 4  # the minimum size of one asynchronous copy


@compiler_pass(NAME)
def pipeline_loads(fn: Function, ctx: PassContext) -> bool:
    """Replace loads to shared memory in loops by asynchronous copies for later iterations; see the
    module docstring."""
    infos = axis_info(fn)
    changed = False
    for op in list(fn.walk()):
        if isinstance(op, For) and stages_of(op, ctx) > 1:
            found = find_pipeline(fn, op, infos, ctx)
            if found is not None:
                _report(found[1], stages_of(op, ctx), infos, ctx)
                _Pipeline(op, *found, stages_of(op, ctx)).rewrite()
                ctx.count("pipelined")
                changed = True
    return changed


def stages_of(loop: For, ctx: PassContext) -> int:
    """The number of iterations in flight at once: of the loop, or of the kernel."""
    return loop.num_stages or ctx.options.get("num_stages", 1)


def _report(shares: list[Share], slots: int, infos: AxisMap, ctx: PassContext) -> None:
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


# -- analysis -------------------------------------------------------------------------------------


def find_pipeline(
    fn: Function, loop: For, infos: AxisMap, ctx: PassContext
) -> tuple[Slice, list[Share]] | None:
    """The shares whose loads can become copies, and the backward slice of their addresses."""
    shares: list[Share] = []
    for op in shares_of(loop):  # the share of a loop-invariant tile is hoisted by licm
        reason = _refusal(fn, loop, op, infos)
        if reason:
            ctx.missed(NAME, reason, op.loc)
        else:
            shares.append(op)
    if not shares:
        return None
    ahead = backward_slice(loop, [v for s in shares for v in _load_of(s).operands])
    if ahead is None:
        ctx.missed(NAME, "an address depends on memory that the loop reads", loop.loc)
        return None
    return ahead, shares


def _load_of(share: Share) -> Load:
    load = share.src.op
    assert isinstance(load, Load)
    return load


def _refusal(fn: Function, loop: For, share: Share, infos: AxisMap) -> str:
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


def adjacent_elements(load: Load, infos: AxisMap) -> tuple[int, int]:
    """An axis, and the number of elements along it that each thread holds in successive registers
    and that are adjacent in memory, aligned, and masked off together."""
    info = infos[load.ptr]
    layout = load.result.layout
    assert layout is not None
    axis = max(row_major(info.rank), key=lambda a: info.contiguity[a])
    size = dtype_of(load.result.type).nbytes_in_memory
    length = min(info.vector_length(axis, size), layout.num_consecutive((axis,)))
    if load.mask is not None:
        length = min(length, infos[load.mask].constancy[axis])
    return axis, length


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

    def __init__(self, loop: For, ahead: Slice, shares: list[Share], slots: int) -> None:
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
        state = self.first_iterations(self.distance, self._first)
        carried = [self.number(0), self.number(self.distance), *state]
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
        mapping, following = self.compute(index, values)
        for share, buffer in zip(self.shares, self.buffers, strict=True):
            load = _load_of(share)
            ptr = mapping.get(load.ptr, load.ptr)
            mask = self.mask(load, mapping, exists)
            target = self.value(Slot(buffer, slot), share.result.layout)
            self.add(CopyAsync(ptr, target, mask)).loc = load.loc
        self.add(CommitCopies())
        return following

    def _new_body(self, carried: Sequence[Value]) -> Region:
        """The new body, which also carries the slots to read and to fill, and the state of the
        iteration ahead."""
        old = self.old.body
        body, (read, fill, index, *values) = self.body_with(carried)
        mapping = dict(zip(old.args, body.args, strict=False))
        loads: list[Op] = [_load_of(share) for share in self.shares]
        end = Yield([])
        body.append(end)
        self.anchor = end
        self.add(WaitCopies(self.distance - 1))
        self.add(Barrier())
        # The copies start first, so that the rest of the body hides their latency.
        following = self._copies(index, values, fill, self.exists(body.args[0], self.distance))
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

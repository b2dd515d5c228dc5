"""The loops whose operands a dedicated warp can copy, and the rings of slots for them.

`specialize_warps.py` performs the transformation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tilewright.analysis.blocks import BlockFinder
from tilewright.base.record import field, record
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.machine import GpuMachine
from tilewright.ir.passes import PassContext, optional_part
from tilewright.ir.types import Shared, dtype_of, shape_of
from tilewright.lowering.simt.shared_memory import ALIGN, SCRATCH, allocated_bytes
from tilewright.ops.atomic import AtomicRMW, synchronizes
from tilewright.ops.control import For
from tilewright.ops.gpu import (
    Fetch,
    Share,
)
from tilewright.ops.memory import Load
from tilewright.ops.nvidia import Wgmma
from tilewright.ops.tensor_memory import TensorProduct
from tilewright.passes.software_pipelining import shares_of, stages_of, up_to_end_of
from tilewright.targets.nvidia.buffer_uses import goes_to_products, is_published, readers
from tilewright.targets.nvidia.copied_scalars import (
    Scalars,
    Unsupported,
    may_overwrite,
    require_scalars,
)
from tilewright.targets.nvidia.copy_costs import COSTS, require_wide_rows
from tilewright.targets.nvidia.features import RESERVED_SHARED
from tilewright.targets.nvidia.occupancy import (
    OTHER_REGISTERS,
    REGISTER_BYTES,
    resident_by_registers,
)
from tilewright.targets.nvidia.overlap_products import sums
from tilewright.targets.nvidia.tensor_copies import NoTensorCopy, TensorCopy, tensor_copy

NAME = "specialize_warps"
SPARE = optional_part("spare_slots")
FREE = optional_part("free_slots")
HELD = optional_part("held_operands")
MOST_SLOTS = 8  # with spare ones: 196 KB in flight for a product of 64 x 128 x 64
BARRIER_BYTES = 8

# What a multiprocessor of an H200 receives in a microsecond, the latency of memory, is less. Of
# products of 2048 x 4096 x 4096 there, 64x128x32 with 96 KB of copies took 123.7 µs, with 144 KB
# 146.8, and 64x64x32 195.4 and 215.3.
BYTES_IN_FLIGHT = 96 * 1024
FEW_PROGRAMS = 2  # on a multiprocessor: have not been measured with fewer slots


class Copied(NamedTuple):
    """An operand that is copied."""

    share: Share
    copy: TensorCopy


@record(eq=False, frozen=False)
class Ring:
    """The slots of loops that copy the same kinds of operands; the loops use them in turn.

    Attributes:
        spare: slots in addition that only some launches provide.
        buffers: the memory of all slots, for each operand.
        base: the number of the first barrier. Each part has a `full` and an `empty` row of them.
    """

    slots: int
    spare: int = 0
    buffers: list[Value] = field(default_factory=list[Value])
    base: int = 0

    @property
    def most(self) -> int:
        """The slots of a launch that provides the spare ones."""
        return self.slots + self.spare


@record(eq=False, frozen=False)
class CopiedLoop:
    """A loop whose operands are copied.

    Attributes:
        copies: all of them, in the order in which they are first read.
        parts: operands that become free at the same time, as indices of `copies`: they share
            barriers.
        ends: for each part, the op of the body after which nothing reads it.
        holds: whether loops in the body use the operands, and have converted ones themselves.
        in_flight: whether products are in flight until those of the next iteration have started.
    """

    loop: For
    slots: int
    copies: list[Copied]
    parts: list[list[int]]
    ends: list[Op]
    ring: Ring = field(default_factory=lambda: Ring(0))
    holds: bool = False
    in_flight: bool = False

    def kind(self) -> object:
        """Equal for loops that can use the same ring."""
        operands = [(c.share.result.type, c.share.result.layout) for c in self.copies]
        return self.slots, tuple(operands), tuple(map(tuple, self.parts))


def product_loops(fn: Function, ctx: PassContext) -> dict[For, int]:
    """The loops of products to be pipelined, with the number of their stages."""
    loops = [op for op in fn.walk() if isinstance(op, For) and stages_of(op, ctx) > 1]
    return {
        op: stages_of(op, ctx)
        for op in loops
        if any(isinstance(inner, Wgmma | TensorProduct) for inner in op.body)
    }


def find_loops(fn: Function, ctx: PassContext) -> list[CopiedLoop]:
    """The innermost loops of products whose operands can be copied. Operands that an enclosing loop
    copies for its own products are held while they run (`find_held`)."""
    finder = BlockFinder()
    scalars = Scalars(fn)
    found: list[CopiedLoop] = []
    for op, stages in product_loops(fn, ctx).items():
        try:
            copied = _copied_loop(fn, op, stages, finder, scalars)
            if copied.in_flight and ctx.enabled(COSTS):  # others compute while copies are made
                require_wide_rows(op, copied.copies)
            found.append(copied)
        except Unsupported as error:
            ctx.missed(NAME, str(error), (error.op or op).loc)
    around = {op for loop in found for op in loop.loop.ancestors()}
    return with_rings(fn, [loop for loop in found if loop.loop not in around], ctx)


def with_rings(fn: Function, loops: list[CopiedLoop], ctx: PassContext) -> list[CopiedLoop]:
    """Assign rings to the loops, with as many slots as memory allows; none if it is not enough
    for two."""
    if not loops:
        return []
    own = allocated_bytes(fn)
    most = max(loop.slots for loop in loops)
    for slots in range(most, 1, -1):
        rings: dict[object, Ring] = {}
        for loop in loops:
            loop.slots = min(loop.slots, slots)
            loop.ring = rings.setdefault(loop.kind(), Ring(loop.slots))
        if _with_own(fn, loops, own) <= ctx.gpu.shared_bytes:
            if releases_at_once(loops):
                _add_free_slots(fn, loops, own, ctx)
                _add_spare_slots(fn, loops, own, ctx)
            return loops
    for loop in loops:
        ctx.missed(NAME, "there is not enough shared memory for two slots", loop.loop.loc)
    return []


def find_held(fn: Function, loops: Sequence[CopiedLoop], ctx: PassContext) -> list[CopiedLoop]:
    """The loops around those of products with operands that all iterations of these use, such as
    the queries of attention in a loop over programs, for which there is memory without fewer
    resident programs.

    With two slots the copies for the next iteration do not wait for the end of this one.
    """
    if not ctx.enabled(HELD):
        return []
    holders = [list(loop.loop.ancestors()) for loop in loops]
    around = dict.fromkeys(op for each in holders for op in each[:1] if isinstance(op, For))
    finder, scalars = BlockFinder(), Scalars(fn)
    held = [loop for op in around if (loop := _held(fn, op, finder, scalars)) is not None]
    added = max(_added_bytes(loop.loop) for loop in loops)
    own = allocated_bytes(fn)
    free = ctx.gpu.shared_bytes // max(ctx.gpu.shared_bytes // _with_own(fn, loops, own), 1)
    for slots in (2, 1):
        for loop in held:
            loop.slots = loop.ring.slots = slots
        needed = _with_own(fn, [*loops, *held], own)
        if held and needed + (added if slots > 1 else 0) <= free:
            return held
    return []


def _added_bytes(loop: For) -> int:
    """The memory for blocks that a loop adds to global memory (`add_blocks`); additions of tiles of
    one type share a buffer."""
    added = {op.value.type for op in loop.walk() if isinstance(op, AtomicRMW)}
    return sum(prod(shape_of(type)) * dtype_of(type).nbytes_in_memory for type in added)


def _held(fn: Function, loop: For, finder: BlockFinder, scalars: Scalars) -> CopiedLoop | None:
    """The operands in the body of a loop that are copied, if any."""
    copies: list[Copied] = []
    for share in shares_of(loop):
        try:
            if isinstance(share.src.op, Load):
                copy = copy_of(fn, loop, share, finder)
                require_scalars(loop, copy, scalars, share)
                _require_products(readers(share.result))
                copies.append(Copied(share, copy))
        except Unsupported:
            continue
    parts = [list(range(len(copies)))]
    return CopiedLoop(loop, 0, copies, parts, [], Ring(0), holds=True) if copies else None


def releases_at_once(loops: Sequence[CopiedLoop]) -> bool:
    """Whether there is one ring, of loops that release all operands at the same time.

    Only such rings have further slots: operands that are released one after the other, as those of
    attention, are computed with for longer than their copies take.
    """
    ring = loops[0].ring
    return all(loop.ring is ring and len(loop.parts) == 1 for loop in loops)


def _add_free_slots(fn: Function, loops: list[CopiedLoop], own: int, ctx: PassContext) -> None:
    """Increase the slots of the ring, as long as occupancy, limited by registers, and the slots
    requested by the source permit: up to `MOST_SLOTS`, and, beyond `FEW_PROGRAMS`, as many as
    copies of `BYTES_IN_FLIGHT` take.

    A ring of a few kilobytes is empty while a copy that waits for a slot is on its way; more
    programs would hide that, but registers limit them.
    """
    if not ctx.enabled(FREE):
        return
    gpu = ctx.gpu
    needed = results_of(loops, gpu) + OTHER_REGISTERS
    slot = sum(bytes_of(copied.share) for copied in loops[0].copies) + 2 * BARRIER_BYTES
    memory, used = gpu.shared_bytes + RESERVED_SHARED, _with_own(fn, loops, own)
    by_memory = memory // (loops[0].slots * slot + RESERVED_SHARED)  # at most
    programs = max(min(resident_by_registers(gpu.warps + 1, needed), by_memory), 1)
    if programs > FEW_PROGRAMS and all(loop.in_flight for loop in loops):
        # Of others, tiles that operands are computed from may take the rest of the memory.
        programs = max(min(programs, memory // (used + RESERVED_SHARED)), FEW_PROGRAMS)
    more = (memory // programs - RESERVED_SHARED - used) // slot
    most = MOST_SLOTS
    if programs > FEW_PROGRAMS:
        most = min(most, 1 + -(-BYTES_IN_FLIGHT // (programs * slot)))
    slots = max(loops[0].slots, min(loops[0].slots + more, most))
    loops[0].ring.slots = slots
    for loop in loops:
        loop.slots = slots


def _add_spare_slots(fn: Function, loops: list[CopiedLoop], own: int, ctx: PassContext) -> None:
    """Give the ring spare slots, up to `MOST_SLOTS`, as far as memory allows."""
    ring = loops[0].ring
    if not ctx.enabled(SPARE):
        return
    slot = sum(bytes_of(copied.share) for copied in loops[0].copies)
    per_slot = slot + 2 * BARRIER_BYTES
    # Buffers are aligned, and the memory behind which spare slots lie.
    free = ctx.gpu.shared_bytes - _with_own(fn, loops, own) - 2 * ALIGN
    ring.spare = max(0, min(free // per_slot, MOST_SLOTS - ring.slots))


def results_of(loops: Sequence[CopiedLoop], gpu: GpuMachine) -> int:
    """The registers of a thread that results of products occupy, in the loop with the most."""
    return max(
        sum(
            prod(shape_of(op.result.type)) * dtype_of(op.result.type).nbytes_in_memory
            for op in loop.loop.body
            if isinstance(op, Wgmma)
        )
        // (REGISTER_BYTES * gpu.threads)
        for loop in loops
    )


def shared_bytes(fn: Function, loops: Sequence[CopiedLoop]) -> int:
    """An upper bound of the shared memory of a program with these rings."""
    return _with_own(fn, loops, allocated_bytes(fn))


def _with_own(fn: Function, loops: Sequence[CopiedLoop], own: int) -> int:
    """As `shared_bytes`, of a function that takes `own` bytes without them."""
    rings = {loop.ring: loop for loop in loops}
    size = sum(loop.slots * sum(bytes_of(c.share) for c in loop.copies) for loop in rings.values())
    # The rings are live from the start; two upper bounds of the memory used in addition.
    return size + min(_other_bytes(fn, loops), own + ALIGN)


def _other_bytes(fn: Function, loops: Sequence[CopiedLoop]) -> int:
    """An upper bound of the shared memory live together with the rings: buffers of other operands,
    and scratch of the ops before the end of their live range, that of the control flow around."""
    copied = [c.share for loop in loops for c in loop.copies]
    shares = [op for op in fn.walk() if isinstance(op, Share) and op not in copied]
    around = dict.fromkeys(_outermost(loop.loop) for loop in loops)
    scratch = [SCRATCH[type(op)](op) for o in around for op in o.walk() if type(op) in SCRATCH]
    barriers = sum(BARRIER_BYTES * 2 * loop.slots * len(loop.parts) for loop in loops)
    return sum(map(bytes_of, shares)) + max(scratch, default=0) + barriers + ALIGN


def _outermost(op: Op) -> Op:
    """The outermost control flow around an op, or itself."""
    return [op, *op.ancestors()][-1]


def bytes_of(share: Share) -> int:
    """Bytes of a shared operand."""
    kind = share.result.type
    assert isinstance(kind, Shared)
    return kind.nbytes


def _copied_loop(
    fn: Function, loop: For, slots: int, finder: BlockFinder, scalars: Scalars
) -> CopiedLoop:
    """The plan for a loop. Raises `Unsupported` if it cannot be converted."""
    # Operands that the loop computes are shared by the computing warps themselves.
    shares = [share for share in shares_of(loop) if isinstance(share.src.op, Load)]
    if not shares:
        raise Unsupported("no operand of the products is loaded in the loop")
    copies: list[Copied] = []
    ops = list(loop.body)
    spans: list[tuple[int, int]] = []  # the first and the last op that need the operand
    for share in shares:
        copy = copy_of(fn, loop, share, finder)
        require_scalars(loop, copy, scalars, share)
        copies.append(Copied(share, copy))
        reading = readers(share.result)
        _require_products(reading)
        needed = {loop.body.find_ancestor(op) for op in reading}
        places = [i for i, op in enumerate(ops) if op in needed]
        spans.append((places[0], places[-1]))
    spans = _joined(copies, spans)
    in_flight = bool(sums(loop, lambda buffer: buffer.op in shares))
    if in_flight:
        # All products of an iteration are in flight until those of the next one have started
        # (`overlap_products`), so that their operands become free together.
        last = max(last for _, last in spans)
        spans = [(first, last) for first, _ in spans]
    order = sorted(range(len(copies)), key=lambda i: spans[i])
    copies, spans = [copies[i] for i in order], [spans[i] for i in order]
    parts: dict[int, list[int]] = {}
    for i, (_, last) in enumerate(spans):
        parts.setdefault(last, []).append(i)
    ends = [ops[last] for last in parts]
    return CopiedLoop(loop, slots, copies, list(parts.values()), ends, in_flight=in_flight)


def _joined(copies: Sequence[Copied], spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans, with those of tiles to compute with as long as that of an operand that ends later.

    A barrier of its own would cost more than the few bytes of a vector save; and a tile that an
    operand is computed from is free only shortly before the products that wait for the result.
    """
    computed = [_is_computed_with(copied) for copied in copies]
    ends = sorted(end for alone, (_, end) in zip(computed, spans, strict=True) if not alone)
    return [
        (first, next((e for e in ends if e >= end), end)) if alone else (first, end)
        for alone, (first, end) in zip(computed, spans, strict=True)
    ]


def _is_computed_with(copied: Copied) -> bool:
    """Whether the copied tile is a vector, or a tile from which an operand in shared memory is
    computed."""
    buffer = copied.share.result
    fetches = [user for user in buffer.users if isinstance(user, Fetch)]
    vector = len(shape_of(buffer.type)) == 1
    return vector or (len(fetches) == len(buffer.users) and all(map(is_published, fetches)))


def copy_of(
    fn: Function, loop: For, share: Share, finder: BlockFinder, *, only: bool = True
) -> TensorCopy:
    """The tensor copy of a shared value; `only` if the load must have no other use.

    Raises:
        Unsupported: the copying warp cannot do the load.
    """
    load = share.src.op
    assert isinstance(load, Load)
    if only and len(share.src.users) != 1:
        raise Unsupported("the loaded tile has other uses too", load)
    for op in up_to_end_of(fn, loop):
        if may_overwrite(fn, load, op):
            raise Unsupported("the kernel writes memory that may overlap", load)
        if synchronizes(op):
            raise Unsupported("the kernel may wait for other programs that write this", load)
    assert share.result.layout is not None
    try:
        return tensor_copy(fn, finder, load, share.result.layout)
    except NoTensorCopy as error:
        raise Unsupported(str(error), load) from None


def _require_products(reading: Sequence[Op]) -> None:
    """Raise `Unsupported` if threads load an operand for something else than products and buffers.

    A thread's loads are complete, and the copying warp may overwrite what they read, once something
    has used their results; an arrival after the loads does not wait for them. Starts of products
    and stores stay in their order with arrivals, arithmetic does not; so its results must be
    operands of these, each element of at least one.
    """
    for op in reading:
        if isinstance(op, Fetch) and not goes_to_products(op.result):
            raise Unsupported("the operand is loaded to registers, not read by the product", op)

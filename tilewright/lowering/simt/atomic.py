"""Atomic accesses to global memory.

If several threads hold copies of an element, one of them executes the instruction and broadcasts
the old value to the others. Memory orders hold for the whole program, not only for the executing
thread: a release is preceded by a barrier, so that it covers the earlier accesses of all threads,
and an acquire is followed by one, so that no thread proceeds before it, unless the program ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext

from tilewright.base.record import replace
from tilewright.ir import types as ir
from tilewright.ir.core import Op
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.arith import lower_add, lower_extremum
from tilewright.lowering.atomic import wait_until_equal
from tilewright.lowering.emit import I1, V, const, int_type, zero
from tilewright.lowering.guard import guarded
from tilewright.lowering.simt.combine import exchanged
from tilewright.lowering.simt.convert import from_bits, to_bits
from tilewright.lowering.simt.hardware import Atomic
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.memory import one_of_many
from tilewright.lowering.simt.shared_memory import scratch
from tilewright.lowering.simt.staging import Staged, staged_bytes
from tilewright.lowering.types import memory_type, register_type
from tilewright.ops import arith
from tilewright.ops.atomic import (
    AnyAtomic,
    AtomicCAS,
    AtomicLoad,
    AtomicPoll,
    AtomicRMW,
    AtomicStore,
    Reading,
)
from tilewright.ops.control import If

_LLVM_ORDER = {"relaxed": "monotonic"}  # the others have the same names


@scratch(AtomicRMW)
@scratch(AtomicCAS)
@scratch(AtomicLoad)
@scratch(AtomicPoll)
def atomic_scratch(op: AnyAtomic) -> int:
    """Bytes of scratch to broadcast the results; 0 if unused, or if a shuffle suffices."""
    if isinstance(op, AtomicStore) or not op.result.users or _stays_in_warp(op.result.layout):
        return 0
    return staged_bytes(op.result)


@emits(AtomicRMW)
def emit_rmw(kernel: Kernel, op: AtomicRMW) -> None:
    """Emit as few instructions as `Hardware.atomic_length` allows, vectors included.

    Several instructions are emitted relaxed, with fences around the whole group: that waits for
    memory once, where ordered instructions would wait once each. One compare-and-swap loop has the
    fences inside, where only the threads that act wait: barriers order the others.
    """
    element = ir.dtype_of(op.value.type)
    what = Atomic(op.kind, element, op.sem, op.scope, bool(op.result.users))
    known = kernel.hw.atomic_length(what)
    length = max(1, min(known, kernel.access_length(op.ptr, op.mask)))
    starts = kernel.access_starts(op.ptr, length)
    fenced = known == 0 or len(starts) > 1
    if fenced:
        what = replace(what, order="relaxed")
    found: dict[int, V] = {}
    within = known == 0 and len(starts) == 1
    with _ordered(kernel, op, fenced=fenced and not within):
        for start in starts:
            registers = range(start, start + length)
            values = [kernel.env[op.value][r] for r in registers]
            mask = _acting(kernel, op, start)
            old = (
                kernel.hw.atomic(kernel.b, what, kernel.env[op.ptr][start], values, mask)
                if known
                else [_compare_loop(kernel, op, start, mask, fenced=within)]
            )
            found.update(zip(registers, old, strict=True))
    _bind(kernel, op, found)


@emits(AtomicCAS)
def emit_cas(kernel: Kernel, op: AtomicCAS) -> None:
    b = kernel.b
    order, scope = _LLVM_ORDER.get(op.sem, op.sem), kernel.hw.sync_scope(op.scope)

    def act(register: int) -> V:
        ptr, expected, value = (kernel.env[v][register] for v in (op.ptr, op.expected, op.value))

        def swap() -> V:
            compare, new = to_bits(kernel, [expected, value])
            old, _ = b.cmpxchg(ptr, compare, new, order, scope)
            return from_bits(kernel, op.value.type, [old])[0]

        return guarded(b, _acting(kernel, op, register), swap, zero(value.type))

    with _ordered(kernel, op):
        found = _each(kernel, op, act)
    _bind(kernel, op, found)


@emits(AtomicLoad)
def emit_load(kernel: Kernel, op: AtomicLoad) -> None:
    b = kernel.b
    bits = int_type(memory_type(op.result.type).bits)
    nothing = zero(register_type(op.result.type))

    def act(register: int) -> V:
        def read() -> V:
            ptr = kernel.env[op.ptr][register]
            found = kernel.hw.load_atomic(b, ptr, bits, op.sem, op.scope)
            return from_bits(kernel, op.result.type, [found])[0]

        return guarded(kernel.b, _acting(kernel, op, register), read, nothing)

    with _ordered(kernel, op):
        found = _each(kernel, op, act)
    _bind(kernel, op, found)


@emits(AtomicStore)
def emit_store(kernel: Kernel, op: AtomicStore) -> None:
    b = kernel.b

    def act(register: int) -> V:
        ptr, value = kernel.env[op.ptr][register], kernel.env[op.value][register]

        def write() -> V:
            (bits,) = to_bits(kernel, [value])
            kernel.hw.store_atomic(b, ptr, bits, op.sem, op.scope)
            return value

        return guarded(kernel.b, _acting(kernel, op, register), write, zero(value.type))

    with _ordered(kernel, op):
        _each(kernel, op, act)


@emits(AtomicPoll)
def emit_poll(kernel: Kernel, op: AtomicPoll) -> None:
    b = kernel.b
    timeout = kernel.env[op.timeout][0] if op.timeout is not None else None

    def act(register: int) -> V:
        ptr, expected = kernel.env[op.ptr][register], kernel.env[op.expected][register]

        def read() -> V:
            return kernel.hw.load_atomic(b, ptr, expected.type, op.sem, op.scope)

        def wait() -> V:
            return wait_until_equal(b, read, expected, timeout, lambda: kernel.hw.nanoseconds(b))

        return guarded(kernel.b, _acting(kernel, op, register), wait, const(I1, 0))

    with _ordered(kernel, op):
        found = _each(kernel, op, act)
    _bind(kernel, op, found)


def _acting(kernel: Kernel, op: AnyAtomic, register: int) -> V | None:
    """Predicate: this thread executes the op for the element in a register; None if always."""
    mask = kernel.env[op.mask][register] if op.mask is not None else None
    owner = one_of_many(kernel, op.ptr)
    if mask is None or owner is None:
        return owner if mask is None else mask
    return kernel.b.and_(owner, mask)


def _each(kernel: Kernel, op: AnyAtomic, act: Callable[[int], V]) -> dict[int, V]:
    """The result of `act` by register, for one register of each set of copies in the thread."""
    layout = op.ptr.layout
    copies = layout.free_variables(REGISTER) if layout is not None else 0
    return {r: act(r) for r in range(len(kernel.env[op.ptr])) if not r & copies}


@contextmanager
def _ordered(kernel: Kernel, op: AnyAtomic, *, fenced: bool = False) -> Generator[None]:
    """Barriers that extend the memory order of the executing threads to the program.

    Args:
        fenced: whether the instructions are relaxed, so that fences must provide the order.
    """
    if op.sem in ("release", "acq_rel"):
        kernel.barrier()
    with _fenced(kernel, op) if fenced else nullcontext():
        yield
    # Broadcasting the result through shared memory contains a barrier already.
    if _acquires(op) and not atomic_scratch(op):
        kernel.barrier()


@contextmanager
def _fenced(kernel: Kernel, op: AnyAtomic) -> Generator[None]:
    """Fences around relaxed instructions of this thread for the memory order of an op."""
    scope = kernel.hw.sync_scope(op.scope)
    if op.sem in ("release", "acq_rel"):
        kernel.b.fence("release", scope)
    yield
    if _acquires(op):
        kernel.b.fence("acquire", scope)


def _acquires(op: AnyAtomic) -> bool:
    """Whether later accesses are ordered after an op."""
    return op.sem in ("acquire", "acq_rel") and not _is_last(op)


def _is_last(op: Op) -> bool:
    """Whether a program accesses no memory after an op, so that no access is ordered after it, and
    blocks may end before it is executed."""
    last: Op | None = op
    while last is not None:
        after = last.next
        while after is not None:
            if not after.pure:
                return False
            after = after.next
        last = last.parent_op()
        if last is not None and not isinstance(last, If):
            return False
    return True


# -- results --------------------------------------------------------------------------------------


def _stays_in_warp(layout: LinearLayout | None) -> bool:
    """Whether all copies of an element are in one warp, in the same register of its lanes.

    A lane bit then either moves the element by a column of its own, or is zero: the free variables
    of the lanes are exactly the zero columns, and masking them out yields the lane to read from.
    """
    if layout is None:
        return False
    copies = layout.free_variables(LANE)
    zeros = sum(1 << i for i, column in enumerate(layout.bases(LANE)) if not column)
    return not layout.free_variables(WARP) and copies == zeros


def _bind(kernel: Kernel, op: Reading, found: dict[int, V]) -> None:
    """Bind the results, broadcasting each to the threads that hold copies of its element."""
    layout = op.result.layout
    if not op.result.users:
        count = len(kernel.env[op.ptr])
        kernel.bind(op, [zero(register_type(op.result.type))] * count)  # never read
        return
    if atomic_scratch(op):
        staged = Staged(kernel, op, op.result)
        staged.write(_all_registers(layout, found))
        kernel.bind(op, staged.read(staged.own_places()))
        return
    assert layout is not None
    b, copies = kernel.b, layout.free_variables(LANE)
    if copies:
        first = b.and_(kernel.lane, ~copies)

        def move(word: V) -> V:
            return kernel.hw.shuffle(b, word, first)

        found = {register: exchanged(b, old, move) for register, old in found.items()}
    kernel.bind(op, _all_registers(layout, found))


def _all_registers(layout: LinearLayout | None, found: dict[int, V]) -> Registers:
    """The values of all registers, given those of one register of each set of copies."""
    if layout is None:
        return [found[0]]
    by_element = {layout.apply_flat(register): value for register, value in found.items()}
    return [by_element[layout.apply_flat(r)] for r in range(layout.in_size(REGISTER))]


# -- without an instruction -----------------------------------------------------------------------


def _compare_loop(
    kernel: Kernel, op: AtomicRMW, register: int, mask: V | None, *, fenced: bool
) -> V:
    """A compare-and-swap loop, for operations without an instruction.

    The first load is volatile rather than atomic: a stale value costs one more iteration. An
    extremum that is in memory already is not written: where many programs update one maximum, few
    of them change it, and the others need not wait for each other.

    Args:
        fenced: whether the loop is between fences.
    """
    ptr, value = (kernel.env[v][register] for v in (op.ptr, op.value))

    def between_fences() -> V:
        with _fenced(kernel, op) if fenced else nullcontext():
            return attempt()

    def attempt() -> V:
        b, bits = kernel.b, int_type(memory_type(op.value.type).bits)
        first = b.load(bits, ptr, volatile=True)
        before, retry, done = b.current, b.block("try"), b.block("swapped")
        b.br(retry)
        b.at(retry)
        old = b.phi(bits)
        old.add(first, before)
        (current,) = from_bits(kernel, op.value.type, [old.value])
        (new,) = to_bits(kernel, [_combined(kernel, op, current, value)])
        if op.kind in ("max", "min"):
            swap = b.block("swap")
            b.cond_br(b.icmp("eq", new, old.value), done, swap)
            b.at(swap)
        scope = kernel.hw.sync_scope(op.scope)
        found, swapped = b.cmpxchg(ptr, old.value, new, "monotonic", scope)
        old.add(found, b.current)
        b.cond_br(swapped, done, retry)
        b.at(done)
        return current

    return guarded(kernel.b, mask, between_fences, zero(value.type))


def _combined(kernel: Kernel, op: AtomicRMW, old: V, value: V) -> V:
    """The new value of the memory, by the lowering of the equivalent arithmetic op."""
    b = kernel.b
    match op.kind:
        case "xchg":
            return value
        case "and":
            return b.and_(old, value)
        case "or":
            return b.or_(old, value)
        case "xor":
            return b.xor(old, value)
        case "add":
            like = arith.Add(op.value, op.value)
            result = lower_add(b, like, old, value)
        case _:
            extremum = arith.Max if op.kind == "max" else arith.Min
            like = extremum(op.value, op.value, propagate_nan=False)
            result = lower_extremum(b, like, old, value)
    like.drop_operands()
    return result

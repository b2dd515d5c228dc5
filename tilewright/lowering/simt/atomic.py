"""Atomic accesses to global memory.

Of the threads that hold copies of an element one acts, and gives the others what it found. Orders
hold for the whole program: all of its threads have done what they did before when one of them
releases, and none goes on before one has acquired.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from tilewright.ir import types as ir
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.arith import lower_add, lower_extremum
from tilewright.lowering.atomic import wait_until_equal
from tilewright.lowering.emit import I1, V, const, int_type, zero
from tilewright.lowering.guard import guarded
from tilewright.lowering.simt.combine import exchanged
from tilewright.lowering.simt.convert import from_bits, to_bits
from tilewright.lowering.simt.hardware import Atomic
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.memory import groups, one_of_many, vector_length
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

_LLVM_ORDER = {"relaxed": "monotonic"}  # the others have the same names


@scratch(AtomicRMW)
@scratch(AtomicCAS)
@scratch(AtomicLoad)
@scratch(AtomicPoll)
def atomic_scratch(op: AnyAtomic) -> int:
    """Memory to spread the results, unless each thread needs only its own or its warp's."""
    if isinstance(op, AtomicStore) or not op.result.users or _stays_in_warp(op.result.layout):
        return 0
    return staged_bytes(op.result)


@emits(AtomicRMW)
def emit_rmw(kernel: Kernel, op: AtomicRMW) -> None:
    """In vectors where there are instructions on them. Of several, none has the order: fences
    around all of them give it, which wait for memory once instead of each time."""
    element = ir.dtype_of(op.value.type)
    what = Atomic(op.kind, element, op.sem, op.scope, bool(op.result.users))
    known = kernel.hw.atomic_length(what)
    length = max(1, min(known, vector_length(kernel, op.ptr, op.mask)))
    starts = list(groups(kernel, op.ptr, length))
    fenced = known == 0 or len(starts) > 1
    if fenced:
        what = replace(what, order="relaxed")
    found: dict[int, V] = {}
    with _ordered(kernel, op, fenced=fenced):
        for start in starts:
            registers = range(start, start + length)
            values = [kernel.env[op.value][r] for r in registers]
            mask = _acting(kernel, op, start)
            old = (
                kernel.hw.atomic(kernel.b, what, kernel.env[op.ptr][start], values, mask)
                if known
                else [_compare_loop(kernel, op, kernel.env[op.ptr][start], values[0], mask)]
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
            want, new = to_bits(kernel, [expected, value])
            old, _ = b.cmpxchg(ptr, want, new, order, scope)
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
    """Whether this thread acts on the element in a register; None where it surely does."""
    mask = kernel.env[op.mask][register] if op.mask is not None else None
    owner = one_of_many(kernel, op.ptr)
    if mask is None or owner is None:
        return owner if mask is None else mask
    return kernel.b.and_(owner, mask)


def _each(kernel: Kernel, op: AnyAtomic, act: Callable[[int], V]) -> dict[int, V]:
    """What each act gives, by register; copies within the thread are left out."""
    layout = op.ptr.layout
    copies = layout.free_variables(REGISTER) if layout is not None else 0
    return {r: act(r) for r in range(len(kernel.env[op.ptr])) if not r & copies}


@contextmanager
def _ordered(kernel: Kernel, op: AnyAtomic, *, fenced: bool = False) -> Generator[None]:
    """Barriers that make the order of the acting threads that of the program.

    Args:
        fenced: whether the instructions are relaxed, so that each thread needs fences too.
    """
    b, scope = kernel.b, kernel.hw.sync_scope(op.scope)
    if op.sem in ("release", "acq_rel"):
        kernel.barrier()
        if fenced:
            b.fence("release", scope)
    yield
    if op.sem in ("acquire", "acq_rel"):
        if fenced:
            b.fence("acquire", scope)
        # Spreading the result through shared memory waits for all threads as well.
        if not atomic_scratch(op):
            kernel.barrier()


# -- results --------------------------------------------------------------------------------------


def _stays_in_warp(layout: LinearLayout | None) -> bool:
    """Whether all copies of an element are in one warp, at the same register of its lanes."""
    if layout is None:
        return False
    copies = layout.free_variables(LANE)
    zeros = sum(1 << i for i, column in enumerate(layout.bases(LANE)) if not column)
    return not layout.free_variables(WARP) and copies == zeros


def _bind(kernel: Kernel, op: Reading, found: dict[int, V]) -> None:
    """Give the results to all that hold copies."""
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
    """The values of all registers from those that are no copies."""
    if layout is None:
        return [found[0]]
    by_element = {layout.apply_flat(register): value for register, value in found.items()}
    return [by_element[layout.apply_flat(r)] for r in range(layout.in_size(REGISTER))]


# -- without an instruction -----------------------------------------------------------------------


def _compare_loop(kernel: Kernel, op: AtomicRMW, ptr: V, value: V, mask: V | None) -> V:
    """Compute the new value, and try to write it until nobody came between."""

    def attempt() -> V:
        b, bits = kernel.b, int_type(memory_type(op.value.type).bits)
        first = b.load(bits, ptr, volatile=True)
        before, again, done = b.current, b.block("try"), b.block("swapped")
        b.br(again)
        b.at(again)
        old = b.phi(bits)
        old.add(first, before)
        (current,) = from_bits(kernel, op.value.type, [old.value])
        (wanted,) = to_bits(kernel, [_combined(kernel, op, current, value)])
        scope = kernel.hw.sync_scope(op.scope)
        found, swapped = b.cmpxchg(ptr, old.value, wanted, "monotonic", scope)
        old.add(found, b.current)
        b.cond_br(swapped, done, again)
        b.at(done)
        return current

    return guarded(kernel.b, mask, attempt, zero(value.type))


def _combined(kernel: Kernel, op: AtomicRMW, old: V, value: V) -> V:
    """What memory shall hold, by the lowering of the op that has the same meaning."""
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

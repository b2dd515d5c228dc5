"""Atomic accesses to global memory.

Of the threads that hold copies of an element one acts, and gives the others what it found. Orders
hold for the whole program: all of its threads have done what they did before when one of them
releases, and none goes on before one has acquired.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

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
    b = kernel.b
    what = Atomic(op.kind, ir.dtype_of(op.value.type), op.sem, op.scope, bool(op.result.users))
    masks = kernel.env[op.mask] if op.mask is not None else None
    owner = one_of_many(kernel, op.ptr)

    def act(register: int) -> V:
        ptr, value = kernel.env[op.ptr][register], kernel.env[op.value][register]
        mask = masks[register] if masks is not None else None
        if owner is not None:
            mask = owner if mask is None else b.and_(owner, mask)
        old = kernel.hw.atomic(b, what, ptr, value, mask)
        if old is not None:
            return old
        return guarded(
            kernel.b, mask, lambda: _compare_loop(kernel, op, ptr, value), zero(value.type)
        )

    with _ordered(kernel, op):
        found = _each(kernel, op, act)
    _bind(kernel, op, found)


@emits(AtomicCAS)
def emit_cas(kernel: Kernel, op: AtomicCAS) -> None:
    b = kernel.b
    owner = one_of_many(kernel, op.ptr)
    masks = kernel.env[op.mask] if op.mask is not None else None
    order, scope = _LLVM_ORDER.get(op.sem, op.sem), kernel.hw.sync_scope(op.scope)

    def act(register: int) -> V:
        ptr, expected, value = (kernel.env[v][register] for v in (op.ptr, op.expected, op.value))

        def swap() -> V:
            want, new = to_bits(kernel, [expected, value])
            old, _ = b.cmpxchg(ptr, want, new, order, scope)
            return from_bits(kernel, op.value.type, [old])[0]

        mask = owner
        if masks is not None:
            mask = masks[register] if owner is None else b.and_(owner, masks[register])
        return guarded(kernel.b, mask, swap, zero(value.type))

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


def _acting(kernel: Kernel, op: AtomicLoad | AtomicStore | AtomicPoll, register: int) -> V | None:
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
def _ordered(kernel: Kernel, op: AnyAtomic) -> Generator[None]:
    """Barriers that make the order of the acting threads that of the program."""
    if op.sem in ("release", "acq_rel"):
        kernel.hw.barrier(kernel.b)
    yield
    # Spreading the result through shared memory waits for all threads as well.
    if op.sem in ("acquire", "acq_rel") and not atomic_scratch(op):
        kernel.hw.barrier(kernel.b)


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


def _compare_loop(kernel: Kernel, op: AtomicRMW, ptr: V, value: V) -> V:
    """Compute the new value, and try to write it until nobody came between.

    The fences around give the order, so that the attempts need none.
    """
    b, scope = kernel.b, kernel.hw.sync_scope(op.scope)
    if op.sem in ("release", "acq_rel"):
        b.fence("release", scope)
    bits = int_type(memory_type(op.value.type).bits)
    first = b.load(bits, ptr, volatile=True)
    before, again, done = b.current, b.block("try"), b.block("swapped")
    b.br(again)
    b.at(again)
    old = b.phi(bits)
    old.add(first, before)
    (current,) = from_bits(kernel, op.value.type, [old.value])
    (wanted,) = to_bits(kernel, [_combined(kernel, op, current, value)])
    found, swapped = b.cmpxchg(ptr, old.value, wanted, "monotonic", scope)
    old.add(found, b.current)
    b.cond_br(swapped, done, again)
    b.at(done)
    if op.sem in ("acquire", "acq_rel"):
        b.fence("acquire", scope)
    return current


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

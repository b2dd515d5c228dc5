"""Atomic accesses: sequential, element by element in row-major order.

The operands of updates without a result are computed in vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd

from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.lowering.arith import lower_add, lower_extremum
from tilewright.lowering.atomic import wait_until_equal
from tilewright.lowering.emit import I1, I8, I32, I64, Builder, LType, V, const, int_type, zero
from tilewright.lowering.guard import guarded
from tilewright.lowering.types import memory_type, register_type
from tilewright.ops import arith, atomic
from tilewright.ops.memory import pointee_of
from tilewright.targets.cpu import access
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes, neighbours
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.loops import loop, over_axes
from tilewright.targets.cpu.steps import emits

_ORDER = {
    "relaxed": "monotonic",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
}
_INT_OPS = {"add": "add", "and": "and", "or": "or", "xor": "xor", "xchg": "xchg"}

Exchange = Callable[[Level, Coords], V]


@emits(atomic.AtomicRMW)
def emit_rmw(kernel: Kernel, level: Level, op: atomic.AtomicRMW) -> None:
    def exchange(at: Level, coords: Coords) -> V:
        ptr, value = evaluate(at, op.ptr, coords).base, evaluate(at, op.value, coords).base
        mask = evaluate(at, op.mask, coords).base if op.mask is not None else None
        return guarded(at.b, mask, lambda: _rmw(kernel, op, ptr, value), zero(value.type))

    width = _vector_width(kernel, op)
    if width > 1:
        _update_in_vectors(kernel, level, op, width)
    else:
        _each(kernel, level, op, op.ptr, exchange)


def _vector_width(kernel: Kernel, op: atomic.AtomicRMW) -> int:
    """The number of lanes in which the operands of an update are computed; 1 if its result is
    used."""
    if not isinstance(op.ptr.type, ir.Tile) or op.result.users:
        return 1
    return gcd(op.ptr.type.shape[-1], kernel.lanes)


def _update_in_vectors(kernel: Kernel, level: Level, op: atomic.AtomicRMW, width: int) -> None:
    """Compute pointers, values and masks in vectors along the last axis, write them to the stack,
    and update the elements from there, one after the other."""
    b = kernel.b
    shape = ir.shape_of(op.ptr.type)
    operands = [op.ptr, op.value, *([op.mask] if op.mask is not None else [])]

    def update(outer: Level, at: dict[int, Lanes]) -> None:
        with loop(outer, const(I64, 0), const(I64, shape[-1]), width, width=width) as vectors:
            here = vectors.level
            coords = (*at.values(), neighbours(vectors.index, width, here.depth))
            found = [here.vector(evaluate(here, operand, coords)) for operand in operands]
            lanes = [_on_stack(b, vector) for vector in found]
            with loop(here, const(I64, 0), const(I64, width), 1, width=1) as each:
                ptr, value, *mask = (b.load(t, b.gep(t, place, each.index)) for t, place in lanes)
                update = partial(_rmw, kernel, op, ptr, value)
                guarded(b, b.icmp("ne", mask[0], 0) if mask else None, update, zero(value.type))
                each.level.block = b.current

    over_axes(level, shape, list(range(len(shape) - 1)), update)


def _on_stack(b: Builder, vector: V) -> tuple[LType, V]:
    """The elements of a vector on the stack: their type, and their address. Bits become bytes."""
    if vector.type.element is I1:
        vector = b.zext(vector, I8)
    assert vector.type.lanes
    place = b.alloca(vector.type)
    b.store(vector, place)
    return vector.type.element, place


@emits(atomic.AtomicCAS)
def emit_cas(kernel: Kernel, level: Level, op: atomic.AtomicCAS) -> None:
    def exchange(at: Level, coords: Coords) -> V:
        b = at.b
        values = [evaluate(at, v, coords).base for v in (op.ptr, op.expected, op.value)]
        mask = evaluate(at, op.mask, coords).base if op.mask is not None else None
        ptr, expected, value = values

        def swap() -> V:
            bits = int_type(value.type.bits)
            compare, new = b.bitcast(expected, bits), b.bitcast(value, bits)
            old, _ = b.cmpxchg(ptr, compare, new, _ORDER[op.sem])
            return b.bitcast(old, value.type)

        return guarded(at.b, mask, swap, zero(value.type))

    _each(kernel, level, op, op.ptr, exchange)


@emits(atomic.AtomicLoad)
def emit_load(kernel: Kernel, level: Level, op: atomic.AtomicLoad) -> None:
    register, bits = register_type(op.result.type), _bits_of(op.ptr)

    def read(at: Level, coords: Coords) -> V:
        ptr = evaluate(at, op.ptr, coords).base
        mask = evaluate(at, op.mask, coords).base if op.mask is not None else None

        def act() -> V:
            found = at.b.load_atomic(bits, ptr, _ORDER[op.sem])
            return at.b.icmp("ne", found, 0) if register is I1 else at.b.bitcast(found, register)

        return guarded(at.b, mask, act, zero(register))

    _each(kernel, level, op, op.ptr, read)


@emits(atomic.AtomicStore)
def emit_store(kernel: Kernel, level: Level, op: atomic.AtomicStore) -> None:
    bits = _bits_of(op.ptr)

    def write(at: Level, coords: Coords) -> V:
        ptr, value = evaluate(at, op.ptr, coords).base, evaluate(at, op.value, coords).base
        mask = evaluate(at, op.mask, coords).base if op.mask is not None else None

        def act() -> V:
            kept = at.b.zext(value, bits) if value.type is I1 else at.b.bitcast(value, bits)
            at.b.store_atomic(kept, ptr, _ORDER[op.sem])
            return value

        return guarded(at.b, mask, act, zero(value.type))

    _each(kernel, level, op, op.ptr, write)


@emits(atomic.AtomicPoll)
def emit_poll(kernel: Kernel, level: Level, op: atomic.AtomicPoll) -> None:
    def wait(at: Level, coords: Coords) -> V:
        ptr, expected = evaluate(at, op.ptr, coords).base, evaluate(at, op.expected, coords).base
        mask = evaluate(at, op.mask, coords).base if op.mask is not None else None
        timeout = evaluate(at, op.timeout, ()).base if op.timeout is not None else None

        def read() -> V:
            return at.b.load_atomic(expected.type, ptr, _ORDER[op.sem])

        def act() -> V:
            return wait_until_equal(at.b, read, expected, timeout, lambda: _nanoseconds(at.b))

        return guarded(at.b, mask, act, zero(I1))

    _each(kernel, level, op, op.ptr, wait)


def _bits_of(ptr: Value) -> LType:
    """The integer type of an element's size in memory."""
    return int_type(memory_type(pointee_of(ptr.type)).bits)


CLOCK_MONOTONIC = 1  # Linux: time.h


def _nanoseconds(b: Builder) -> V:
    """A monotonic clock, by the C library: nanoseconds since an unspecified moment, i64."""
    room = b.alloca(I64, 2, align=8)
    b.call("clock_gettime", I32, [const(I32, CLOCK_MONOTONIC), room])
    seconds, rest = b.load(I64, room), b.load(I64, b.gep(I64, room, 1))
    return b.add(b.mul(seconds, const(I64, 1_000_000_000)), rest)


def _each(kernel: Kernel, level: Level, op: Op, ptr: Value, exchange: Exchange) -> None:
    """Visit the elements in row-major order; collect the results in a buffer if they are used."""
    b = kernel.b
    if not isinstance(ptr.type, ir.Tile):
        found = exchange(level, ())
        if op.results:
            kernel.env[op.result] = found
        level.block = b.current
        return
    buffer = kernel.buffer(op.result) if op.results and op.result.users else None

    def visit(at: Level, coords: dict[int, Lanes]) -> None:
        point = tuple(coords[axis] for axis in axes)
        old = exchange(at, point)
        at.block = b.current
        if buffer is not None:
            access.write_buffer(at, buffer, point, Lanes(old, 0, at.depth))

    axes = list(range(len(ptr.type.shape)))
    over_axes(level, ptr.type.shape, axes, visit)
    if buffer is not None:
        kernel.env[op.result] = buffer


def _rmw(kernel: Kernel, op: atomic.AtomicRMW, ptr: V, value: V) -> V:
    b, element = kernel.b, ir.dtype_of(op.value.type)
    order = _ORDER[op.sem]
    if kernel.single_threaded and op.kind == "add" and op.sem == "relaxed":
        return _add(b, op, ptr, value)
    if op.kind == "xchg":
        bits = int_type(value.type.bits)
        return b.bitcast(b.atomicrmw("xchg", ptr, b.bitcast(value, bits), order), value.type)
    if not element.is_floating():
        name = _INT_OPS.get(op.kind) or ("" if element.is_int_signed() else "u") + op.kind
        return b.atomicrmw(name, ptr, value, order)
    if op.kind == "add" and element.primitive_bitwidth >= 32:
        return b.atomicrmw("fadd", ptr, value, order)
    return _compare_loop(b, op, ptr, value, order)


def _add(b: Builder, op: atomic.AtomicRMW, ptr: V, value: V) -> V:
    """An addition in memory that no other thread accesses."""
    bits = int_type(memory_type(op.value.type).bits)
    old = b.bitcast(b.load(bits, ptr), value.type)
    b.store(b.bitcast(_combined(b, op, old, value), bits), ptr)
    return old


def _compare_loop(b: Builder, op: atomic.AtomicRMW, ptr: V, value: V, order: str) -> V:
    """A compare-and-swap loop, for what has no instruction."""
    bits = int_type(memory_type(op.value.type).bits)
    first = b.load(bits, ptr)
    before, retry, done = b.current, b.block("try"), b.block("swapped")
    b.br(retry)
    b.at(retry)
    old = b.phi(bits)
    old.add(first, before)
    current = b.bitcast(old.value, value.type)
    new = b.bitcast(_combined(b, op, current, value), bits)
    found, ok = b.cmpxchg(ptr, old.value, new, order)
    old.add(found, b.current)
    b.cond_br(ok, done, retry)
    b.at(done)
    return current


def _combined(b: Builder, op: atomic.AtomicRMW, old: V, value: V) -> V:
    if op.kind == "add":
        like = arith.Add(op.value, op.value)
        result = lower_add(b, like, old, value)
    else:
        extremum = arith.Max if op.kind == "max" else arith.Min
        like = extremum(op.value, op.value, propagate_nan=False)
        result = lower_extremum(b, like, old, value)
    like.drop_operands()
    return result

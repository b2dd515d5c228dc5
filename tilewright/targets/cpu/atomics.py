"""Atomic accesses: sequential, element by element in row-major order.

Updates of tiles without a result are roots of loop nests instead (`sinks.Update`).
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.lowering.atomic import wait_until_equal
from tilewright.lowering.emit import I1, I32, I64, Builder, LType, V, const, int_type, zero
from tilewright.lowering.guard import guarded
from tilewright.lowering.types import memory_type, register_type
from tilewright.ops import atomic
from tilewright.ops.memory import pointee_of
from tilewright.targets.cpu import access
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.loops import over_axes
from tilewright.targets.cpu.update import ORDER, update

Exchange = Callable[[Level, Coords], V]


def emit_rmw(kernel: Kernel, level: Level, op: atomic.AtomicRMW) -> None:
    """An update of a scalar, or one whose result is used: `sinks.Update` is the other."""

    def exchange(at: Level, coords: Coords) -> V:
        ptr, value = evaluate(at, op.ptr, coords).base, evaluate(at, op.value, coords).base
        mask = evaluate(at, op.mask, coords).base if op.mask is not None else None
        return guarded(at.b, mask, lambda: update(kernel, op, ptr, value), zero(value.type))

    _each(kernel, level, op, op.ptr, exchange)


def emit_cas(kernel: Kernel, level: Level, op: atomic.AtomicCAS) -> None:
    def exchange(at: Level, coords: Coords) -> V:
        b = at.b
        values = [evaluate(at, v, coords).base for v in (op.ptr, op.expected, op.value)]
        mask = evaluate(at, op.mask, coords).base if op.mask is not None else None
        ptr, expected, value = values

        def swap() -> V:
            bits = int_type(value.type.bits)
            compare, new = b.bitcast(expected, bits), b.bitcast(value, bits)
            old, _ = b.cmpxchg(ptr, compare, new, ORDER[op.sem])
            return b.bitcast(old, value.type)

        return guarded(at.b, mask, swap, zero(value.type))

    _each(kernel, level, op, op.ptr, exchange)


def emit_load(kernel: Kernel, level: Level, op: atomic.AtomicLoad) -> None:
    register, bits = register_type(op.result.type), _bits_of(op.ptr)

    def read(at: Level, coords: Coords) -> V:
        ptr = evaluate(at, op.ptr, coords).base
        mask = evaluate(at, op.mask, coords).base if op.mask is not None else None

        def act() -> V:
            found = at.b.load_atomic(bits, ptr, ORDER[op.sem])
            return at.b.icmp("ne", found, 0) if register is I1 else at.b.bitcast(found, register)

        return guarded(at.b, mask, act, zero(register))

    _each(kernel, level, op, op.ptr, read)


def emit_store(kernel: Kernel, level: Level, op: atomic.AtomicStore) -> None:
    bits = _bits_of(op.ptr)

    def write(at: Level, coords: Coords) -> V:
        ptr, value = evaluate(at, op.ptr, coords).base, evaluate(at, op.value, coords).base
        mask = evaluate(at, op.mask, coords).base if op.mask is not None else None

        def act() -> V:
            kept = at.b.zext(value, bits) if value.type is I1 else at.b.bitcast(value, bits)
            at.b.store_atomic(kept, ptr, ORDER[op.sem])
            return value

        return guarded(at.b, mask, act, zero(value.type))

    _each(kernel, level, op, op.ptr, write)


def emit_poll(kernel: Kernel, level: Level, op: atomic.AtomicPoll) -> None:
    def wait(at: Level, coords: Coords) -> V:
        ptr, expected = evaluate(at, op.ptr, coords).base, evaluate(at, op.expected, coords).base
        mask = evaluate(at, op.mask, coords).base if op.mask is not None else None
        timeout = evaluate(at, op.timeout, ()).base if op.timeout is not None else None

        def read() -> V:
            return at.b.load_atomic(expected.type, ptr, ORDER[op.sem])

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

"""Loads, stores and addresses of global memory.

An access moves as many successive registers at once as layout, contiguity, alignment and mask allow
(`Kernel.access_length`), at most `Kernel.access_bytes`. A store is executed by one of the threads
that hold an element.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import reduce

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.lowering.emit import I64, LType, V, const, int_type
from tilewright.lowering.simt.access_report import report_access
from tilewright.lowering.simt.buffer_access import load_buffer, places
from tilewright.lowering.simt.hardware import CachePolicy
from tilewright.lowering.simt.kernel import (
    Kernel,
    Registers,
    each_once,
    emits,
    register_count,
    with_unread,
)
from tilewright.lowering.simt.slopes import walk_of
from tilewright.lowering.simt.words import Words
from tilewright.ops import memory

PARTS_AHEAD = 2
"""The parts of a tile that are computed before the first one is stored, so that its store does not
wait for the loads from shared memory."""


@emits(memory.AddPtr)
def emit_addptr(kernel: Kernel, op: memory.AddPtr) -> None:
    kernel.bind(op, _stepped(kernel, op) or _separate_addresses(kernel, op))


def _pointee(op: memory.AddPtr) -> LType:
    return int_type(memory.pointee_of(op.ptr.type).nbytes_in_memory * 8)


def _separate_addresses(kernel: Kernel, op: memory.AddPtr) -> Registers:
    """Each address computed from its own offset."""
    b, pointee = kernel.b, _pointee(op)
    signed = ir.dtype_of(op.offset.type).is_int_signed()

    def address(ptr: V, offset: V) -> V:
        if offset.type.bits < 64:
            offset = b.sext(offset, I64) if signed else b.zext(offset, I64)
        return b.gep(pointee, ptr, offset)

    read = kernel.read_registers(op.result)
    operands = [[kernel.env[v][r] for r in read] for v in (op.ptr, op.offset)]
    found = dict(zip(read, each_once(address, operands), strict=True))
    return with_unread(found, register_count(op.result))


def _stepped(kernel: Kernel, op: memory.AddPtr) -> Registers | None:
    """Each address computed from the preceding one by a uniform step; None if there is none.

    The live values are then the first offset and one step, 64 bits each, instead of an offset for
    each address. A product of 128 x 128 that reads its operands through descriptors takes 168
    registers instead of 214, so that three programs fit on a multiprocessor.
    """
    ptr = kernel.env[op.ptr]
    if ir.dtype_of(op.offset.type).primitive_bitwidth < 64 or any(p is not ptr[0] for p in ptr):
        return None
    walk = walk_of(op.offset)
    if walk is None:
        return None
    b, pointee = kernel.b, _pointee(op)
    here, last = b.gep(pointee, ptr[0], kernel.env[op.offset][0]), (0,) * len(walk.scalars)
    starts: dict[tuple[int, ...], V] = {}
    steps: dict[tuple[int, ...], V] = {last: const(I64, 0)}
    read = kernel.read_registers(op.result)
    for place in sorted({walk.places[r] for r in read}):
        step = tuple(x - y for x, y in zip(place, last, strict=True))
        if step not in steps:
            terms = zip(walk.scalars, step, strict=True)
            steps[step] = reduce(b.add, (b.mul(kernel.scalar(s), const(I64, n)) for s, n in terms))
        here = starts[place] = b.gep(pointee, here, steps[step])
        last = place
    found = {r: b.gep(pointee, starts[walk.places[r]], walk.rest[r]) for r in read}
    return with_unread(found, register_count(op.result))


@emits(memory.Load)
def emit_load(kernel: Kernel, op: memory.Load) -> None:
    length = kernel.access_length(op.ptr, op.mask)
    if kernel.ctx.explain:
        report_access(kernel, op, length)
    access = Words(kernel.b, op.result.type, length)
    policy = CachePolicy(op.cache, op.evict, op.volatile)
    pointers = kernel.env[op.ptr]
    masks = kernel.env[op.mask] if op.mask is not None else None
    others = kernel.env[op.other] if op.other is not None else None
    place = places(kernel, op, policy, length)
    done: dict[tuple[V, ...], Registers] = {}
    found: Registers = []
    for start in range(0, len(pointers), length):
        other = others[start : start + length] if others else []
        mask = masks[start] if masks else None
        key = tuple(v for v in (pointers[start], mask, *other) if v is not None)
        got = done.get(key)
        if got is None or op.volatile:
            packed = access.pack(other) if other else None
            if place is not None:
                words = load_buffer(kernel, place(start), access, mask, packed)
            else:
                words = kernel.hw.load(
                    kernel.b, pointers[start], access.count, access.bits, mask, packed, policy
                )
            got = done[key] = access.unpack(words)
        found += got
    kernel.bind(op, found)


@emits(memory.Store)
def emit_store(kernel: Kernel, op: memory.Store) -> None:
    length = kernel.access_length(op.ptr, op.mask)
    if kernel.ctx.explain:
        report_access(kernel, op, length)
    access = Words(kernel.b, op.value.type, length)
    policy = CachePolicy(op.cache, op.evict)
    pointers = kernel.env[op.ptr]
    masks = kernel.env[op.mask] if op.mask is not None else None
    owner = one_of_many(kernel, op.ptr)
    place = places(kernel, op, policy, length)

    def store(values: Mapping[int, V]) -> None:
        for start in kernel.access_starts(op.ptr, length):
            if start not in values:
                continue
            mask = masks[start] if masks else None
            if owner is not None:
                mask = owner if mask is None else kernel.b.and_(owner, mask)
            words = access.pack([values[start + i] for i in range(length)])
            if place is not None:
                kernel.hw.store_buffer(kernel.b, place(start), words, mask)
            else:
                kernel.hw.store(kernel.b, pointers[start], words, mask, policy)

    waiting: deque[Mapping[int, V]] = deque()
    for part in kernel.parts(op.value):
        waiting.append(part)
        if len(waiting) > PARTS_AHEAD:
            store(waiting.popleft())
    for part in waiting:
        store(part)


def one_of_many(kernel: Kernel, ptr: Value) -> V | None:
    """Predicate: of the threads that hold an element, this one accesses memory; None if always."""
    if ptr.layout is None:
        return kernel.b.icmp("eq", kernel.thread, const(kernel.thread.type, 0))
    return kernel.is_first_holder(ptr.layout)

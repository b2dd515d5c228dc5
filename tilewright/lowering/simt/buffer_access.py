"""Accesses of global memory by a uniform address and an offset for each lane.

On GPUs with `Hardware.has_buffers`, an access whose offset is out of a buffer's range loads 0 and
stores nothing. A masked lane gets such an offset: there is neither a branch nor an address of 64
bits for each access. `analysis/buffers.py` determines the accesses of one buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.analysis.buffers import is_plain, span_of
from tilewright.analysis.pointers import PointerParts, split_pointer
from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.lowering.emit import I8, I32, I64, Builder, V, const
from tilewright.lowering.simt.hardware import CachePolicy, Place
from tilewright.lowering.simt.kernel import Kernel
from tilewright.lowering.simt.words import Words
from tilewright.ops import memory

PlaceOf = Callable[[int], Place]


def places(
    kernel: Kernel, access: memory.Load | memory.Store, policy: CachePolicy, length: int
) -> PlaceOf | None:
    """The place of each register's access of `length` elements; None if it is none of a buffer.

    Without a mask, the descriptor only pays for several accesses of a thread: they need no address
    of 64 bits each, and in a loop none that moves.
    """
    ptr = access.ptr
    plain = is_plain(policy.cache, policy.evict, policy.volatile)
    if not kernel.hw.has_buffers or not plain or ptr.layout is None:
        return None
    if access.mask is None and len(kernel.access_starts(ptr, length)) == 1:
        return None
    span = span_of(kernel.fn, access)
    if span is None:
        return None
    b, parts = kernel.b, split_pointer(ptr)
    assert parts.varying is not None
    size = memory.pointee_of(ptr.type).nbytes_in_memory
    argument, advance, distance = span.argument, None, None
    if argument is None and parts.uniform is None and parts.base.owner is kernel.fn.body:
        argument = parts.base
    if span.argument is not None:
        base, distance = kernel.scalar(span.argument), _distance(kernel, parts, size)
        if span.advance is not None:
            carried, start = map(kernel.scalar, span.advance)
            moved = b.mul(b.sub(carried, start), const(I64, size))
            advance = b.trunc(moved, I32)
            distance = b.sub(distance, advance)
    else:
        base = kernel.scalar(parts.base)
        if parts.uniform is not None:
            base = b.gep(I8, base, b.mul(kernel.scalar(parts.uniform), const(I64, size)))
    if span.before:
        base = b.gep(I8, base, const(I64, -span.before))
    offsets = kernel.env[parts.varying]

    def place(register: int) -> Place:
        offset = b.mul(_as_word(b, offsets[register], parts.varying), const(I32, size))
        if distance is not None:
            offset = b.add(offset, distance)
        if span.before:
            offset = b.add(offset, span.before)
        return Place(base, offset, span.size, argument is not None, advance)

    return place


def _as_word(b: Builder, offset: V, value: Value | None) -> V:
    """An offset, of the type of a value, modulo 2^32."""
    assert value is not None
    if offset.type.bits >= I32.bits:
        return b.trunc(offset, I32) if offset.type.bits > I32.bits else offset
    return b.sext(offset, I32) if ir.dtype_of(value.type).is_int_signed() else b.zext(offset, I32)


def _distance(kernel: Kernel, parts: PointerParts, size: int) -> V:
    """The uniform distance of an access from its argument, in bytes, modulo 2^32."""
    b = kernel.b
    bytes_of = [(parts.uniform, size)] if parts.uniform is not None else []
    pointer = parts.base
    while pointer.op is not None:
        if isinstance(pointer.op, memory.AddPtr):
            step = memory.pointee_of(pointer.type).nbytes_in_memory
            bytes_of.append((pointer.op.offset, step))
        pointer = pointer.op.operands[0]
    total: V = const(I32, 0)
    for offset, step in bytes_of:
        value = kernel.scalar(offset)
        total = b.add(total, b.mul(_as_word(b, value, offset), const(I32, step)))
    return total


def load_buffer(
    kernel: Kernel, place: Place, access: Words, mask: V | None, other: Sequence[V] | None
) -> list[V]:
    """The words of an access; those of `other` where it is masked off."""
    got = kernel.hw.load_buffer(kernel.b, place, access.count, access.bits, mask)
    if mask is None or other is None:
        return got
    return [kernel.b.select(mask, x, y) for x, y in zip(got, other, strict=True)]

"""Masked accesses of global memory by a uniform address and an offset for each lane.

On GPUs with `Hardware.has_buffers`, an access whose offset is out of a buffer's range loads 0 and
stores nothing. A masked lane gets such an offset: there is neither a branch nor an address of 64
bits for each access. `analysis/buffers.py` tells which accesses are in one buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.analysis.buffers import is_plain, span_of
from tilewright.analysis.pointers import split_pointer
from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.lowering.emit import I8, I32, I64, V, const
from tilewright.lowering.simt.hardware import CachePolicy, Place
from tilewright.lowering.simt.kernel import Kernel
from tilewright.lowering.simt.words import Words
from tilewright.ops import memory

PlaceOf = Callable[[int], Place]


def places(kernel: Kernel, ptr: Value, mask: Value | None, policy: CachePolicy) -> PlaceOf | None:
    """The place of each register's access; None if it is no access of a buffer."""
    plain = is_plain(policy.cache, policy.evict, policy.volatile)
    if not kernel.hw.has_buffers or mask is None or not plain or ptr.layout is None:
        return None
    span = span_of(kernel.fn, ptr)
    if span is None:
        return None
    b, parts = kernel.b, split_pointer(ptr)
    assert parts.varying is not None
    size = memory.pointee_of(ptr.type).nbytes_in_memory
    signed = ir.dtype_of(parts.varying.type).is_int_signed()
    base = kernel.scalar(parts.base)
    if parts.uniform is not None:
        base = b.gep(I8, base, b.mul(kernel.scalar(parts.uniform), const(I64, size)))
    if span.before:
        base = b.gep(I8, base, const(I64, -span.before))
    offsets = kernel.env[parts.varying]

    def place(register: int) -> Place:
        offset = offsets[register]
        if offset.type.bits > 32:
            offset = b.trunc(offset, I32)
        elif offset.type.bits < 32:
            offset = b.sext(offset, I32) if signed else b.zext(offset, I32)
        offset = b.mul(offset, const(I32, size))
        return Place(base, b.add(offset, span.before) if span.before else offset, span.size)

    return place


def load_buffer(
    kernel: Kernel, place: Place, access: Words, mask: V, other: Sequence[V] | None
) -> list[V]:
    """The words of an access; those of `other` where it is masked off."""
    got = kernel.hw.load_buffer(kernel.b, place, access.count, access.bits, mask)
    if other is None:
        return got
    return [kernel.b.select(mask, x, y) for x, y in zip(got, other, strict=True)]

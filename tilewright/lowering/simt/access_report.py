"""Remarks on the width of each load and store, with the reason why it is not wider.

Emitted only with `ctx.explain`. An access of `Kernel.access_bytes`, or one that takes all elements
of its thread at once, is reported as applied; any other, as a missed vectorisation with the first
limit that applies: contiguity of the addresses, then their alignment, then the mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.types import shape_of
from tilewright.layout.linear import REGISTER
from tilewright.ops import memory
from tilewright.passes.access_reasons import Reasons

if TYPE_CHECKING:
    from tilewright.lowering.simt.kernel import Kernel

NAME = "vectorise"


def report_access(kernel: Kernel, op: memory.Load | memory.Store, length: int) -> None:
    """Emit the remark of an access that moves `length` elements of a thread per instruction."""
    verb = "loads" if isinstance(op, memory.Load) else "stores"
    size = memory.pointee_of(op.ptr.type).nbytes_in_memory
    layout = op.ptr.layout
    if layout is None:
        kernel.ctx.did(NAME, f"{verb} one element ({_bytes(size)})", op.loc)
        return
    times = layout.in_size(REGISTER) // length
    text = f"each thread {verb} {_bytes(length * size)} at a time, {_times(times)}"
    if length * size >= kernel.access_bytes:
        kernel.ctx.did(NAME, text, op.loc)
        return
    why = _why_no_wider(kernel, op, length, size)
    if why:
        kernel.ctx.missed(NAME, f"{text}: {why}", op.loc)
    else:
        held = layout.in_size(REGISTER)
        if held < kernel.access_bytes // size:
            text += f": a thread holds {held} of the {_count(op)} elements"
        kernel.ctx.did(NAME, text, op.loc)


def _why_no_wider(kernel: Kernel, op: memory.Load | memory.Store, length: int, size: int) -> str:
    """The property of addresses or mask that limits the access to `length` elements; "" if none
    does."""
    info, reasons = kernel.infos[op.ptr], Reasons(kernel.fn, kernel.infos)
    axis = info.order[0]
    if info.contiguity[axis] <= length < shape_of(op.ptr.type)[axis]:
        return reasons.why_not_contiguous(op.ptr, axis)
    if info.divisibility[axis] // size <= length:
        return reasons.why_unaligned(op.ptr, kernel.access_bytes)
    if op.mask is not None and kernel.infos[op.mask].constancy[axis] <= length:
        return reasons.why_mask_varies(op.mask, axis, kernel.access_bytes // size)
    return ""


def _count(op: memory.Load | memory.Store) -> int:
    count = 1
    for extent in shape_of(op.ptr.type):
        count *= extent
    return count


def _bytes(count: int) -> str:
    return f"{count} byte{'s' * (count > 1)}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")

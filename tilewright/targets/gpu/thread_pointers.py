"""The number of registers for per-thread pointers that are live throughout a loop."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.layout.families import without_duplicates
from tilewright.layout.linear import REGISTER
from tilewright.ops.memory import AddPtr, pointee_of
from tilewright.ops.shape import Broadcast

MAX_BYTES = 16
"""The most bytes between the addresses of a thread that differ in the loop-invariant part: those of
one access. More accesses would take a pointer each, in registers, throughout the loop."""


def is_one_access(offset: Value, op: AddPtr) -> bool:
    """Whether the offsets of a thread are those of adjacent elements, broadcast to the others."""
    source = offset.op
    layout = source.src.layout if isinstance(source, Broadcast) else offset.layout
    if layout is None:
        return False
    count = 1 << len(without_duplicates(layout).bases(REGISTER))
    return count * pointee_of(op.result.type).nbytes_in_memory <= MAX_BYTES

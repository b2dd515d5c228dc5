"""The buffers that accesses of global memory are in, for GPUs whose buffers check their bounds.

A buffer has a uniform address and 4 GiB at most, in which each lane has an offset. So it exists for

- offsets whose range is known to be non-negative, and less than 2 GiB;
- any offset from an argument with the attribute `pointer_range`, all accesses through which are
  less than 2 GiB apart from it. What counts is the sum of all offsets, which may be added modulo
  2^32.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.analysis.pointers import base_of, split_pointer
from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Function, Value
from tilewright.ir.types import Tile
from tilewright.ops.control import For, While
from tilewright.ops.memory import pointee_of

FEATURE = "buffers"
"""The feature of targets that access masked tiles by buffers."""

HALF = 1 << 31  # bytes: half of the range of an offset
POINTER_RANGE = 32  # bits of an offset
SPARE = 32  # bytes at the end of a buffer that nothing accesses: no access wraps around its end


class Span(NamedTuple):
    """The bytes of a buffer: `before` and behind an address, `size` together.

    Attributes:
        argument: the address, with all offsets relative to it; None for that of the uniform part
            of the access, to which only the varying part is relative.
    """

    before: int
    size: int
    argument: Value | None = None


def span_of(fn: Function, ptr: Value) -> Span | None:
    """The buffer that all lanes of an access are in; None if it is not known to exist.

    It is that around the argument, if a loop computes the uniform part anew: adding that to an
    offset is one instruction, the start of another buffer takes seven.
    """
    parts = split_pointer(ptr)
    if parts.varying is None or isinstance(parts.base.type, Tile):
        return None
    root = base_of(parts.base)
    facts = fn.arg_attrs[root.index] if root.owner is fn.body else {}
    near = facts.get("pointer_range") == POINTER_RANGE
    if near and parts.uniform is not None and _moves(parts.uniform, ptr):
        return Span(HALF - SPARE, 2 * HALF - SPARE, root)
    low, high = value_range(parts.varying)
    size = pointee_of(ptr.type).nbytes_in_memory
    if low >= 0 and (high + 1) * size <= HALF:
        return Span(0, HALF)
    return Span(HALF - SPARE, 2 * HALF - SPARE) if near else None


def _moves(uniform: Value, ptr: Value) -> bool:
    """Whether a loop computes the uniform part of an address anew in each iteration, from its
    index. One that is carried is the start of a buffer but for two additions."""
    op = uniform.op
    return op is not None and op.parent is ptr.region and isinstance(op.parent_op(), For | While)


def is_plain(cache: str, evict: str, volatile: bool) -> bool:
    """Whether accesses of buffers have the cache policy of an access."""
    return not volatile and not cache and evict != "evict_first"

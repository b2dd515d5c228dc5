"""The buffers that accesses of global memory are in, for GPUs whose buffers check their bounds.

A buffer has a uniform address and 4 GiB at most, in which each lane has an offset. So it exists for

- offsets whose range is known to be non-negative, and less than 2 GiB; if they are computed from
  negative numbers, the buffer begins before its address (`_has_negative_term`);
- any offset from an argument with the attribute `pointer_range`, all accesses through which are
  less than 2 GiB apart from it. What counts is the sum of all offsets, which may be added modulo
  2^32.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.analysis.pointers import base_of, split_pointer
from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Function, Value
from tilewright.ir.types import Tile, element_of
from tilewright.ops import arith
from tilewright.ops.control import For, While
from tilewright.ops.memory import Load, Store, pointee_of
from tilewright.ops.view import View

FEATURE = "buffers"
"""The feature of targets that access masked tiles by buffers."""

HALF = 1 << 31  # bytes: half of the range of an offset
POINTER_RANGE = 32  # bits of an offset
FOLDED = 1 << 23
"""Constants below this may be added to an offset by the instruction."""
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
        before = FOLDED if _has_negative_term(parts.varying) else 0
        return Span(before, before + HALF)
    return Span(HALF - SPARE, 2 * HALF - SPARE) if near else None


# Ops through which a code generator finds that a value is a sum with a constant.
_TRANSPARENT = arith.Add, arith.Mul, arith.Shl, arith.Or, arith.Cast, arith.Min, arith.Max


def _has_negative_term(offset: Value) -> bool:
    """Whether an offset that is not negative may be the sum of a constant and a negative number.

    Then LLVM has the instruction add the constant, or a part of it. What is left is out of the
    buffer's range: GPUs compare it, and do not add modulo 2^32.
    """
    pending, seen = [offset], set[Value]()
    while pending:
        value = pending.pop()
        if value in seen or not element_of(value.type).is_int():
            continue
        seen.add(value)
        if value_range(value)[0] < 0:
            return True
        op = value.op
        if isinstance(op, arith.Sub | arith.Neg):
            if not isinstance(op.operands[-1].op, arith.Constant):
                return True
            pending.append(op.operands[0])
        elif isinstance(op, arith.Select):
            pending += op.operands[1:]
        elif isinstance(op, (*_TRANSPARENT, View)):
            pending += op.operands
    return False


def _moves(uniform: Value, ptr: Value) -> bool:
    """Whether a loop computes the uniform part of an address anew in each iteration, from its
    index. One that is carried is the start of a buffer but for two additions."""
    op = uniform.op
    return op is not None and op.parent is ptr.region and isinstance(op.parent_op(), For | While)


def has_free_mask(fn: Function, access: Load | Store) -> bool:
    """Whether an access has a mask, which a buffer applies without a branch."""
    plain = is_plain(access.cache, access.evict, isinstance(access, Load) and access.volatile)
    return plain and access.mask is not None and span_of(fn, access.ptr) is not None


def is_plain(cache: str, evict: str, volatile: bool) -> bool:
    """Whether accesses of buffers have the cache policy of an access."""
    return not volatile and not cache and evict != "evict_first"

"""The buffers of accesses of global memory, for GPUs whose buffers check bounds.

A buffer has a uniform address and at most 4 GiB, in which each lane has an offset. It is used for

- offsets whose range is known to be non-negative and less than 2 GiB; if they are computed from
  negative numbers, the buffer begins before its address (`_has_negative_term`);
- any offset from an argument with the attribute `pointer_range`, if all accesses through it are
  within 2 GiB. Only the sum of all offsets matters, which may be computed modulo 2^32.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.analysis.pointers import base_of, split_pointer
from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Function, Region, Value
from tilewright.ir.types import Tile, dtype_of, element_of
from tilewright.ops import arith
from tilewright.ops.arith import constant_value
from tilewright.ops.control import For, If, While
from tilewright.ops.memory import Load, Store, pointee_of
from tilewright.ops.view import View

FEATURE = "buffers"
"""The feature of targets that access masked tiles by buffers."""

HALF = 1 << 31  # bytes: half of the range of an offset
POINTER_RANGE = 32  # bits of an offset
FOLDED = 1 << 23
"""Constants below this may be added to an offset by the instruction."""
SPARE = 32  # bytes at the end of a buffer that nothing accesses: no access wraps around its end


class Advance(NamedTuple):
    """A number of elements that a loop adds to an address: `carried` in an iteration, `start` in
    the first one."""

    carried: Value
    start: Value


class Span(NamedTuple):
    """The bytes of a buffer around an address: `before` is the number of bytes before it, `size`
    the total.

    Attributes:
        argument: the address, with all offsets relative to it; None for that of the uniform part
            of the access, to which only the varying part is relative.
        advance: a part of the offset that a loop moves; see `advance_of`.
    """

    before: int
    size: int
    argument: Value | None = None
    advance: Advance | None = None


def span_of(fn: Function, access: Load | Store) -> Span | None:
    """The buffer that all lanes of an access are in; None if it is not known to exist.

    It is that around the argument, if a loop recomputes the uniform part: adding that to an
    offset is one instruction, the start of another buffer takes seven. Likewise if a scalar offset
    moves with the loop, which is one addition of scalars for all accesses of a tile.
    """
    parts = split_pointer(access.ptr)
    if parts.varying is None or isinstance(parts.base.type, Tile):
        return None
    root = base_of(parts.base)
    near = _has_range(fn, root)
    if near and parts.uniform is not None:
        advance = advance_of(access)
        if advance is not None or _moves(parts.uniform, access.ptr):
            return Span(HALF - SPARE, 2 * HALF - SPARE, root, advance)
    low, high = value_range(parts.varying)
    size = pointee_of(access.ptr.type).nbytes_in_memory
    if low >= 0 and (high + 1) * size <= HALF:
        before = FOLDED if _has_negative_term(parts.varying) else 0
        return Span(before, before + HALF)
    return Span(HALF - SPARE, 2 * HALF - SPARE) if near else None


def _has_range(fn: Function, root: Value) -> bool:
    return root.owner is fn.body and fn.arg_attrs[root.index].get("pointer_range") == POINTER_RANGE


def advance_of(access: Load | Store) -> Advance | None:
    """The part of an address in a buffer around an argument that a scalar offset of the instruction
    can express, so that the rest is loop-invariant; None if that is not proven.

    A buffer instruction adds the scalar offset to that of the lane without a carry out of 32 bits
    being defined, and GPUs differ in whether they compare the sum with the size. So both must be
    non-negative, and the sum less than 4 GiB, as it is if

    - all lanes access memory, without a mask, and in the range around the argument;
    - they do so in all iterations up to the last one in which they do: the first one's offset is in
      the range, too, and it is the lane's;
    - the loop adds a non-negative constant: the distance from the first offset, as both are in the
      range, is less than 4 GiB.
    """
    parts = split_pointer(access.ptr)
    if access.mask is not None or parts.uniform is None or parts.varying is None:
        return None
    carried = _without_constant(parts.uniform)
    loop = carried.owner.parent if isinstance(carried.owner, Region) else None
    if not isinstance(loop, For) or carried is loop.body.args[0]:
        return None
    if any(map(loop.body.contains, (parts.base, parts.varying))):
        return None
    after = loop.body.terminator.operands[carried.index - 1]
    if _constant_term(carried, after) < 0 or not _runs_from_the_first(access, loop):
        return None
    return Advance(carried, loop.inits[carried.index - 1])


def _without_constant(value: Value) -> Value:
    """The other term of a sum with a constant."""
    if isinstance(value.op, arith.Add):
        return next((v for v in value.op.operands if _constant_term(v, value) >= 0), value)
    return value


def _constant_term(term: Value, value: Value) -> int:
    """The non-negative constant whose sum with a term is a value; -1 if there is none."""
    op = value.op
    if not isinstance(op, arith.Add) or term not in op.operands:
        return -1
    other = constant_value(op.rhs if op.lhs is term else op.lhs)
    return other if isinstance(other, int) else -1


def _runs_from_the_first(access: Load | Store, loop: For) -> bool:
    """Whether an iteration of the loop executes an op only if all iterations before it do."""
    region = access.parent
    while region is not None and region is not loop.body:
        op = region.parent
        if not isinstance(op, If) or region is not op.then or not _holds_at_first(op, loop):
            return False
        region = op.parent
    return region is loop.body


def _holds_at_first(branch: If, loop: For) -> bool:
    """Whether a condition is monotonic, false in all later iterations once it is false: it compares
    the remaining iterations of the loop, an exact unsigned number."""
    op = branch.condition.op
    if not isinstance(op, arith.Cmp) or op.predicate != "gt" or loop.body.contains(op.rhs):
        return False
    left = op.lhs.op
    type = dtype_of(op.lhs.type)
    index = loop.body.args[0]
    if isinstance(left, arith.Cast) and type.is_int_unsigned():
        left = left.src.op
    return (
        isinstance(left, arith.Sub)
        and type.is_int_unsigned()
        and type.primitive_bitwidth == dtype_of(index.type).primitive_bitwidth
        and left.lhs is loop.stop
        and left.rhs is index
    )


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
    """Whether a loop recomputes the uniform part of an address in each iteration, from its index. A
    loop-carried one is the start of a buffer after two additions."""
    op = uniform.op
    return op is not None and op.parent is ptr.region and isinstance(op.parent_op(), For | While)


def has_free_mask(fn: Function, access: Load | Store) -> bool:
    """Whether an access has a mask, which a buffer applies without a branch."""
    plain = is_plain(access.cache, access.evict, isinstance(access, Load) and access.volatile)
    return plain and access.mask is not None and span_of(fn, access) is not None


def is_plain(cache: str, evict: str, volatile: bool) -> bool:
    """Whether accesses of buffers have the cache policy of an access."""
    return not volatile and not cache and evict != "evict_first"

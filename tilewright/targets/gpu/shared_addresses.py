"""Adds the common part of several addresses at loaded offsets to the pointer once.

    a = addptr(splat(addptr(p, u + x)), y)         q = addptr(splat(addptr(p, u)), y)
    b = addptr(splat(addptr(p, u + z)), y)    =>   a = addptr(q, splat(x))
                                                   b = addptr(q, splat(z))

Part of hoist_addresses. An address is then one 64-bit multiplication and addition, instead of two:
one for the uniform offset, which each thread computes if it depends on loaded values, and one for
that of its elements. Samples of images, and rows of tables at several indices, have such addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.ir.builder import Builder
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import I64, dtype_of
from tilewright.ops.arith import Add
from tilewright.ops.memory import AddPtr
from tilewright.ops.shape import Splat
from tilewright.rewrites.patterns import splat_like
from tilewright.targets.gpu.sums import sum_of, terms_of

MOST_OPEN = 8
"""Bounds the terms that the offset of all elements is taken apart into; see `terms_of`."""


class _Address(NamedTuple):
    op: AddPtr
    terms: tuple[Value, ...]
    """Of the offset of all elements."""


def share_addresses(region: Region, is_shared: Callable[[AddPtr, Value], bool]) -> int:
    """Rewrite the addresses of a region, and return their number.

    Args:
        is_shared: whether an address, of which all elements have an offset in common, is better
            computed from one that others share.
    """
    groups: dict[tuple[object, ...], list[_Address]] = {}
    for op in region:
        if not isinstance(op, AddPtr) or not isinstance(op.ptr.op, Splat):
            continue
        moved = op.ptr.op.src.op
        if isinstance(moved, AddPtr) and moved.parent is region and is_shared(op, moved.offset):
            key = moved.ptr, op.offset, op.result.layout
            terms = terms_of(moved.offset, _is_wide, MOST_OPEN)
            groups.setdefault(key, []).append(_Address(op, terms))
    several = [group for group in groups.values() if len({a.terms for a in group}) > 1]
    for group in several:
        _share(group)
    return sum(len(group) for group in several)


def _is_wide(total: Add) -> bool:
    """Whether a sum has 64 bits. A narrower one may wrap, which a sum of pointers does not."""
    return dtype_of(total.result.type) == I64


def _share(group: Sequence[_Address]) -> None:
    first = group[0].op
    common = Counter(group[0].terms)
    for address in group:
        common &= Counter(address.terms)
    b = Builder()
    with b.before(first):
        pointer = _base(first)
        if common:
            pointer = b.value(AddPtr(pointer, sum_of(b, [*common.elements()])))
        start = _laid_out(b, AddPtr(splat_like(b, pointer, first.result), first.offset), first)
    for op, terms in group:
        with b.before(op):
            rest = [*(Counter(terms) - common).elements()]
            moved = start
            if rest:
                moved = _laid_out(b, AddPtr(start, splat_like(b, sum_of(b, rest), op.result)), op)
        op.result.replace_with(moved)
        op.erase()


def _base(op: AddPtr) -> Value:
    assert isinstance(op.ptr.op, Splat)
    moved = op.ptr.op.src.op
    assert isinstance(moved, AddPtr)
    return moved.ptr


def _laid_out(b: Builder, op: Op, like: Op) -> Value:
    result = b.value(op)
    result.layout = like.result.layout
    return result

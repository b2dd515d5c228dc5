"""Decomposition of sums into terms, and their reconstruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ops.arith import Add


def terms_of(
    total: Value, is_split: Callable[[Add], bool], most_open: int | None = None
) -> tuple[Value, ...]:
    """The terms of a sum, in order: ``(a, b, c)`` of ``(a + b) + c``.

    Args:
        is_split: whether the operands of an addition are terms, rather than its result.
        most_open: how many terms may be left to look at when one is split; None for any number.
    """
    pending, result = [total], list[Value]()
    while pending:
        value = pending.pop()
        op = value.op
        may_split = most_open is None or len(pending) < most_open
        if may_split and isinstance(op, Add) and is_split(op):
            pending += reversed(op.operands)
        else:
            result.append(value)
    return tuple(result)


def sum_of(b: Builder, terms: Sequence[Value]) -> Value:
    """The sum of values, of which there is at least one, in their order."""
    total = terms[0]
    for term in terms[1:]:
        total = b.value(Add(total, term))
    return total

"""Dependences between the ops of a region, by their operands and those of nested ops.

Memory is not considered. Linear in the number of ops and operands.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from tilewright.ir.core import Op, Region, Value


def needed_ops(
    values: Iterable[Value], body: Region, without: AbstractSet[Op] = frozenset()
) -> set[Op]:
    """The ops of a region that values depend on, stopping at some of them."""
    result: set[Op] = set()
    pending = list(values)
    while pending:
        op = pending.pop().op
        if op is not None and op.parent is body and op not in result and op not in without:
            result.add(op)
            pending += op.all_operands()
    return result


def dependent_ops(values: Iterable[Value], ops: Iterable[Op]) -> set[Op]:
    """Those of some ops, in their order, that use values, directly or transitively."""
    result: set[Op] = set()
    reached = set(values)
    for op in ops:
        if not reached.isdisjoint(op.all_operands()):
            result.add(op)
            reached.update(op.results)
    return result

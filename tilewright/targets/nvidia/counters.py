"""Comparisons of the counters of `while` loops, which ptxas miscompiles for extreme values.

ptxas 13.0.88 computes the trip count of a loop around `i < b; i += s`, with a constant s, or
unrolls it under a test of `b - i > 3 * s`. Both are wrong if the exact sum or difference overflows:
of `i = -2**31; while i <= 5: i += 2**21`, it runs one of 1025 iterations. On an H200, 8 of 17 loops
with such steps were wrong, and none with the comparison emitted here: ptxas does not recognise a
counter in `max(i, b) != i`, which is equivalent for all numbers. This takes an additional
instruction and prevents unrolling, so it is only used for counters that may overflow within `MANY`
iterations, not for those of blocks of at most 1024 elements.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.analysis.ranges import Range, type_range, value_range
from tilewright.analysis.signs import not_negative
from tilewright.ir import types as ir
from tilewright.ir.core import Region, Value
from tilewright.lowering import arith as common
from tilewright.lowering.emit import Builder, V
from tilewright.lowering.registry import lowers
from tilewright.lowering.simt.control import MOST_UNROLLED
from tilewright.ops import arith
from tilewright.ops.control import Condition, If, While
from tilewright.targets.nvidia.name import NAME

SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}

BY_EXTREMUM = {"lt": ("max", "ne"), "ge": ("max", "eq"), "gt": ("min", "ne"), "le": ("min", "eq")}
"""Of each comparison of x and y, the extremum of both that is compared with x."""

MANY = 1 << 21
"""Iterations that a counter is not expected to need for half of the numbers of its type."""


class Counter(NamedTuple):
    """A value that a `while` carries, plus a constant.

    Attributes:
        place: of the value among those that are carried.
        offset: what is added to it.
    """

    loop: While
    place: int
    offset: int


@lowers(arith.Cmp, target=NAME)
def lower_cmp(b: Builder, op: arith.Cmp, lhs: V, rhs: V) -> V:
    """By an extremum of the operands if ptxas might miscount a loop otherwise."""
    if not is_miscounted(op):
        return common.lower_cmp(b, op, lhs, rhs)
    if op.predicate in ("eq", "ne"):
        return b.icmp(
            op.predicate, _extremum(b, "max", op, lhs, rhs), _extremum(b, "min", op, lhs, rhs)
        )
    name, predicate = BY_EXTREMUM[op.predicate]
    return b.icmp(predicate, _extremum(b, name, op, lhs, rhs), lhs)


def _extremum(b: Builder, name: str, op: arith.Cmp, lhs: V, rhs: V) -> V:
    """An instruction that LLVM does not see through."""
    kind = "s" if ir.dtype_of(op.lhs.type).is_int_signed() else "u"
    register = "l" if lhs.type.bits == 64 else "r"
    code = f"{name}.{kind}{lhs.type.bits} $0, $1, $2;"
    return b.inline_asm(code, f"={register},{register},{register}", lhs.type, [lhs, rhs])


def is_miscounted(op: arith.Cmp) -> bool:
    """Whether a comparison is of a counter that may reach extreme numbers in few iterations."""
    type = op.lhs.type
    if op.predicate not in SWAPPED or not isinstance(type, ir.DType):
        return False
    if not type.is_int() or type.primitive_bitwidth < 32:
        return False
    sides = (op.lhs, op.rhs, op.predicate), (op.rhs, op.lhs, SWAPPED[op.predicate])
    keeps_on = all(isinstance(user, Condition | arith.And) for user in op.result.users)
    return any(_may_overflow(*side, keeps_on) for side in sides)


def _may_overflow(value: Value, bound: Value, predicate: str, keeps_on: bool) -> bool:
    """Whether the value is a counter, and its distance from a bound may be no number of the type.

    Args:
        keeps_on: whether the loop is known to go on while the comparison holds. Else it may be left
            then, and whether the counter goes toward the bound is not known.
    """
    counter = counter_of(value)
    if counter is None or counter.loop.contains(bound):
        return False
    steps = steps_of(counter.loop.body.terminator.operands[counter.place], counter) - {0}
    if len(steps) != 1 or None in steps:
        return False
    (step,) = steps
    assert step is not None
    least, most = type_range(value)
    half = (most - least + 1) // 2
    if abs(step) * MOST_UNROLLED >= half or predicate in _away(step, keeps_on):
        return True
    first, last = _range(counter.loop.inits[counter.place]), _range(bound)
    soon = abs(step) * MANY > half
    end = (last[1] if step > 0 else last[0]) + step
    if not least <= end <= most and (soon or last[0] == last[1]):
        return True
    if predicate in ("eq", "ne"):  # behind an unrolled loop, numbers are compared as signed ones
        return least == 0 and abs(step) > 1 and last[1] >= half
    distance = last[1] - first[0] if step > 0 else first[1] - last[0]
    return least < 0 and distance >= half and soon


def _away(step: int, keeps_on: bool) -> tuple[str, ...]:
    """The comparisons with a bound that a counter may meet only after it wrapped around."""
    if not keeps_on:
        return (*BY_EXTREMUM,)
    return ("gt", "ge") if step > 0 else ("lt", "le")


def _range(value: Value) -> Range:
    least, most = value_range(value)
    return (max(least, 0) if not_negative(value) else least), most


def counter_of(value: Value) -> Counter | None:
    """The carried value to which a value is equal, up to a constant."""
    offset = 0
    while isinstance(op := value.op, arith.Add | arith.Sub):
        least, most = value_range(op.rhs)
        if least != most:
            return None
        offset += least if isinstance(op, arith.Add) else -least
        value = op.lhs
    region = value.owner
    loop = region.parent if isinstance(region, Region) else None
    if not isinstance(loop, While):
        return None
    if region is loop.body:
        value = loop.before.terminator.operands[1 + value.index]
        if value.owner is not loop.before:
            return None
    return Counter(loop, value.index, offset)


def steps_of(value: Value, counter: Counter) -> set[int | None]:
    """The possible increments of a counter in an iteration, given its next value; None if
    unknown."""
    if isinstance(value.op, If):
        branches = [r.terminator.operands[value.index] for r in value.op.regions]
        return set().union(*(steps_of(v, counter) for v in branches))
    found = counter_of(value)
    if found is None or found[:2] != counter[:2]:
        return {None}
    return {found.offset}

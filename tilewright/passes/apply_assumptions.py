"""Converts assumptions to hints on values.

Input: verified SSA with `debug.assume` ops. Output: none of these. An assumption holds throughout
its region, since a program that executes part of a region executes all of it. An integer that is
compared with a constant gets an `arith.hint` with its bounds or its divisor, after its definition
or at the start of that region; divisors of arguments become attributes of the function. Other
assumptions are dropped. Linear in the number of ops, and of uses of such integers.
"""

from __future__ import annotations

from math import lcm
from typing import NamedTuple

from tilewright.analysis.ranges import type_range
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import is_int, shape_of
from tilewright.ops.arith import And, Cast, Cmp, Hint, Rem, constant_value
from tilewright.ops.debug import Assume
from tilewright.rewrites.select import SWAPPED


class Fact(NamedTuple):
    """An assumption about an integer: bounds, both inclusive, and a divisor."""

    value: Value
    low: int | None = None
    high: int | None = None
    divisor: int = 0


@compiler_pass("apply_assumptions")
def apply_assumptions(fn: Function, ctx: PassContext) -> bool:
    """Replace assumptions by hints; see the module docstring.

    Leaves: the dead ops that compute conditions.
    """
    assumptions = [op for op in fn.walk() if isinstance(op, Assume)]
    for op in assumptions:
        region = op.parent
        assert region is not None
        facts = _facts(op.condition)
        op.erase()
        for fact in facts:
            _apply(fn, region, fact, op)
            ctx.count("assumed")
    return bool(assumptions)


# -- conditions -----------------------------------------------------------------------------------


def _facts(condition: Value) -> list[Fact]:
    """The facts of integers, not constants, that a condition states."""
    return [fact for term in _conjuncts(condition) for fact in _stated(term)]


def _conjuncts(condition: Value) -> list[Value]:
    """The distinct operands of a conjunction, in order; a condition that is none is its own."""
    result, seen, work = list[Value](), set[Value](), [condition]
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value.op, And):
            work += reversed(value.op.operands)
        else:
            result.append(value)
    return result


def _stated(condition: Value) -> list[Fact]:
    """The facts that a condition which is not a conjunction states."""
    op = condition.op
    if not isinstance(op, Cmp) or not is_int(op.lhs.type) or shape_of(op.lhs.type):
        return []
    for value, bound, predicate in (
        (op.lhs, constant_value(op.rhs), op.predicate),
        (op.rhs, constant_value(op.lhs), SWAPPED[op.predicate]),
    ):
        if bound is not None and constant_value(value) is None:
            return _compared(value, predicate, int(bound))
    return []


def _compared(value: Value, predicate: str, bound: int) -> list[Fact]:
    """The facts of `value predicate bound`."""
    value = _uncast(value)
    if predicate == "eq" and bound == 0 and isinstance(value.op, Rem):
        number, divisor = value.op.operands[0], constant_value(value.op.operands[1])
        if divisor and constant_value(number) is None:
            return [Fact(_uncast(number), divisor=abs(int(divisor)))]
    match predicate:
        case "lt":
            return [Fact(value, high=bound - 1)]
        case "le":
            return [Fact(value, high=bound)]
        case "gt":
            return [Fact(value, low=bound + 1)]
        case "ge":
            return [Fact(value, low=bound)]
        case "eq":
            return [Fact(value, low=bound, high=bound)]
        case _:
            return []


def _uncast(value: Value) -> Value:
    """The value of which this one is a conversion to a type that has all values of its type."""
    while isinstance(value.op, Cast) and is_int(value.op.src.type):
        (low, high), (least, most) = type_range(value.op.src), type_range(value)
        if low < least or high > most:
            break
        value = value.op.src
    return value


# -- hints ----------------------------------------------------------------------------------------


def _apply(fn: Function, region: Region, fact: Fact, at: Op) -> None:
    value = fact.value
    if fact.divisor and value.owner is fn.body and region is fn.body:
        attrs = fn.arg_attrs[value.index]
        attrs["divisibility"] = lcm(int(attrs.get("divisibility", 1)), fact.divisor)
        return
    hint = Hint(value, (fact.divisor,), (0,), (0,), low=fact.low, high=fact.high)
    hint.loc = at.loc
    if value.region is region and value.op is not None:
        region.insert_after(hint, value.op)
    else:
        assert region.first is not None
        region.insert_before(hint, region.first)
    for user in list(value.users):
        if user is not hint and user.parent is not None and user.parent.is_within(region):
            user.replace_operand(value, hint.result)

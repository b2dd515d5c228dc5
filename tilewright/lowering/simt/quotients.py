"""Quotients and remainders of runs of consecutive integers: one division serves a whole run.

Indices of elements are divided by the extents of tensors: rows of 4 elements of a thread need one
division where 4 divides the extent. Both operands may have either sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.analysis.axis_info import AxisMap
from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Op
from tilewright.ir.types import dtype_of
from tilewright.lowering.emit import Builder, V, const, int_type
from tilewright.lowering.simt.equal_registers import EqualRegisters
from tilewright.ops import arith

# By a constant, LLVM divides in three instructions or so; a run takes six, and one an element.
LEAST_BY_CONSTANT = 4


def length_of_runs(op: Op, infos: AxisMap, equal: EqualRegisters) -> int:
    """The number of successive registers of a dividend that hold consecutive integers, the first of
    which it divides, as it divides the divisors: a power of two. 1 for other ops.
    """
    if not isinstance(op, arith.IntDiv | arith.Rem) or op.lhs.layout is None:
        return 1
    element = dtype_of(op.lhs.type)
    if not element.is_int() or element.is_bool():
        return 1
    is_constant = arith.constant_value(op.rhs) is not None
    if is_constant and value_range(op.lhs)[0] >= 0:
        return 1
    if not (equal.is_sure(op.lhs) and equal.is_sure(op.rhs)):
        return 1
    dividend, divisor = infos[op.lhs], infos[op.rhs]
    axis = dividend.order[0]
    length = min(
        dividend.contiguity[axis] & -dividend.contiguity[axis],
        dividend.divisibility[axis],
        divisor.multiple_at(axis, 1),
        op.lhs.layout.num_consecutive((axis,)),
    )
    return length if length >= LEAST_BY_CONSTANT or not is_constant else 1


def divide_runs(
    b: Builder,
    op: Op,
    divide: Callable[[Sequence[Sequence[V]]], Sequence[V]],
    registers: Sequence[int],
    operands: Sequence[Sequence[V]],
    length: int,
) -> Sequence[V]:
    """The results of some registers.

    Args:
        divide: the results of dividends and divisors, each by itself.
        operands: the dividends and the divisors of the registers.
        length: of the runs, as `length_of_runs` found.
    """
    dividends, divisors = operands
    pairs = dict(zip(registers, zip(dividends, divisors, strict=True), strict=True))
    first: dict[int, int] = {}
    for register, (_, divisor) in pairs.items():
        start = register - register % length
        shared = start in pairs and pairs[start][1] is divisor
        first[register] = start if shared else register
    alone = [*{start: None for start in first.values()}]
    columns = [*zip(*(pairs[start] for start in alone), strict=True)]
    found = dict(zip(alone, divide(columns), strict=True))
    follow = _next_remainder if isinstance(op, arith.Rem) else _next_quotient
    return [
        follow(b, op, pairs[start], found[start], register - start)
        if register > start
        else found[start]
        for register, start in first.items()
    ]


def _next_quotient(b: Builder, op: Op, pair: tuple[V, V], quotient: V, steps: int) -> V:
    """(x + steps) // d from x // d. They are equal unless x < 0 is a multiple of d."""
    if value_range(op.operands[0])[0] >= 0:
        return quotient
    x, d = pair
    exact = b.icmp("eq", b.mul(quotient, d), x)
    sign = b.or_(b.ashr(d, d.type.bits - 1), const(d.type, 1))
    zero = const(d.type, 0)
    return b.add(quotient, b.select(b.and_(exact, b.icmp("slt", x, zero)), sign, zero))


def _next_remainder(b: Builder, op: Op, pair: tuple[V, V], rest: V, steps: int) -> V:
    """(x + steps) % d by x % d, as which it has the sign of the dividend; 0 for d = 0."""
    x, d = pair
    zero = const(d.type, 0)
    if value_range(op.operands[0])[0] < 0:
        exact = b.and_(b.icmp("eq", rest, zero), b.icmp("slt", x, zero))
        size = b.intrinsic("llvm.abs", d.type, [d, const(int_type(1), 0)], overloads=[d.type])
        rest = b.select(exact, b.neg(size), rest)
    return b.select(b.icmp("eq", d, zero), zero, b.add(rest, const(d.type, steps)))

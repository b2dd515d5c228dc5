"""Strength reduction: replaces divisions of an induction variable by additions.

    for i in range(n):                    r, q = 0, 0
        q, r = i // d, i % d       →      for i in range(n):
                                              …
                                              q, r = (q, r + 1) if r + 1 < d else (q + 1, 0)

A division by a run-time value takes a GPU some 20 dependent instructions. Convolutions that compute
filter and channel from one index divide in each iteration; so do loops over the blocks of several
rows.

Input: verified SSA without dead code and duplicates. A quotient or remainder of signed scalars
qualifies if an innermost loop computes it, the divisor is loop-invariant and not a
constant, and the dividend is a product of the index and invariants, or a sum of such a product and
invariants, that is proven to be neither negative nor to wrap. Output: the same numbers, also where
the divisor is negative or 0, carried from iteration to iteration. Linear in the number of ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.analysis.ranges import value_range
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import dtype_of, is_int, shape_of
from tilewright.ops.arith import (
    Add,
    Cast,
    Cmp,
    Constant,
    IntDiv,
    Mul,
    Neg,
    Rem,
    Select,
    constant_value,
)
from tilewright.ops.control import For, While
from tilewright.rewrites.control import carry_more

NAME = "reduce_divisions"
Division = IntDiv | Rem


class _Pair(NamedTuple):
    """The initial value of a dividend and its increment per iteration; or the quotient and the
    remainder of a number."""

    first: Value
    second: Value


@compiler_pass(NAME)
def reduce_divisions(fn: Function, ctx: PassContext) -> bool:
    """Carry quotients and remainders of loops' indices; see the module docstring."""
    loops = [op for op in fn.walk() if isinstance(op, For)]
    changed = False
    for loop in loops:
        if any(isinstance(op, For | While) for op in loop.body.walk()):
            continue
        found = _divisions(loop)
        if found:
            _Carrying(loop).rewrite(found)
            for op in found:
                ctx.did(
                    NAME,
                    "strength-reduced to additions, from the value in the previous iteration",
                    op.loc,
                )
            ctx.count("divisions", len(found))
            changed = True
    return changed


def _divisions(loop: For) -> list[Division]:
    return [
        op
        for op in loop.body
        if isinstance(op, Division)
        and not shape_of(op.result.type)
        and dtype_of(op.result.type).is_int_signed()
        and not loop.contains(op.rhs)
        and constant_value(op.rhs) is None
        and _is_linear(op.lhs, loop)
        and value_range(op.lhs)[0] >= 0
    ]


def _is_linear(value: Value, loop: For) -> bool:
    """Whether a value is the index, or grows with it, by a step of at least 1."""
    op = value.op
    if value is loop.body.args[0]:
        return value_range(loop.step)[0] >= 1
    if op is None or op.parent is not loop.body:
        return False
    match op:
        case Cast(src):
            wider = is_int(src.type) and dtype_of(value.type).is_int_signed()
            return wider and value_range(src)[0] >= 0 and _is_linear(src, loop)
        case Add() | Mul():
            moving = [v for v in op.operands if loop.contains(v)]
            fixed = [v for v in op.operands if not loop.contains(v)]
            grows = isinstance(op, Add) or all(value_range(v)[0] >= 1 for v in fixed)
            return len(moving) == 1 and grows and _is_linear(moving[0], loop)
        case _:
            return False


class _Carrying:
    """Adds quotients and remainders to the carried values of a loop.

    The quotient q and the remainder r of x by d change with x + s by those of s, and by one more if
    the sum of the remainders reaches |d|. No sum overflows: that of the remainders is at most
    x + s, the next dividend.
    """

    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.b = Builder()
        self.inits: list[Value] = []
        self.yields: list[Value] = []

    def rewrite(self, divisions: Sequence[Division]) -> None:
        pairs: dict[tuple[Value, Value], list[Division]] = {}
        for op in divisions:
            pairs.setdefault((op.lhs, op.rhs), []).append(op)
        for (dividend, divisor), ops in pairs.items():
            carried = self._carry(dividend, divisor)
            for op in ops:
                op.result.replace_with(carried[isinstance(op, Rem)])
                op.erase()
        carry_more(self.loop, self.inits, self.yields)

    def _carry(self, dividend: Value, divisor: Value) -> _Pair:
        """The quotient and the remainder of a dividend, as arguments of the loop's body."""
        b, body, type = self.b, self.loop.body, divisor.type
        with b.before(self.loop):
            zero, plus, minus = (b.value(Constant(n, type)) for n in (0, 1, -1))
            is_negative = b.value(Cmp(divisor, zero, "lt"))
            below = b.value(Select(is_negative, divisor, b.value(Neg(divisor))))  # -|d|
            # All quotients by 0 are 0.
            is_zero = b.value(Cmp(divisor, zero, "eq"))
            one = b.value(Select(is_zero, zero, b.value(Select(is_negative, minus, plus))))
            linear = self._linear(dividend)
            start, step = (self._divided(v, divisor, one, below) for v in linear)
            more = b.value(Add(step.first, one))
        quotient, remainder = body.add_arg(type), body.add_arg(type)
        with b.before(body.terminator):
            total = b.value(Add(remainder, step.second))
            rest = b.value(Add(total, below))
            reaches = b.value(Cmp(rest, zero, "ge"))
            grown = b.value(Add(quotient, b.value(Select(reaches, more, step.first))))
            self.yields += [grown, b.value(Select(reaches, rest, total))]
        self.inits += start
        return _Pair(quotient, remainder)

    def _linear(self, value: Value) -> _Pair:
        """The initial value of a linear value, and its increment per iteration."""
        op = value.op
        if op is None:
            return _Pair(self.loop.start, self.loop.step)
        (moving,) = (v for v in op.operands if self.loop.contains(v))
        start, step = self._linear(moving)
        start = self._applied(op, moving, start)
        return _Pair(start, step if isinstance(op, Add) else self._applied(op, moving, step))

    def _applied(self, op: Op, moving: Value, value: Value) -> Value:
        """An op of a linear value, applied to a number outside of the loop."""
        number = constant_value(value)
        if number is not None and isinstance(op, Cast):
            return self.b.value(Constant(number, op.result.type))
        if number == 0:
            return value if isinstance(op, Mul) else next(v for v in op.operands if v is not moving)
        return self.b.value(op.clone({moving: value}))

    def _divided(self, value: Value, divisor: Value, one: Value, below: Value) -> _Pair:
        """The quotient and the remainder of a number that is not negative; `one` is the sign of the
        divisor, and `below` its negated magnitude."""
        b, number = self.b, constant_value(value)
        if number == 0:
            return _Pair(value, value)
        if number == 1:
            zero, minus = (b.value(Constant(n, divisor.type)) for n in (0, -1))
            is_one, is_less = (b.value(Cmp(below, minus, p)) for p in ("eq", "lt"))
            return _Pair(b.value(Select(is_one, one, zero)), b.value(Select(is_less, value, zero)))
        return _Pair(b.value(IntDiv(value, divisor)), b.value(Rem(value, divisor)))

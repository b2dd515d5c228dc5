"""The assignment of programs to blocks that loop over programs (`persist_programs`).

Programs of equal length are assigned round-robin, x fastest. If the length depends on the index
along one axis, as with a causal mask, some blocks would get all long programs. In this case,
programs are divided into groups of about two rounds of all blocks: those with all indices along the
axis, and some along the others, which read the same memory at the same time. A group is assigned
from its longest programs to its shortest, forward in one round and backward in the next, so that
the total length is about the same for all blocks. Every other group is mirrored, to balance the
incomplete last round.

With 4 blocks, and lengths 8 to 1 in each column:

    index    8 7 6 5 4 3 2 1
    block    0 1 2 3 3 2 1 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.ir.builder import Builder
from tilewright.ir.core import Op, Value
from tilewright.ir.types import I32, I64
from tilewright.ops.arith import (
    Add,
    And,
    Cast,
    Cmp,
    Constant,
    IntDiv,
    Max,
    Min,
    Mul,
    Rem,
    Select,
    Sub,
    Xor,
)
from tilewright.ops.control import For, NumPrograms, ProgramId
from tilewright.ops.gpu import BlockCount, BlockId

AXES = 3
ROUNDS = 2  # of all blocks, that a group takes


class Span(NamedTuple):
    """The indices of the loop over programs."""

    start: Value
    stop: Value
    step: Value


class EvenOrder:
    """Programs of equal length, dealt out one after the other.

    Args:
        axes: the axes that are looped over: 1, x, or all 3.
    """

    def __init__(self, axes: int, builder: Builder) -> None:
        self.counts = [builder.value(NumPrograms(axis)) for axis in range(axes)]
        total = self.counts[0]
        for count in self.counts[1:]:
            total = builder.value(Mul(total, count))
        first, step = builder.value(BlockId(axes)), builder.value(BlockCount(axes))
        self.span = Span(first, total, step)

    def places(self, index: Value, builder: Builder) -> list[Value]:
        """The indices along the axes of the grid of the program of an iteration."""
        if len(self.counts) == 1:
            return [index]
        x, y, _ = self.counts
        rest = builder.value(IntDiv(index, x))
        return [
            builder.value(Rem(index, x)),
            builder.value(Rem(rest, y)),
            builder.value(IntDiv(rest, y)),
        ]


class BalancedOrder:
    """Programs whose length depends on the index along one axis; iterations count those of a block.

    Args:
        axis: the axis.
        loops: the loops on whose number of iterations the length depends.
        builder: inserts before the loop over programs.
    """

    def __init__(self, axis: int, loops: Sequence[For], builder: Builder) -> None:
        code = _Code(builder)
        self.axis = axis
        self.counts = [builder.value(NumPrograms(a)) for a in range(AXES)]
        self.length = self.counts[axis]
        others = [count for a, count in enumerate(self.counts) if a != axis]
        self.inner = others[0]
        rest = code.mul(*others)
        self.last = code.sub(self.length, 1)
        self.falling = _falls(axis, self.last, loops, code)
        self.block = builder.value(BlockId(AXES))
        self.blocks = code.min(builder.value(BlockCount(AXES)), code.mul(self.length, rest))
        balanced = code.div(code.mul(self.blocks, ROUNDS), self.length)
        self.group = code.min(code.max(balanced, 1), rest)
        self.full = code.div(rest, self.group)
        self.left = code.sub(rest, code.mul(self.full, self.group))
        self.mirrored = code.sub(code.sub(self.blocks, 1), self.block)
        self.forward = self._rounds(self.group, code.number(0), code)
        self.pair = code.add(self.forward, self._rounds(self.group, code.number(1), code))
        odd = code.and_(self.full, 1)
        count = code.mul(code.div(self.full, 2), self.pair)
        count = code.add(count, code.select(odd, self.forward, 0))
        count = code.add(count, self._rounds(self.left, odd, code))
        idle = code.cmp(self.block, "ge", self.blocks)
        zero, one = code.number(0), code.number(1)
        self.span = Span(zero, code.value(Select(idle, zero, count)), one)

    def _rounds(self, group: Value, odd: Value, code: _Code) -> Value:
        """The programs that a group has for the block; `odd` for groups that are mirrored."""
        programs = code.mul(group, self.length)
        full = code.div(programs, self.blocks)
        left = code.sub(programs, code.mul(full, self.blocks))
        further = code.cmp(self._position(full, odd, code), "lt", left)
        return code.add(full, code.value(Cast(further, I32, "rtne")))

    def _position(self, turn: Value, odd: Value, code: _Code) -> Value:
        """The position of the block in a round."""
        return code.select(code.and_(code.xor(turn, odd), 1), self.mirrored, self.block)

    def places(self, index: Value, builder: Builder) -> list[Value]:
        """The indices along the axes of the grid of the program of an iteration."""
        code = _Code(builder)
        pairs = code.div(index, self.pair)
        turn = code.sub(index, code.mul(pairs, self.pair))
        mirrored = code.cmp(turn, "ge", self.forward)
        odd = code.value(Cast(mirrored, I32, "rtne"))
        turn = code.sub(turn, code.value(Select(mirrored, self.forward, code.number(0))))
        group = code.add(code.mul(pairs, 2), odd)
        whole = code.cmp(group, "lt", self.full)
        size = code.value(Select(whole, self.group, self.left))
        place = code.add(code.mul(turn, self.blocks), self._position(turn, odd, code))
        rank = code.div(place, size)
        rest = code.add(code.mul(group, self.group), code.sub(place, code.mul(rank, size)))
        along = code.value(Select(self.falling, rank, code.sub(self.last, rank)))
        found = [builder.value(Rem(rest, self.inner)), code.div(rest, self.inner)]
        found.insert(self.axis, along)
        return found


def _falls(axis: int, last: Value, loops: Sequence[For], code: _Code) -> Value:
    """Whether programs with the index 0 along an axis have no fewer iterations than those with the
    last one."""
    first_work, last_work = (_work(axis, i, loops, code) for i in (code.number(0), last))
    return code.cmp(first_work, "ge", last_work)


def _work(axis: int, index: Value, loops: Sequence[For], code: _Code) -> Value:
    """The sum of the distances that the loops of a program run over."""
    mapping: dict[Value, Value] = {}
    total: Value | None = None
    for loop in loops:
        bounds = [code.copy(bound, axis, index, mapping) for bound in (loop.start, loop.stop)]
        start, stop = (code.value(Cast(bound, I64, "rtne")) for bound in bounds)
        distance = code.value(
            Max(code.value(Sub(stop, start)), code.value(Constant(0, I64)), False)
        )
        total = distance if total is None else code.value(Add(total, distance))
    assert total is not None
    return total


class _Code:
    """Arithmetic on 32-bit integers."""

    def __init__(self, builder: Builder) -> None:
        self.value = builder.value

    def number(self, value: Value | int) -> Value:
        return self.value(Constant(value, I32)) if isinstance(value, int) else value

    def _binary(self, op: Callable[[Value, Value], Op], a: Value, b: Value | int) -> Value:
        return self.value(op(a, self.number(b)))

    def add(self, a: Value, b: Value | int) -> Value:
        return self._binary(Add, a, b)

    def sub(self, a: Value, b: Value | int) -> Value:
        return self._binary(Sub, a, b)

    def mul(self, a: Value, b: Value | int) -> Value:
        return self._binary(Mul, a, b)

    def div(self, a: Value, b: Value | int) -> Value:
        return self._binary(IntDiv, a, b)

    def and_(self, a: Value, b: Value | int) -> Value:
        return self._binary(And, a, b)

    def xor(self, a: Value, b: Value | int) -> Value:
        return self._binary(Xor, a, b)

    def min(self, a: Value, b: Value | int) -> Value:
        return self.value(Min(a, self.number(b), False))

    def max(self, a: Value, b: Value | int) -> Value:
        return self.value(Max(a, self.number(b), False))

    def cmp(self, a: Value, predicate: str, b: Value | int) -> Value:
        return self.value(Cmp(a, self.number(b), predicate))

    def select(self, odd: Value, a: Value, b: Value | int) -> Value:
        """`a` where an integer is not 0."""
        return self.value(Select(self.cmp(odd, "ne", 0), a, self.number(b)))

    def copy(self, value: Value, axis: int, index: Value, mapping: dict[Value, Value]) -> Value:
        """A scalar as in a program with another index along an axis."""
        op = value.op
        if value in mapping or op is None:
            return mapping.get(value, value)
        if isinstance(op, ProgramId) and op.axis == axis:
            mapping[value] = index
            return index
        for operand in op.operands:
            self.copy(operand, axis, index, mapping)
        copied = op.clone(mapping)
        self.value(copied)
        mapping[value] = copied.result
        return mapping[value]

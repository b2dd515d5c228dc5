"""Decomposition of narrow scalar offsets into terms of different loops.

    (row * 16 + i) * 128    =>    row * 2048,  i * 128        with 0 <= i < 16

Part of canonicalize_pointers. An address with separate terms has a loop-invariant part, and a part
that is a constant of the loads if the loop is unrolled. The sum of the terms
extended to 64 bits is the extended offset if their bits are disjoint: then no carry leaves the bits
of the lower one, and the sum does not wrap even if the product for the higher one has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.types import I32
from tilewright.ops.arith import Add, Constant, Hint, Mul, Shl
from tilewright.rewrites.patterns import known

LARGEST = 2**31 - 1
MAX_DEPTH = 12
"""The most definitions to look through."""


class _Split(NamedTuple):
    """high + low, where `high` is a multiple of `unit`, a power of two, and 0 <= low <= most.

    The bits are disjoint if most < unit.
    """

    high: Value
    low: Value
    unit: int
    most: int


class ScalarTerms:
    """Splits scalar offsets of a function; `new` inserts an op and returns its result."""

    def __init__(self, fn: Function, new: Callable[[Op], Value]) -> None:
        self._fn = fn
        self._new = new
        self._infos: AxisMap | None = None
        self._regions: dict[Value, Region] = {}

    def of(self, offset: Value) -> tuple[Value, ...]:
        """Terms whose sum, each extended to 64 bits, is the extended offset."""
        found = self._split(offset) if offset.type == I32 else None
        return (offset,) if found is None else (*self.of(found.high), found.low)

    def _split(self, value: Value, depth: int = MAX_DEPTH) -> _Split | None:
        if depth == 0:
            return None
        match value.op:
            case Hint(src, divisibility) if not any(divisibility):  # terms would not have it
                return self._split(src, depth - 1)
            case Add(a, b) if self._are_of_different_loops(a, b):
                return self._split_sum(a, b) or self._split_sum(b, a)
            case Mul(src, factor) if (number := known(factor)) is not None and number > 0:
                return self._multiplied(self._split(src, depth - 1), int(number))
            case Shl(src, count) if (number := known(count)) is not None and 0 <= number < 31:
                return self._multiplied(self._split(src, depth - 1), 1 << int(number))
            case _:
                return None

    def _split_sum(self, high: Value, low: Value) -> _Split | None:
        least, most = value_range(low)
        if least < 0 or most == LARGEST:
            return None
        unit = self._unit(high)
        return _Split(high, low, unit, most) if most < unit else None

    def _unit(self, value: Value) -> int:
        """A power of two of which the value is a multiple."""
        number = known(value)
        if number is not None:
            return int(number) & -int(number) or 2**32
        if self._infos is None:
            self._infos = axis_info(self._fn, trust_divisors=False, trust_hints=False)
        return self._infos[value].divisibility[0]

    def _multiplied(self, split: _Split | None, factor: int) -> _Split | None:
        """The terms times a factor. The product for the higher term wraps as that for the sum."""
        if split is None:
            return None
        unit, most = split.unit * (factor & -factor), split.most * factor
        if most >= unit or most > LARGEST:
            return None
        high, low = (self._new(Mul(x, self._number(factor))) for x in (split.high, split.low))
        return _Split(high, low, unit, most)

    def _number(self, value: int) -> Value:
        return self._new(Constant(value, I32))

    def _are_of_different_loops(self, a: Value, b: Value) -> bool:
        """Whether one depends on a loop on which the other does not."""
        if known(a) is not None or known(b) is not None:
            return False
        return self._innermost(a) is not self._innermost(b)

    def _innermost(self, value: Value, depth: int = MAX_DEPTH) -> Region:
        """The innermost region on which a value depends: ops that depend on no argument of a loop
        may still be in the loop in which they are written."""
        op = value.op
        if op is None or depth == 0 or op.regions or not op.pure:
            return value.region or self._fn.body
        if value not in self._regions:
            found = self._fn.body
            for operand in op.operands:
                region = self._innermost(operand, depth - 1)
                if region.is_within(found):
                    found = region
            self._regions[value] = found
        return self._regions[value]

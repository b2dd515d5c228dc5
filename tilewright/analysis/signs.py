"""Whether integers are not negative, for rules about quotients and remainders.

`//` and `%` round toward 0, so properties of the quotients of consecutive non-negative integers do
not hold for negative ones: -16 // 16 is -1, and -15 // 16 is 0.

The proof goes backwards through the ops that compute a value, by the signs of operands, and by
ranges (`ranges.py`) where signs do not suffice. It makes one assumption: offsets do not overflow.
Offsets are sums, and products with constants up to `MAX_FACTOR`, of integers of 32 bits or more; a
kernel in which one overflows accesses memory outside its arrays. Loop-carried values are proven by
induction, and induction variables also from the fact that the loop has iterations. A proof looks
through at most `MAX_DEPTH` definitions. The IR is not modified.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.ranges import (
    MAX_DEPTH,
    WRAPPING,
    divisor_of_rest,
    may_wrap,
    type_range,
    value_range,
)
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import Tile, element_of
from tilewright.ops import arith, control, shape
from tilewright.ops.view import View

# Larger factors are not strides of tensors but those of hash functions, whose products overflow.
MAX_FACTOR = 1 << 24

# Ops whose result is not negative if all of their operands, one of them, or the first is not.
_ALL = arith.Add, arith.Mul, arith.Shl, arith.Min, arith.Or, shape.Join, shape.Cat
_ANY = arith.Max, arith.And
_FIRST = arith.Rem, arith.Shr, View


def not_negative(value: Value, *, trust_divisors: bool = False) -> bool:
    """Whether the elements of an integer value are not negative.

    Args:
        trust_divisors: whether to assume that divisors which are scalars are positive. The number
            of tiles along an axis, by which kernels divide the program id, depends on arguments.
    """
    if not element_of(value.type).is_int():
        return False  # a float that is cast to an integer
    return value_range(value)[0] >= 0 or _Proof(trust_divisors).holds(value, MAX_DEPTH)


def is_repeated_scalar(value: Value) -> bool:
    """Whether a value is a scalar, or a tile of copies of one."""
    while isinstance(value.type, Tile) and isinstance(value.op, View | arith.Cast):
        value = value.op.operands[0]
    return not isinstance(value.type, Tile)


class _Proof:
    """A proof by the signs of the values that a value is computed from.

    Attributes:
        given: loop-carried values, the hypotheses of the inductions in progress.
    """

    def __init__(self, trust_divisors: bool) -> None:
        self.trust_divisors = trust_divisors
        self.given: set[Value] = set()

    def holds(self, value: Value, depth: int) -> bool:
        if not element_of(value.type).is_int():
            return False
        if value in self.given or type_range(value)[0] >= 0:
            return True
        if depth == 0 or (may_wrap(value) and isinstance(value.op, WRAPPING)):
            return value_range(value, depth)[0] >= 0
        if isinstance(value.owner, Region):
            return self._argument(value, value.owner, depth - 1)
        return self._result(value.owner, value.index, depth - 1)

    def _all(self, values: Sequence[Value], depth: int) -> bool:
        return all(self.holds(v, depth) for v in values)

    def _result(self, op: Op, index: int, depth: int) -> bool:
        match op:
            case _ if isinstance(op, _ALL):
                return not _has_large_factor(op) and self._all(op.operands, depth)
            case _ if isinstance(op, _ANY):
                return any(self.holds(v, depth) for v in op.operands)
            case _ if isinstance(op, _FIRST):
                return self.holds(op.operands[0], depth)
            case arith.IntDiv(lhs, rhs):
                trusted = self.trust_divisors and is_repeated_scalar(rhs)
                return self.holds(lhs, depth) and (trusted or self.holds(rhs, depth))
            case arith.Select(_, x, y):
                return self._all([x, y], depth)
            case arith.Sub(x) if divisor_of_rest(op) is not None:
                return self.holds(x, depth)
            case arith.Cast(src) if not _reads_sign(op):
                return self.holds(src, depth)
            case arith.Hint(src) if op.low is None:
                return self.holds(src, depth)
            case control.If():
                return self._all([r.terminator.operands[index] for r in op.regions], depth)
            case control.For():
                return self._argument(op.body.args[index + 1], op.body, depth)
            case control.While():
                return self.holds(op.before.terminator.operands[index + 1], depth)
            case _:
                return value_range(op.results[index], depth)[0] >= 0

    def _argument(self, value: Value, region: Region, depth: int) -> bool:
        match region.parent:
            case control.For() as loop if value.index == 0:
                return self.holds(loop.start, depth) or self._starts_below_stop(loop, depth)
            case control.For() as loop:
                place = value.index - 1
                return self._by_induction(value, loop.inits[place], region, place, depth)
            case control.While() as loop if region is loop.body:
                return self.holds(loop.before.terminator.operands[value.index + 1], depth)
            case control.While() as loop:
                initial = loop.inits[value.index]
                return self._by_induction(value, initial, loop.body, value.index, depth)
            case _:
                return False

    def _starts_below_stop(self, loop: control.For, depth: int) -> bool:
        """Whether the start is not negative in a loop that has iterations.

        If the stop is at most start + c * x, with a constant c > 0, x is positive then: that proves
        the sign of start = part * x, where parts of equal length are divided among programs.
        """
        forms = AffineForms(through_scalars=True)
        start = forms.of(loop.start).start
        for bound in _upper_bounds(loop.stop):
            length = (forms.of(bound).start - start).alone
            if length is None or length.coefficient < 0 or len(length.factors) != 1:
                continue
            (factor,) = length.factors
            if isinstance(factor, Value) and factor not in self.given:
                self.given.add(factor)
                found = self.holds(loop.start, depth)
                self.given.discard(factor)
                if found:
                    return True
        return False

    def _by_induction(
        self, value: Value, initial: Value, body: Region, place: int, depth: int
    ) -> bool:
        """Whether it holds initially, and, if it holds in an iteration, in the next."""
        if not self.holds(initial, depth):
            return False
        self.given.add(value)
        result = self.holds(body.terminator.operands[place], depth)
        self.given.discard(value)
        return result


def _upper_bounds(value: Value) -> Iterator[Value]:
    """Values that a scalar is known not to exceed, each once, and itself."""
    seen, work = set[Value](), [value]
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        yield value
        if isinstance(value.op, arith.Min):
            work += reversed(value.op.operands)


def _has_large_factor(op: Op) -> bool:
    match op:
        case arith.Shl(_, count):
            number = arith.constant_value(count)
            return isinstance(number, int) and 1 << max(0, min(number, 64)) > MAX_FACTOR
        case arith.Mul():
            factors = [arith.constant_value(v) for v in op.operands]
            return any(isinstance(n, int) and n > MAX_FACTOR for n in factors)
        case _:
            return False


def _reads_sign(op: arith.Cast) -> bool:
    """Whether the sign bit of the result is a bit of an unsigned integer that may be set."""
    source = op.src
    if not element_of(source.type).is_int() or type_range(source)[0] < 0:
        return False
    return value_range(source)[1] > type_range(op.result)[1]

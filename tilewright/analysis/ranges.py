"""Integer range analysis by interval arithmetic, for proofs that a sum does not overflow.

Ranges are computed on demand, through at most `MAX_DEPTH` definitions, so that a query takes
bounded time. They are sound for wrapping arithmetic. The IR is not modified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from tilewright.ir.core import Op, Region, Value
from tilewright.ir.op_table import OpTable
from tilewright.ir.types import DType, element_of
from tilewright.ops import arith, control, gpu, shape
from tilewright.ops.view import View

Range = tuple[int, int]
OpT = TypeVar("OpT", bound=Op)
_Rule = Callable[[OpT, "_Query"], Range | None]

NARROW_BITS = 32

# The maximum number of definitions to look through; beyond, the range is that of the type.
MAX_DEPTH = 12

_RULES: OpTable[_Rule[Any]] = OpTable("rules of ranges")


def value_range(value: Value, depth: int = MAX_DEPTH) -> Range:
    """The minimum and maximum of the elements of an integer value, both inclusive.

    If the computed bounds of a result exceed those of its type, the arithmetic may wrap, and the
    range is that of the type.
    """
    return _Query({}, depth).of(value)


class _Query(NamedTuple):
    """The ranges that one is computed from.

    Attributes:
        known: those so far, by the value and the number of definitions to look through: operands
            that several ops share are looked at once for each number, not once for each path.
        depth: the number of definitions to look through.
    """

    known: dict[tuple[Value, int], Range]
    depth: int

    def of(self, value: Value) -> Range:
        """The range of a value."""
        key = value, self.depth
        result = self.known.get(key)
        if result is None:
            result = self.known[key] = self._computed(value)
        return result

    def _computed(self, value: Value) -> Range:
        limits = type_range(value)
        result = self._by_definition(value) if self.depth > 0 else None
        if result is None or result[0] < limits[0] or result[1] > limits[1]:
            return limits
        return result

    def _by_definition(self, value: Value) -> Range | None:
        owner = value.owner
        inner = _Query(self.known, self.depth - 1)
        if isinstance(owner, Region):
            return _induction_range(value, owner, inner)
        rule = _RULES.get(type(owner))
        if rule is not None:
            return rule(owner, inner)
        return inner.of(owner.src) if isinstance(owner, View) else None


def wraps(value: Value) -> bool:
    """Whether the exact result of an integer op is not known to be within the result's type."""
    rule = _RULES.get(type(value.op)) if value.op is not None else None
    found = rule(value.op, _Query({}, MAX_DEPTH - 1)) if rule is not None else None
    low, high = type_range(value)
    return found is None or found[0] < low or found[1] > high


def may_wrap(value: Value) -> bool:
    """Whether a value is of integers whose arithmetic wraps even in kernels that access their
    arrays in bounds.

    These are integers of 8 or 16 bits, such as indices into a table of 256 elements, and unsigned
    ones: ``(i - 1).to(tl.uint32) < n`` tests both bounds of an index, which wraps where it is below
    0. Of 64 bits, they wrap as addresses do.
    """
    element = element_of(value.type)
    if not element.is_int():
        return False
    bits = element.primitive_bitwidth
    return bits < NARROW_BITS or (bits < 64 and type_range(value)[0] >= 0)


def type_range(value: Value) -> Range:
    """The bounds of the value's integer type."""
    element = element_of(value.type)
    assert isinstance(element, DType)
    assert element.is_int(), f"{element} is not an integer type"
    return element.int_bounds


def sum_fits(values: Iterable[Value], low: int, high: int) -> bool:
    """Whether the exact sum of the values is known to be within the bounds."""
    bounds = [value_range(v) for v in values]
    return sum(b[0] for b in bounds) >= low and sum(b[1] for b in bounds) <= high


def divisor_of_rest(op: arith.Sub) -> Value | None:
    """The d of ``x - x // d * d``, in which no operation overflows, with the exception of the least
    integer by -1, where the rest is 0, too; None for other differences."""
    match op:
        case arith.Sub(x, Value(op=arith.Mul(a, b))):
            for quotient, divisor in ((a, b), (b, a)):
                match quotient.op:
                    case arith.IntDiv(dividend, d) if dividend is x and d is divisor:
                        return d
                    case _:
                        pass
        case _:
            pass
    return None


WRAPPING = arith.Add, arith.Sub, arith.Mul, arith.Neg, arith.Shl, arith.Cast
"""The ops whose exact results may be outside the type of their results."""


def _induction_range(value: Value, region: Region, query: _Query) -> Range | None:
    """The range of the induction variable of a `for`; None for other arguments of regions."""
    loop = region.parent
    if not isinstance(loop, control.For) or value.index != 0:
        return None
    start, stop, step = map(query.of, loop.operands[:3])
    if start[0] >= stop[1]:
        return None
    last = stop[1] - 1
    if start[0] == start[1] and step[0] == step[1] > 0:
        last -= (last - start[0]) % step[0]
    return start[0], last


def _rule(*classes: type[OpT]) -> Callable[[_Rule[OpT]], _Rule[OpT]]:
    return _RULES.of(*classes)


@_rule(arith.Constant)
def _constant(op: arith.Constant, query: _Query) -> Range | None:
    number = int(op.value)
    return number, number


@_rule(arith.Hint)
def _hint(op: arith.Hint, query: _Query) -> Range | None:
    if not element_of(op.src.type).is_int():
        return None
    low, high = query.of(op.src)
    low = low if op.low is None else max(low, op.low)
    high = high if op.high is None else min(high, op.high)
    return (low, high) if low <= high else None


@_rule(shape.Arange)
def _arange(op: shape.Arange, query: _Query) -> Range | None:
    start, end = op.start, op.end
    return start, end - 1


@_rule(control.ProgramId, gpu.BlockId)
def _program_id(op: control.ProgramId | gpu.BlockId, query: _Query) -> Range | None:
    return 0, 2**31 - 2


@_rule(control.NumPrograms, gpu.BlockCount)
def _program_count(op: control.NumPrograms | gpu.BlockCount, query: _Query) -> Range | None:
    return 1, 2**31 - 1


@_rule(shape.Join, shape.Cat)
def _either(op: shape.Join | shape.Cat, query: _Query) -> Range | None:
    return _union(op.operands, query)


@_rule(arith.Select)
def _select(op: arith.Select, query: _Query) -> Range | None:
    return _union(op.operands[1:], query)


def _union(values: Iterable[Value], query: _Query) -> Range:
    bounds = [query.of(v) for v in values]
    return min(b[0] for b in bounds), max(b[1] for b in bounds)


@_rule(arith.Cast)
def _cast(op: arith.Cast, query: _Query) -> Range | None:
    source = element_of(op.operands[0].type)
    to = element_of(op.results[0].type)
    if not source.is_int() or to.is_bool():
        return None
    return query.of(op.operands[0])


def _bounds(op: Op, query: _Query) -> tuple[Range, Range]:
    return query.of(op.operands[0]), query.of(op.operands[1])


@_rule(arith.Add)
def _add(op: arith.Add, query: _Query) -> Range | None:
    a, b = _bounds(op, query)
    return a[0] + b[0], a[1] + b[1]


@_rule(arith.Sub)
def _sub(op: arith.Sub, query: _Query) -> Range | None:
    a, b = _bounds(op, query)
    divisor = divisor_of_rest(op)
    if divisor is not None:
        low, high = query.of(divisor)
        # Without a quotient, nothing is subtracted.
        size = max(abs(low), abs(high)) - 1 if low > 0 or high < 0 else max(-a[0], a[1])
        return _of_rest(a, size)
    if _is_from_part(op, query):
        return 1, max(1, a[1])
    return a[0] - b[1], a[1] - b[0]


def _is_from_part(op: arith.Sub, query: _Query) -> bool:
    """Whether a difference is `n - i * size`, the elements of `n` from part `i` on, in a loop over
    the parts, `for i in range(start, (n + size - 1) // size)`: at least 1.

    If the sum in the number of parts wrapped, it would be negative, or less than `size`, and there
    would be no iteration. Nor does the product wrap, which is less than `n`.
    """
    whole, product = _unwidened(op.lhs, query), _unwidened(op.rhs, query).op
    if not isinstance(product, arith.Mul):
        return False
    index, size = _unwidened(product.lhs, query), query.of(product.rhs)
    loop = index.owner.parent if isinstance(index.owner, Region) else None
    if not isinstance(loop, control.For) or index.index != 0 or query.of(loop.start)[0] < 0:
        return False
    parts = loop.stop.op
    if not isinstance(parts, arith.IntDiv) or not isinstance(parts.lhs.op, arith.Add):
        return False
    rounded = parts.lhs.op
    return (
        whole is rounded.lhs
        and size[0] == size[1] > 0
        and query.of(parts.rhs) == size
        and query.of(rounded.rhs) == (size[0] - 1, size[0] - 1)
    )


def _unwidened(value: Value, query: _Query) -> Value:
    """The value from which integer casts to types that have all its values are computed."""
    while isinstance(value.op, arith.Cast) and element_of(value.op.src.type).is_int():
        low, high = query.of(value.op.src)
        least, most = type_range(value)
        if low < least or high > most:
            break
        value = value.op.src
    return value


@_rule(arith.Mul)
def _mul(op: arith.Mul, query: _Query) -> Range | None:
    a, b = _bounds(op, query)
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


@_rule(arith.Min)
def _min(op: arith.Min, query: _Query) -> Range | None:
    a, b = _bounds(op, query)
    return min(a[0], b[0]), min(a[1], b[1])


@_rule(arith.Max)
def _max(op: arith.Max, query: _Query) -> Range | None:
    a, b = _bounds(op, query)
    return max(a[0], b[0]), max(a[1], b[1])


@_rule(arith.IntDiv)
def _idiv(op: arith.IntDiv, query: _Query) -> Range | None:
    """Rounded toward zero, so at most the dividend in magnitude; x // 0 is 0."""
    a, b = _bounds(op, query)
    least = max(1, b[0], -b[1])
    low, high = -(max(-a[0], 0) // least), max(a[1], 0) // least
    if b[0] < 0:
        size = max(-low, high)
        return -size, size
    return (a[0] // b[1] if a[0] > 0 < b[0] else low), high


@_rule(arith.Rem)
def _rem(op: arith.Rem, query: _Query) -> Range | None:
    """A remainder has the sign of the dividend, and is less than the divisor in magnitude; x % 0 is
    0."""
    a, b = _bounds(op, query)
    return _of_rest(a, max(abs(b[0]), abs(b[1]), 1) - 1)


def _of_rest(dividend: Range, size: int) -> Range:
    """The range of numbers with the sign of a dividend, or 0, that are not larger in magnitude than
    it and `size`."""
    return max(min(dividend[0], 0), -size), min(max(dividend[1], 0), size)


@_rule(arith.And)
def _and(op: arith.And, query: _Query) -> Range | None:
    """At most the smallest operand that is not negative."""
    highs = [bounds[1] for bounds in _bounds(op, query) if bounds[0] >= 0]
    return (0, min(highs)) if highs else None


@_rule(arith.Shr)
def _shr(op: arith.Shr, query: _Query) -> Range | None:
    a, b = _bounds(op, query)
    if a[0] < 0 or b[0] < 0:
        return None
    return a[0] >> min(b[1], 64), a[1] >> min(b[0], 64)


@_rule(arith.Shl)
def _shl(op: arith.Shl, query: _Query) -> Range | None:
    a, b = _bounds(op, query)
    if a[0] < 0 or b[0] < 0 or b[1] > 64:
        return None
    return a[0] << b[0], a[1] << b[1]

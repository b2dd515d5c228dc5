"""Bounds of integer values, for proofs that a sum does not overflow.

Ops are told by name, for their classes are a layer above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import DType, element_of

Range = tuple[int, int]
_Rule = Callable[[Op, int], Range | None]

# Beyond this many ops back, a value may be anything of its type.
MAX_DEPTH = 12

_RULES: dict[str, _Rule] = {}


def value_range(value: Value, depth: int = MAX_DEPTH) -> Range:
    """The smallest and the largest number that any element may be, both inclusive.

    Exact arithmetic is assumed nowhere: where the bounds of an op's result pass those of its type,
    the result may be anything of the type. Takes integers only.
    """
    limits = type_range(value)
    found = None
    owner = value.owner
    if depth > 0:
        if isinstance(owner, Region):
            found = _induction_range(value, owner, depth)
        else:
            rule = _RULES.get(owner.name)
            found = rule(owner, depth - 1) if rule is not None else None
    if found is None or found[0] < limits[0] or found[1] > limits[1]:
        return limits
    return found


def type_range(value: Value) -> Range:
    """The bounds of the value's integer type."""
    element = element_of(value.type)
    assert isinstance(element, DType)
    assert element.is_int(), f"{element} is not an integer type"
    return element.get_int_min_value(), element.get_int_max_value()


def sum_fits(values: Iterable[Value], low: int, high: int) -> bool:
    """Whether the exact sum of the values is surely within the bounds."""
    bounds = [value_range(v) for v in values]
    return sum(b[0] for b in bounds) >= low and sum(b[1] for b in bounds) <= high


def _induction_range(value: Value, region: Region, depth: int) -> Range | None:
    """A `for` counts from its start to below its stop, by steps."""
    loop = region.parent
    if loop is None or loop.name != "control.for" or value.index != 0:
        return None
    start, stop, step = (value_range(v, depth - 1) for v in loop.operands[:3])
    if start[0] >= stop[1]:
        return None
    last = stop[1] - 1
    if start[0] == start[1] and step[0] == step[1] > 0:
        last -= (last - start[0]) % step[0]
    return start[0], last


def _rule(*names: str) -> Callable[[_Rule], _Rule]:
    def register(rule: _Rule) -> _Rule:
        for name in names:
            assert name not in _RULES
            _RULES[name] = rule
        return rule

    return register


@_rule("arith.constant")
def _constant(op: Op, depth: int) -> Range | None:
    number = int(op.attributes["value"])
    return number, number


@_rule("tile.arange")
def _arange(op: Op, depth: int) -> Range | None:
    start, end = op.attributes["start"], op.attributes["end"]
    return start, end - 1


@_rule("program.id")
def _program_id(op: Op, depth: int) -> Range | None:
    return 0, 2**31 - 2


@_rule("program.count")
def _program_count(op: Op, depth: int) -> Range | None:
    return 1, 2**31 - 1


@_rule("tile.splat", "tile.expand_dims", "tile.broadcast", "tile.reshape", "tile.permute",
       "tile.flip", "tile.split", "arith.hint", "tile.gather", "gpu.convert_layout")  # fmt: skip
def _same(op: Op, depth: int) -> Range | None:
    return value_range(op.operands[0], depth)


@_rule("tile.join", "tile.cat")
def _either(op: Op, depth: int) -> Range | None:
    return _union(op.operands, depth)


@_rule("arith.select")
def _select(op: Op, depth: int) -> Range | None:
    return _union(op.operands[1:], depth)


def _union(values: Iterable[Value], depth: int) -> Range:
    bounds = [value_range(v, depth) for v in values]
    return min(b[0] for b in bounds), max(b[1] for b in bounds)


@_rule("arith.cast")
def _cast(op: Op, depth: int) -> Range | None:
    source = element_of(op.operands[0].type)
    to = element_of(op.results[0].type)
    if not source.is_int() or to.is_bool():
        return None
    return value_range(op.operands[0], depth)


def _bounds(op: Op, depth: int) -> tuple[Range, Range]:
    return value_range(op.operands[0], depth), value_range(op.operands[1], depth)


@_rule("arith.add")
def _add(op: Op, depth: int) -> Range | None:
    a, b = _bounds(op, depth)
    return a[0] + b[0], a[1] + b[1]


@_rule("arith.sub")
def _sub(op: Op, depth: int) -> Range | None:
    a, b = _bounds(op, depth)
    return a[0] - b[1], a[1] - b[0]


@_rule("arith.mul")
def _mul(op: Op, depth: int) -> Range | None:
    a, b = _bounds(op, depth)
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


@_rule("arith.min")
def _min(op: Op, depth: int) -> Range | None:
    a, b = _bounds(op, depth)
    return min(a[0], b[0]), min(a[1], b[1])


@_rule("arith.max")
def _max(op: Op, depth: int) -> Range | None:
    a, b = _bounds(op, depth)
    return max(a[0], b[0]), max(a[1], b[1])


@_rule("arith.idiv")
def _idiv(op: Op, depth: int) -> Range | None:
    """A quotient is no larger than its dividend; x // 0 is 0."""
    a, b = _bounds(op, depth)
    if a[0] < 0 or b[0] < 0:
        return None
    low = a[0] // b[1] if b[0] > 0 else 0
    return low, a[1] // max(1, b[0])


@_rule("arith.rem")
def _rem(op: Op, depth: int) -> Range | None:
    """A remainder has the dividend's sign and is below the divisor; x % 0 is 0."""
    a, b = _bounds(op, depth)
    size = max(abs(b[0]), abs(b[1]), 1) - 1
    return max(min(a[0], 0), -size), min(max(a[1], 0), size)


@_rule("arith.and")
def _and(op: Op, depth: int) -> Range | None:
    """Not above an operand that has no sign bit."""
    highs = [bounds[1] for bounds in _bounds(op, depth) if bounds[0] >= 0]
    return (0, min(highs)) if highs else None


@_rule("arith.shr")
def _shr(op: Op, depth: int) -> Range | None:
    a, b = _bounds(op, depth)
    if a[0] < 0 or b[0] < 0:
        return None
    return a[0] >> min(b[1], 64), a[1] >> min(b[0], 64)


@_rule("arith.shl")
def _shl(op: Op, depth: int) -> Range | None:
    a, b = _bounds(op, depth)
    if a[0] < 0 or b[0] < 0 or b[1] > 64:
        return None
    return a[0] << b[0], a[1] << b[1]

"""Comparisons, selects, casts and hints.

Canonical form: a constant operand of a comparison is on the right; the condition of a select is not
a negation; a chain of casts is a single cast if that is exact; constants are cast before they are
selected. Termination: each rule decreases (number of ops other than constants and selects of them,
number of ops, number of constants on the left), in lexicographic order.
"""

from __future__ import annotations

from math import lcm

from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import I1, DType, dtype_of, element_of, is_float, is_int
from tilewright.ops.arith import Add, Bitcast, Cast, Cmp, Constant, Hint, Select, Sub, Xor
from tilewright.rewrites.patterns import constant, is_int_of, known

SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
INVERTED = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
HOLDS_WHEN_EQUAL = frozenset({"eq", "le", "ge"})


# -- comparison ---------------------------------------------------------------------------------


@rewrite(Cmp)
def cmp_of_itself(op: Cmp, rw: Rewriter) -> Value | None:
    """x == x = true, x < x = false for integers; x < x = x > x = false for floats"""
    if op.lhs is not op.rhs:
        return None
    if not is_float(op.lhs.type) or op.predicate in ("lt", "gt"):
        return constant(rw, op.predicate in HOLDS_WHEN_EQUAL, op.result.type)
    return None


@rewrite(Cmp)
def cmp_constant_to_the_right(op: Cmp, rw: Rewriter) -> Value | None:
    """c < x = x > c"""
    if not isinstance(op.lhs.op, Constant) or isinstance(op.rhs.op, Constant):
        return None
    return rw.insert(Cmp(op.rhs, op.lhs, SWAPPED[op.predicate]))


@rewrite(Cmp)
def cmp_of_ranges(op: Cmp, rw: Rewriter) -> Value | None:
    """x < y = true if the maximum of x is less than the minimum of y, and likewise for the other
    predicates"""
    if is_float(op.lhs.type):
        return None
    (x_min, x_max), (y_min, y_max) = value_range(op.lhs), value_range(op.rhs)
    below, above = x_max < y_min, x_min > y_max
    not_above, not_below = x_max <= y_min, x_min >= y_max
    holds, fails = {
        "lt": (below, not_below),
        "le": (not_above, above),
        "gt": (above, not_above),
        "ge": (not_below, below),
        "eq": (not_above and not_below, below or above),
        "ne": (below or above, not_above and not_below),
    }[op.predicate]
    return constant(rw, holds, op.result.type) if holds or fails else None


@rewrite(Cmp)
def cmp_of_condition(op: Cmp, rw: Rewriter) -> Value | None:
    """int(b) != 0 = b for a condition b; b == true = b; b != false = b"""
    not_zero = op.predicate == "ne" and is_int_of(op.rhs, 0)
    if not (not_zero or (op.predicate == "eq" and known(op.rhs) is True)):
        return None
    source = op.lhs
    if element_of(source.type) == I1:
        return source
    match source.op:
        case Cast(b) if element_of(b.type) == I1 and is_int(source.type):
            return b
        case _:
            return None


@rewrite(Cmp)
def cmp_of_sum(op: Cmp, rw: Rewriter) -> Value | None:
    """x + c == d = x == d - c; x - y == 0 = x == y, and likewise for !=, for integers"""
    if op.predicate not in ("eq", "ne") or not is_int(op.lhs.type):
        return None
    number = known(op.rhs)
    match op.lhs.op:
        case Add(x, c) if isinstance(number, int) and isinstance(shift := known(c), int):
            return rw.insert(Cmp(x, constant(rw, number - shift, c.type), op.predicate))
        case Sub(x, y) if is_int_of(op.rhs, 0):
            return rw.insert(Cmp(x, y, op.predicate))
        case _:
            return None


@rewrite(Xor)
def not_of_cmp(op: Xor, rw: Rewriter) -> Value | None:
    """not (x < y) = x >= y for integers; not (x == y) = x != y for floats too"""
    if known(op.rhs) is not True:
        return None
    match op.lhs.op:
        case Cmp(x, y, p) if not is_float(x.type) or p in ("eq", "ne"):
            return rw.insert(Cmp(x, y, INVERTED[p]))
        case _:
            return None


# -- selection ----------------------------------------------------------------------------------


@rewrite(Select)
def select_known(op: Select, rw: Rewriter) -> Value | None:
    """select(true, x, y) = x; select(false, x, y) = y; select(c, x, x) = x"""
    choice = known(op.condition)
    if choice is not None:
        return op.on_true if choice else op.on_false
    return op.on_true if op.on_true is op.on_false else None


@rewrite(Select)
def select_of_equal_constants(op: Select, rw: Rewriter) -> Value | None:
    """select(c, k, k) = k for equal constants k, other than NaN"""
    match op.on_true.op, op.on_false.op:
        case Constant(x), Constant(y) if repr(x) == repr(y) and x == x:
            return op.on_true
        case _:
            return None


@rewrite(Select)
def select_of_conditions(op: Select, rw: Rewriter) -> Value | None:
    """select(c, true, false) = c; select(c, false, true) = not c"""
    if element_of(op.on_true.type) != I1:
        return None
    match known(op.on_true), known(op.on_false):
        case True, False:
            return op.condition
        case False, True:
            return rw.insert(Xor(op.condition, constant(rw, True, op.condition.type)))
        case _:
            return None


@rewrite(Select)
def select_of_not(op: Select, rw: Rewriter) -> Value | None:
    """select(not c, x, y) = select(c, y, x)"""
    match op.condition.op:
        case Xor(c, true) if known(true) is True:
            return rw.insert(Select(c, op.on_false, op.on_true))
        case _:
            return None


@rewrite(Select)
def select_of_select(op: Select, rw: Rewriter) -> Value | None:
    """select(c, select(c, x, y), z) = select(c, x, z); select(c, z, select(c, x, y)) =
    select(c, z, y)"""
    match op.on_true.op, op.on_false.op:
        case Select(c, x, _), _ if c is op.condition:
            return rw.insert(Select(c, x, op.on_false))
        case _, Select(c, _, y) if c is op.condition:
            return rw.insert(Select(c, op.on_true, y))
        case _:
            return None


# -- casts --------------------------------------------------------------------------------------


@rewrite(Cast)
def cast_to_same(op: Cast, rw: Rewriter) -> Value | None:
    """cast(x, type of x) = x"""
    return op.src if op.src.type == op.result.type else None


def _holds_all_of(wide: DType, narrow: DType) -> bool:
    """Whether every value of the standard float type `narrow` is representable in `wide`."""
    if not (wide.is_standard_floating() and narrow.is_standard_floating()):
        return False
    return (
        wide.fp_mantissa_width >= narrow.fp_mantissa_width
        and wide.exponent_bias >= narrow.exponent_bias
    )


def _cast_chain_is_one_cast(a: DType, b: DType, c: DType) -> bool:
    """Whether the casts a → b → c have the same result as a → c for every value of type a."""
    if a.is_floating() and b.is_floating() and c.is_floating():
        return _holds_all_of(b, a) and c.is_standard_floating()
    if not (a.is_int() and b.is_int() and c.is_int()) or b.is_bool():
        return False
    if c.is_bool():
        return a.primitive_bitwidth <= b.primitive_bitwidth
    if c.primitive_bitwidth <= b.primitive_bitwidth:
        return not a.is_bool() or b.primitive_bitwidth >= a.primitive_bitwidth
    widens = b.primitive_bitwidth > a.primitive_bitwidth
    same_sign = a.is_int_signed() == b.is_int_signed()
    return widens and (same_sign or not a.is_int_signed())


@rewrite(Cast)
def cast_of_cast(op: Cast, rw: Rewriter) -> Value | None:
    """cast(cast(x, b), c) = cast(x, c) if b represents every value of x, or c truncates the bits
    that b added"""
    match op.src.op:
        case Cast(x, b, _):
            a = dtype_of(x.type)
            if _cast_chain_is_one_cast(a, b, op.to):
                return rw.insert(Cast(x, op.to, op.rounding))
        case _:
            pass
    return None


@rewrite(Cast)
def cast_of_select(op: Cast, rw: Rewriter) -> Value | None:
    """cast(select(c, k, l)) = select(c, cast(k), cast(l)) for constants k and l"""
    match op.src.op:
        case Select(c, x, y) if isinstance(x.op, Constant) and isinstance(y.op, Constant):
            on_true, on_false = (rw.insert(Cast(value, op.to, op.rounding)) for value in (x, y))
            return rw.insert(Select(c, on_true, on_false))
        case _:
            return None


@rewrite(Bitcast)
def bitcast_of_bitcast(op: Bitcast, rw: Rewriter) -> Value | None:
    """bitcast(x, type of x) = x; bitcast(bitcast(x, b), c) = bitcast(x, c)"""
    if op.src.type == op.result.type:
        return op.src
    match op.src.op:
        case Bitcast(x, _):
            return rw.insert(Bitcast(x, op.to))
        case _:
            return None


# -- hints --------------------------------------------------------------------------------------


def _joined(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The conjunction of two hints: a multiple of 4 and of 6 is a multiple of 12. 0 means none."""
    return tuple(lcm(x, y) if x and y else x or y for x, y in zip(a, b, strict=True))


@rewrite(Hint)
def hint_of_hint(op: Hint, rw: Rewriter) -> Value | None:
    """hint(hint(x, f), g) = hint(x, f and g); removes trivial hints"""
    facts = (op.divisibility, op.contiguity, op.constancy)
    bounded = op.low is not None or op.high is not None
    if not bounded and not any(fact > 1 for per_axis in facts for fact in per_axis):
        return op.src
    match op.src.op:
        case Hint(x, divisibility, contiguity, constancy, low, high):
            return rw.insert(
                Hint(
                    x,
                    _joined(divisibility, op.divisibility),
                    _joined(contiguity, op.contiguity),
                    _joined(constancy, op.constancy),
                    low=max((n for n in (low, op.low) if n is not None), default=None),
                    high=min((n for n in (high, op.high) if n is not None), default=None),
                )
            )
        case _:
            return None

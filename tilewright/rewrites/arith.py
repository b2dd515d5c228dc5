"""Identities of integer and float arithmetic.

Canonical form:
- a constant operand of a commutative op is on the right;
- an integer minus a constant is a sum with the negated constant; `x + -y` is `x - y`, `0 - x` is
  `-x`, `x * -1` is `-x`;
- constants of nested sums, products, ands, … are combined;
- a float divided by a power of two is a product; unsigned division by one is a shift;
- products by powers of two and shifts are not converted to each other: axis information handles
  both.

Termination: each rule decreases (cost of the ops: division of 64 bits, of fewer, product, sum;
number of ops; number of constants on the left), in lexicographic order.

Rules for floats hold for -0.0, infinities and NaN, too: x + 0.0 is not x (-0.0 + 0.0 = 0.0),
x - x is not 0, and an infinite fp8e5 times 1.0 is the largest finite value. The sign and payload of
a NaN are unspecified.
"""

from __future__ import annotations

import math

from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Op, Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import (
    FP8E4B15,
    I32,
    I64,
    U32,
    U64,
    DType,
    dtype_of,
    element_of,
    is_int,
)
from tilewright.ops.arith import (
    Abs,
    Add,
    And,
    Cast,
    Constant,
    Div,
    Fma,
    IntDiv,
    Max,
    Min,
    Mul,
    MulHi,
    Neg,
    Or,
    Rem,
    Shl,
    Shr,
    Sub,
    Xor,
)
from tilewright.rewrites.patterns import (
    all_ones,
    constant,
    equal,
    is_float_of,
    is_int_of,
    is_neutral_float,
    known,
    like,
)


def constant_to_the_right(op: Op, rw: Rewriter) -> Value | None:
    """c + x = x + c for every commutative op"""
    lhs, rhs = op.operands[:2]
    if not isinstance(lhs.op, Constant) or isinstance(rhs.op, Constant):
        return None
    return rw.insert(like(op, [rhs, lhs, *op.operands[2:]]))


for _op_class in (Add, Mul, And, Or, Xor, Min, Max, MulHi, Fma):
    rewrite(_op_class)(constant_to_the_right)


def _combined(op: Op, rw: Rewriter) -> Value | None:
    """(x ∘ c) ∘ d = x ∘ (c ∘ d) for an associative op on integers."""
    lhs, rhs = op.operands
    inner = lhs.op
    if inner is None or type(inner) is not type(op):
        return None
    if not isinstance(rhs.op, Constant) or not is_int(rhs.type):
        return None
    x, c = inner.operands
    if not isinstance(c.op, Constant) or inner.attributes != op.attributes:
        return None
    return rw.insert(like(op, [x, rw.insert(like(op, [c, rhs]))]))


def combine_constants(op: Op, rw: Rewriter) -> Value | None:
    """(x + c) + d = x + (c + d) for integers and +, *, and, or, xor, min, max"""
    return _combined(op, rw)


for _op_class in (Add, Mul, And, Or, Xor, Min, Max):
    rewrite(_op_class)(combine_constants)


# -- sums ---------------------------------------------------------------------------------------


@rewrite(Add)
def add_of_zero(op: Add, rw: Rewriter) -> Value | None:
    """x + 0 = x for integers; x + -0.0 = x for floats"""
    return op.lhs if is_int_of(op.rhs, 0) or is_neutral_float(op.rhs, -0.0) else None


@rewrite(Add)
def add_of_negative(op: Add, rw: Rewriter) -> Value | None:
    """x + -y = x - y; -x + y = y - x"""
    match op.lhs.op, op.rhs.op:
        case _, Neg(y):
            return rw.insert(Sub(op.lhs, y))
        case Neg(x), _:
            return rw.insert(Sub(op.rhs, x))
        case _:
            return None


@rewrite(Add)
def add_of_difference(op: Add, rw: Rewriter) -> Value | None:
    """(x - y) + y = y + (x - y) = x for integers"""
    if not is_int(op.lhs.type):
        return None
    for difference, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        match difference.op:
            case Sub(x, y) if equal(y, other):
                return x
            case _:
                pass
    return None


@rewrite(Sub)
def sub_of_zero(op: Sub, rw: Rewriter) -> Value | None:
    """x - 0.0 = x for floats; for integers, see sub_of_constant"""
    return op.lhs if is_neutral_float(op.rhs, 0.0) else None


@rewrite(Sub)
def sub_of_constant(op: Sub, rw: Rewriter) -> Value | None:
    """x - c = x + -c for integers"""
    number = known(op.rhs)
    if not isinstance(number, int) or not is_int(op.rhs.type):
        return None
    return rw.insert(Add(op.lhs, constant(rw, -number, op.rhs.type)))


@rewrite(Sub)
def sub_of_itself(op: Sub, rw: Rewriter) -> Value | None:
    """x - x = 0 for integers"""
    if op.lhs is op.rhs and is_int(op.lhs.type):
        return constant(rw, 0, op.lhs.type)
    return None


@rewrite(Sub)
def sub_of_sum(op: Sub, rw: Rewriter) -> Value | None:
    """(x + y) - y = x; (x + y) - x = y for integers"""
    match op.lhs.op:
        case Add(x, y) if is_int(op.lhs.type):
            if y is op.rhs:
                return x
            return y if x is op.rhs else None
        case _:
            return None


@rewrite(Sub)
def sub_of_difference(op: Sub, rw: Rewriter) -> Value | None:
    """(x - y) - x = -y for integers"""
    match op.lhs.op:
        case Sub(x, y) if is_int(op.lhs.type) and equal(x, op.rhs):
            return rw.insert(Neg(y))
        case _:
            return None


@rewrite(Sub)
def sub_of_negative(op: Sub, rw: Rewriter) -> Value | None:
    """x - -y = x + y"""
    match op.rhs.op:
        case Neg(y):
            return rw.insert(Add(op.lhs, y))
        case _:
            return None


@rewrite(Sub)
def sub_from_zero(op: Sub, rw: Rewriter) -> Value | None:
    """0 - x = -x for integers; -0.0 - x = -x for floats"""
    if is_int_of(op.lhs, 0) or is_neutral_float(op.lhs, -0.0):
        return rw.insert(Neg(op.rhs))
    return None


@rewrite(Neg)
def neg_of_neg(op: Neg, rw: Rewriter) -> Value | None:
    """-(-x) = x; -(x - y) = y - x for integers"""
    match op.src.op:
        case Neg(x):
            return x
        case Sub(x, y) if is_int(op.src.type):
            return rw.insert(Sub(y, x))
        case _:
            return None


@rewrite(Abs)
def abs_of_signed(op: Abs, rw: Rewriter) -> Value | None:
    """|-x| = |x|; ||x|| = |x|; |u| = u for an unsigned u"""
    element = element_of(op.src.type)
    if element.is_int() and not element.is_bool() and not _is_signed(op.src):
        return op.src  # must precede |-x| = |x|, which is wrong for unsigned x
    match op.src.op:
        case Abs():
            return op.src
        case Neg(x):
            return rw.insert(Abs(x))
        case _:
            return None


def _is_signed(value: Value) -> bool:
    element = element_of(value.type)
    return isinstance(element, DType) and element.is_int_signed()


# -- products -----------------------------------------------------------------------------------


@rewrite(Mul)
def mul_of_one(op: Mul, rw: Rewriter) -> Value | None:
    """x * 1 = x; x * 1.0 = x"""
    return op.lhs if is_int_of(op.rhs, 1) or is_neutral_float(op.rhs, 1.0) else None


@rewrite(Mul)
def mul_of_minus_one(op: Mul, rw: Rewriter) -> Value | None:
    """x * -1 = -x; x * -1.0 = -x"""
    if is_int_of(op.rhs, -1) or is_neutral_float(op.rhs, -1.0):
        return rw.insert(Neg(op.lhs))
    return None


@rewrite(Mul)
def mul_of_zero(op: Mul, rw: Rewriter) -> Value | None:
    """x * 0 = 0 for integers"""
    return op.rhs if is_int_of(op.rhs, 0) else None


@rewrite(Fma)
def fma_of_unit(op: Fma, rw: Rewriter) -> Value | None:
    """fma(x, 1.0, z) = x + z

    fma(x, y, -0.0) is not rewritten to x * y, which could be contracted with a sum.
    """
    return rw.insert(Add(op.x, op.z)) if is_float_of(op.y, 1.0) else None


# -- quotients ----------------------------------------------------------------------------------


@rewrite(Div)
def div_by_power_of_two(op: Div, rw: Rewriter) -> Value | None:
    """x / 2^k = x * 2^-k for floats, where both powers are normal numbers

    It does not apply to fp8e4b15, whose largest value is 1.875.
    """
    number, element = known(op.rhs), element_of(op.rhs.type)
    if not isinstance(number, float) or element is FP8E4B15:
        return None
    if number == 0.0 or not math.isfinite(number):
        return None
    bias = dtype_of(op.rhs.type).exponent_bias
    mantissa, exponent = math.frexp(number)
    if abs(mantissa) != 0.5 or abs(exponent - 1) >= bias - 1:
        return None
    return rw.insert(Mul(op.lhs, constant(rw, 1.0 / number, op.rhs.type)))


@rewrite(IntDiv)
def idiv_by_unit(op: IntDiv, rw: Rewriter) -> Value | None:
    """x // 1 = x; x // -1 = -x; x // 0 = 0; 0 // x = 0"""
    if is_int_of(op.rhs, 1):
        return op.lhs
    if is_int_of(op.rhs, -1):
        return rw.insert(Neg(op.lhs))
    if is_int_of(op.rhs, 0):
        return op.rhs
    return op.lhs if is_int_of(op.lhs, 0) else None


def _unsigned_power_of_two(divisor: Value) -> int | None:
    number = known(divisor)
    element = element_of(divisor.type)
    if not isinstance(number, int) or isinstance(number, bool) or _is_signed(divisor):
        return None
    return number if element.is_int() and number > 0 and number & (number - 1) == 0 else None


@rewrite(IntDiv)
def idiv_to_shift(op: IntDiv, rw: Rewriter) -> Value | None:
    """x // 2^k = x >> k for an unsigned x"""
    number = _unsigned_power_of_two(op.rhs)
    if number is None:
        return None
    return rw.insert(Shr(op.lhs, constant(rw, number.bit_length() - 1, op.rhs.type)))


@rewrite(Rem)
def rem_to_mask(op: Rem, rw: Rewriter) -> Value | None:
    """x % 2^k = x & (2^k - 1) for an unsigned x"""
    number = _unsigned_power_of_two(op.rhs)
    return None if number is None else rw.insert(And(op.lhs, constant(rw, number - 1, op.rhs.type)))


@rewrite(Rem)
def rem_by_unit(op: Rem, rw: Rewriter) -> Value | None:
    """x % 1 = x % -1 = x % 0 = x % x = 0 % x = 0 for integers"""
    if not is_int(op.lhs.type):
        return None
    zero = is_int_of(op.rhs, 1) or is_int_of(op.rhs, -1) or is_int_of(op.rhs, 0)
    if zero or op.lhs is op.rhs or is_int_of(op.lhs, 0):
        return constant(rw, 0, op.lhs.type)
    return None


@rewrite(IntDiv)
def idiv_in_words(op: IntDiv, rw: Rewriter) -> Value | None:
    """x // y = (i64)((i32)x // (i32)y) where both are numbers of 32 bits"""
    return _in_words(op, rw)


@rewrite(Rem)
def rem_in_words(op: Rem, rw: Rewriter) -> Value | None:
    """x % y = (i64)((i32)x % (i32)y) where both are numbers of 32 bits"""
    return _in_words(op, rw)


def _in_words(op: IntDiv | Rem, rw: Rewriter) -> Value | None:
    """The result of an op of 32 bits, if both operands are known to have so many; -2^31 // -1 has
    more.

    Processors take many more instructions to divide 64 bits, in which indices are computed so that
    products of them do not wrap.
    """
    element = element_of(op.lhs.type)
    if element not in (I64, U64):
        return None
    dividends, divisors = value_range(op.lhs), value_range(op.rhs)
    low, high = min(dividends[0], divisors[0]), max(dividends[1], divisors[1])
    for word in (I32, U32):
        least, most = word.int_bounds
        overflows = dividends[0] == least < 0 and divisors[0] <= -1 <= divisors[1]
        if least <= low and high <= most and not overflows:
            x, y = (rw.insert(Cast(v, word, "rtne")) for v in (op.lhs, op.rhs))
            assert isinstance(element, DType)
            return rw.insert(Cast(rw.insert(like(op, [x, y])), element, "rtne"))
    return None


# -- bits ---------------------------------------------------------------------------------------


@rewrite(And)
def and_of_unit(op: And, rw: Rewriter) -> Value | None:
    """x & x = x; x & -1 = x; x & 0 = 0"""
    if op.lhs is op.rhs or is_int_of(op.rhs, all_ones(op.rhs.type)):
        return op.lhs
    return op.rhs if is_int_of(op.rhs, 0) else None


@rewrite(Or)
def or_of_unit(op: Or, rw: Rewriter) -> Value | None:
    """x | x = x; x | 0 = x; x | -1 = -1"""
    if op.lhs is op.rhs or is_int_of(op.rhs, 0):
        return op.lhs
    return op.rhs if is_int_of(op.rhs, all_ones(op.rhs.type)) else None


@rewrite(Xor)
def xor_of_unit(op: Xor, rw: Rewriter) -> Value | None:
    """x ^ 0 = x; x ^ x = 0"""
    if is_int_of(op.rhs, 0):
        return op.lhs
    return constant(rw, 0, op.lhs.type) if op.lhs is op.rhs else None


def shift_of_unit(op: Op, rw: Rewriter) -> Value | None:
    """x << 0 = x >> 0 = x; 0 << x = 0 >> x = 0"""
    lhs, rhs = op.operands
    return lhs if is_int_of(rhs, 0) or is_int_of(lhs, 0) else None


rewrite(Shl)(shift_of_unit)
rewrite(Shr)(shift_of_unit)


@rewrite(Shl)
def shift_out(op: Shl, rw: Rewriter) -> Value | None:
    """x << c = 0 where c, as an unsigned integer, is the bit width or more"""
    number = known(op.rhs)
    if not isinstance(number, int) or 0 <= number < element_of(op.rhs.type).primitive_bitwidth:
        return None
    return constant(rw, 0, op.lhs.type)


# -- extremes -----------------------------------------------------------------------------------


def extremum_of_itself(op: Op, rw: Rewriter) -> Value | None:
    """min(x, x) = max(x, x) = x"""
    lhs, rhs = op.operands
    return lhs if lhs is rhs else None


def extremum_of_extremum(op: Op, rw: Rewriter) -> Value | None:
    """min(min(x, y), y) = min(min(x, y), x) = min(x, y), and so for max"""
    lhs, rhs = op.operands
    for value, other in ((lhs, rhs), (rhs, lhs)):
        inner = value.op
        if inner is None or type(inner) is not type(op) or inner.attributes != op.attributes:
            continue
        if other in inner.operands:
            return value
    return None


rewrite(Min)(extremum_of_itself)
rewrite(Max)(extremum_of_itself)
rewrite(Min)(extremum_of_extremum)
rewrite(Max)(extremum_of_extremum)


def _bounds(value: Value) -> tuple[float, float]:
    element = dtype_of(value.type)
    if element.is_floating():
        return -math.inf, math.inf
    return element.get_int_min_value(), element.get_int_max_value()


def _extremum_with_bound(op: Min | Max, neutral: float, absorbing: float) -> Value | None:
    number = known(op.rhs)
    if number is None:
        return None
    if number == neutral and (is_int(op.rhs.type) or op.propagate_nan):
        return op.lhs
    if number == absorbing and (is_int(op.rhs.type) or not op.propagate_nan):
        return op.rhs
    return None


@rewrite(Min)
def min_with_bound(op: Min, rw: Rewriter) -> Value | None:
    """min(x, MAX) = x; min(x, MIN) = MIN; for floats, MAX and MIN are the infinities, and the first
    holds with `propagate_nan`, the second without"""
    low, high = _bounds(op.lhs)
    return _extremum_with_bound(op, neutral=high, absorbing=low)


@rewrite(Max)
def max_with_bound(op: Max, rw: Rewriter) -> Value | None:
    """max(x, MIN) = x; max(x, MAX) = MAX; for floats, MAX and MIN are the infinities, and the first
    holds with `propagate_nan`, the second without"""
    low, high = _bounds(op.lhs)
    return _extremum_with_bound(op, neutral=low, absorbing=high)

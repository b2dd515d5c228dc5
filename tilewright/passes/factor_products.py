"""Applies the factors of a loop's products once, to their sum.

    for …:                                      for …:
        acc = dot(x * c, y, acc)          →         acc = dot(x, y, acc)
                                                acc = acc * c

Derivatives multiply each tile of attention scores by the scale of the scores; hand-written
gradients multiply the sum. c is a loop-invariant scalar. Between it and the product may be casts,
transposes, and selects with zeros. A loop that continues the sum of another one, with the same
factors, continues the sum without them. A second product of the same operand, which is not summed
in the loop, is multiplied itself.

The pass changes where sums are rounded, so it runs on derived kernels only, whose rounding is
unspecified. Operands of fp16 or bf16 are rounded without the factor (decision 0052). Linear in the
number of ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.numbers import array_of, first_number
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import FP32, FP64, DType, Type, element_of, is_float, shape_of
from tilewright.ops.arith import Cast, Constant, Mul, Select, constant_value
from tilewright.ops.control import For
from tilewright.ops.dot import Dot
from tilewright.ops.shape import Permute, Splat

NARROWEST = 16  # bits of an operand; narrower floats have too small a range to be left unscaled


class _Scaled(NamedTuple):
    """A product that a loop accumulates.

    Attributes:
        place: of the accumulator among the loop-carried values.
        dot: the product.
        factors: the multiplications, from the operands backwards.
        numbers: what they multiply by, scalars; constants are numbers of Python.
        others: other products, of an operand of which some of these are factors, with the numbers.
    """

    place: int
    dot: Dot
    factors: tuple[Mul, ...]
    numbers: tuple[Value | float, ...]
    others: tuple[tuple[Dot, tuple[Value | float, ...]], ...]


@compiler_pass("factor_products")
def factor_products(fn: Function, ctx: PassContext) -> bool:
    """Apply factors of a loop's products to their sums; see the module docstring."""
    sums: dict[Value, tuple[Value, tuple[Value | float, ...]]] = {}  # without factors, and these
    for loop in [op for op in fn.walk() if isinstance(op, For)]:
        for index in range(len(loop.inits)):
            found = _scaled(loop, index)
            init = loop.inits[index]
            if found is None:
                continue
            if constant_value(init) == 0:
                _apply_after(loop, found, init, sums)
            elif init in sums and _are_same(sums[init][1], found.numbers):
                _apply_after(loop, found, sums[init][0], sums)
            else:
                continue
            ctx.count("factored", len(found.factors))
    return bool(sums)


def _scaled(loop: For, index: int) -> _Scaled | None:
    """The product that a carried value is the sum of, if it has factors."""
    argument, end = loop.body.args[index + 1], loop.body.terminator
    dot = end.operands[index].op
    if not isinstance(dot, Dot) or dot.parent is not loop.body or dot.acc is not argument:
        return None
    if not _has_one_use(argument) or not _has_one_use(dot.result):
        return None
    if element_of(argument.type) not in (FP32, FP64):
        return None
    others: dict[Dot, list[Mul]] = {}
    factors = [*_factors(dot, dot.lhs, loop, others), *_factors(dot, dot.rhs, loop, others)]
    with_numbers = tuple((op, _numbers(found, loop)) for op, found in others.items() if found)
    numbers = _numbers(factors, loop)
    return _Scaled(index, dot, tuple(factors), numbers, with_numbers) if factors else None


def _numbers(factors: Sequence[Mul], loop: For) -> tuple[Value | float, ...]:
    return tuple(number for op in factors if (number := _number(op, loop)) is not None)


def _has_one_use(value: Value) -> bool:
    return list(value.users.values()) == [1]


def _other_product(value: Value, user: Op | None, loop: For) -> Dot | None:
    """The product that uses a value besides another op, if its result can be multiplied instead."""
    others = [op for op in value.users if op is not user]
    if list(value.users.values()) != [1, 1] or len(others) != 1:
        return None
    match others[0]:
        case Dot() as op if op.parent is loop.body and op.acc is not value:
            is_wide = element_of(op.result.type) in (FP32, FP64)
            return op if is_wide and constant_value(op.acc) == 0 else None
        case _:
            return None


def _factors(dot: Dot, value: Value, loop: For, others: dict[Dot, list[Mul]]) -> list[Mul]:
    """The multiplications by numbers of which an operand is the result.

    Args:
        others: gets the products that use the result of some of them besides, with these.
    """
    found: list[Mul] = []
    element = element_of(value.type)
    if dot.lhs is dot.rhs or not isinstance(element, DType):
        return found
    if not element.is_floating() or element.primitive_bitwidth < NARROWEST:
        return found
    user: Op | None = dot
    along: list[Dot] = []
    while True:
        if not _has_one_use(value):
            other = _other_product(value, user, loop)
            if other is None or along or other in others:
                break
            along.append(other)
            others[other] = []
        user = value.op
        match user:
            case Mul() as op if op.parent is loop.body:
                if _number(op, loop) is not None:
                    found.append(op)
                    for other in along:
                        others[other].append(op)
                    value = op.operands[0 if _is_number(op.rhs, loop) else 1]
                else:
                    break
            case Cast(src) | Permute(src) if is_float(src.type):
                value = src
            case Select(_, on_true, on_false) if constant_value(on_false) == 0:
                value = on_true
            case Select(_, on_true, on_false) if constant_value(on_true) == 0:
                value = on_false
            case _:
                break
    return found


def _number(op: Mul, loop: For) -> Value | float | None:
    """The number by which an op multiplies a tile; None if it is no such op."""
    if element_of(op.result.type) not in (FP32, FP64):
        return None
    for factor in (op.rhs, op.lhs):
        if _is_number(factor, loop):
            constant = constant_value(factor)
            if isinstance(constant, int | float):
                return float(constant)
            assert isinstance(factor.op, Splat)
            return factor.op.src
    return None


def _is_number(value: Value, loop: For) -> bool:
    """Whether a tile repeats a number that the loop does not change."""
    if isinstance(value.op, Constant):
        return isinstance(constant_value(value), int | float)
    if not isinstance(value.op, Splat):
        return False
    return not loop.contains(value.op.src)


def _are_same(a: tuple[Value | float, ...], b: tuple[Value | float, ...]) -> bool:
    """Whether these are the same factors, in any order."""
    return sorted(map(_identity, a)) == sorted(map(_identity, b))


def _identity(number: Value | float) -> tuple[bool, float]:
    return (True, id(number)) if isinstance(number, Value) else (False, number)


def _apply_after(
    loop: For, found: _Scaled, init: Value,
    sums: dict[Value, tuple[Value, tuple[Value | float, ...]]],
) -> None:  # fmt: skip
    """Multiply the sum by the factors, instead of its terms."""
    for dot, numbers in found.others:
        _multiply(dot.result, numbers, dot.next)
    for op in found.factors:
        op.result.replace_with(op.operands[0 if _is_number(op.rhs, loop) else 1])
        op.erase()
    loop.set_operand(3 + found.place, init)
    total = loop.results[found.place]
    sums[_multiply(total, found.numbers, loop.next)] = total, found.numbers


def _multiply(value: Value, numbers: Sequence[Value | float], place: Op | None) -> Value:
    """Use the product of a value and numbers, computed before an op, in its place."""
    users = [(user, i) for user in value.users for i, v in enumerate(user.operands) if v is value]
    assert place is not None
    builder = Builder()
    with builder.before(place):
        scaled = builder.value(Mul(value, _product(numbers, value.type, builder)))
    for user, i in users:
        user.set_operand(i, scaled)
    return scaled


def _product(numbers: Sequence[Value | float], type: Type, builder: Builder) -> Value:
    """A tile that repeats the product of numbers."""
    element = element_of(type)
    assert isinstance(element, DType)
    value = builder.value
    exact = prod(number for number in numbers if not isinstance(number, Value))
    product = float(first_number(array_of(float(exact), element), element))
    found: Value | None = None
    for number in numbers:
        if isinstance(number, Value):
            same = number if number.type == element else value(Cast(number, element, "rtne"))
            found = same if found is None else value(Mul(found, same))
    if found is None:
        return value(Constant(product, type))
    if product != 1.0:
        found = value(Mul(found, value(Constant(product, element))))
    return value(Splat(found, shape_of(type)))

"""Derivatives of `ops/arith.py`."""

from __future__ import annotations

from tilewright.autodiff.errors import no_gradient
from tilewright.autodiff.masked_values import is_finite
from tilewright.autodiff.registry import (
    AdjointPoint,
    Point,
    TangentPoint,
    Zero,
    adjoint,
    declare,
    no_derivative,
    partial,
)
from tilewright.ir.core import Value
from tilewright.ir.types import derivative_type, element_of, is_float
from tilewright.ops.arith import (
    Abs,
    Add,
    And,
    Bitcast,
    Cast,
    Cmp,
    Constant,
    Div,
    Fma,
    Hint,
    IntDiv,
    Max,
    Min,
    Mul,
    MulHi,
    Neg,
    Or,
    Rem,
    Select,
    Shl,
    Shr,
    Sub,
    Xor,
    constant_value,
)
from tilewright.ops.marks import DERIVATIVES, FunctionResult, Residual, StopGradient
from tilewright.ops.math import Trunc

declare(Zero("it is a constant"), Constant)
declare(Zero("it is piecewise constant"), Cmp)
declare(Zero("it counts as a constant"), StopGradient)
declare(Zero("it takes integers"), IntDiv, And, Or, Xor, Shl, Shr, MulHi)
no_derivative(
    "the bits of a float are not a differentiable function of it (tl.sort and tl.topk of more than "
    "65536 pairs of elements compare bits)",
    Bitcast,
)


@partial(Add)
def _add(d: Point, op: Add, index: int, t: Value) -> Value:
    """∂(x + y) = 1, 1"""
    return t


@partial(Sub)
def _sub(d: Point, op: Sub, index: int, t: Value) -> Value:
    """∂(x - y) = 1, -1"""
    return d.emit.neg(t) if index else t


@partial(Mul)
def _mul(d: Point, op: Mul, index: int, t: Value) -> Value:
    """∂(x y) = y, x"""
    return d.emit.mul(t, d.value(op.operands[1 - index]))


@partial(Div)
def _div(d: Point, op: Div, index: int, t: Value) -> Value:
    """∂(x / y) = 1 / y, -(x / y) / y, which is -(1 / y)² for x = 1"""
    if index and constant_value(op.lhs) == 1:
        y = d.value(op.result)
        return d.emit.neg(d.emit.mul(d.emit.mul(t, y), y))
    quotient = d.emit.op(Div(t, d.value(op.rhs), op.ieee))
    return d.emit.neg(d.emit.mul(quotient, d.value(op.result))) if index else quotient


@partial(Rem)
def _rem(d: Point, op: Rem, index: int, t: Value) -> Value:
    """∂fmod(x, y) = 1, -trunc(x / y)"""
    if not index:
        return t
    sides = (d.emit.cast(d.plain(v), element_of(t.type)) for v in op.operands)
    quotient = d.emit.div(*sides)
    return d.emit.neg(d.emit.mul(t, d.emit.op(Trunc(quotient))))


@partial(Min, Max)
def _extremum(d: Point, op: Min | Max, index: int, t: Value) -> Value:
    """∂max(x, y): 1 for the operand that is the result, 1/2 for each if both are

    The result is computed again from the operands: if it is loaded, neither may be equal to it, as
    the kernel that has stored it may have rounded them otherwise.
    """
    lhs, rhs = d.plain(op.lhs), d.plain(op.rhs)
    result = d.emit.builder.value(type(op)(lhs, rhs, op.propagate_nan))
    this, other = (rhs, lhs) if index else (lhs, rhs)
    is_this = d.emit.compare(this, result, "eq")
    is_other = d.emit.compare(other, result, "eq")
    return d.emit.where(is_this, d.emit.where(is_other, d.emit.scaled(t, 0.5), t))


@partial(Select)
def _select(d: Point, op: Select, index: int, t: Value) -> Value:
    """∂(c ? x : y) = (c ? 1 : 0), (c ? 0 : 1)

    The operand that is not chosen may have an infinite derivative, as log(x) in c ? log(x) : y.
    """
    condition = d.plain(op.condition)
    taken = condition if index == 1 else d.emit.negated(condition)
    return d.emit.chosen(taken, t, is_finite(op.operands[index]))


@partial(Neg)
def _neg(d: Point, op: Neg, index: int, t: Value) -> Value:
    """∂(-x) = -1"""
    return d.emit.neg(t)


@partial(Abs)
def _abs(d: Point, op: Abs, index: int, t: Value) -> Value:
    """∂|x| = sign(x), 0 at 0"""
    x = d.value(op.src)
    zero = d.emit.zeros(x.type)
    negative = d.emit.where(d.emit.compare(x, zero, "lt"), d.emit.neg(t))
    return d.emit.where(d.emit.compare(x, zero, "gt"), t, negative)


@partial(Fma)
def _fma(d: Point, op: Fma, index: int, t: Value) -> Value:
    """∂(x y + z) = y, x, 1"""
    return t if index == 2 else d.emit.mul(t, d.value(op.operands[1 - index]))


def _cast_tangent(d: TangentPoint, op: Cast) -> list[Value | None]:
    t = d.tangent(op.src)
    if t is None or not is_float(op.result.type):
        return [None]
    return [d.emit.cast(t, element_of(derivative_type(op.result.type)))]


@adjoint(Cast, tangent=_cast_tangent)
def _cast(d: AdjointPoint, op: Cast, adjoints: list[Value | None]) -> None:
    """∂float(x) = 1: rounding to another float type is treated as the identity"""
    (y,) = adjoints
    if y is not None:
        d.give(op.src, d.emit.cast(y, element_of(derivative_type(op.src.type))))


@partial(Hint)
def _hint(d: Point, op: Hint, index: int, t: Value) -> Value:
    """∂x = 1"""
    return t


@partial(Residual)
def _residual(d: Point, op: Residual, index: int, t: Value) -> Value:
    """∂x/∂x = 1"""
    return t


@partial(FunctionResult)
def _function_result(d: Point, op: FunctionResult, index: int, t: Value) -> Value:
    """∂f/∂x, as declared; the ops that compute f count as constants"""
    partials = DERIVATIVES.get(op.function)
    if partials is None:
        raise no_gradient(op, f"no derivative of {op.function} is known")
    derivative = partials[index - 1]
    if derivative is None:
        return d.emit.zeros(t.type)
    given = [d.plain(v) for v in (*op.args, op.result)]
    found = derivative(d.emit.builder, given)
    return d.emit.cast(d.emit.mul(t, d.emit.cast(found, element_of(t.type))), element_of(t.type))

"""Derivatives of `ops/math.py`, in terms of the result if that is cheaper."""

from __future__ import annotations

import math

import numpy as np

from tilewright.autodiff.registry import Point, Zero, declare, partial
from tilewright.ir.core import Op, Value
from tilewright.ir.types import Type, derivative_type, element_of, numpy_of
from tilewright.ops.arith import (
    Add,
    Cast,
    Cmp,
    Div,
    Fma,
    Max,
    Min,
    Mul,
    Neg,
    Select,
    Sub,
    constant_value,
)
from tilewright.ops.math import (
    Ceil,
    Cos,
    Erf,
    Exp,
    Exp2,
    Expm1,
    Floor,
    Log,
    Log1p,
    Log2,
    Log10,
    Rint,
    Rsqrt,
    Sin,
    Sqrt,
    Tan,
    Tanh,
    Trunc,
)
from tilewright.ops.view import View

declare(Zero("it is piecewise constant"), Floor, Ceil, Trunc, Rint)

LOGARITHMS = Log | Log2 | Log10 | Log1p
VANISHING = Rsqrt | Tanh | Erf | Exp | Exp2  # of what is infinite, or its derivative is no number
GROWING = Add | Sub | Mul | Div | Fma | Neg | Select | Sqrt | Max | Min
_LOG_BASE = {Log: 1.0, Log2: math.log(2), Log10: math.log(10)}


@partial(Exp)
def _exp(d: Point, op: Exp, index: int, t: Value) -> Value:
    """(e^x)' = e^x"""
    return d.emit.mul(t, _power(d, op))


@partial(Exp2)
def _exp2(d: Point, op: Exp2, index: int, t: Value) -> Value:
    """(2^x)' = 2^x ln 2"""
    return d.emit.scaled(d.emit.mul(t, _power(d, op)), math.log(2))


def _power(d: Point, op: Exp | Exp2) -> Value:
    """The power, or a finite number in its place where it is infinite and its adjoint is 0, because
    0 · inf is NaN: in 1 / (1 + exp(-x)), the derivative is 0.

    Where only logarithms of it are taken, as in log(1 + exp(x)), numbers beyond `_great` count as
    that, here and in the logarithm's rule: the derivative is 1.
    """
    power = d.value(op.result)
    if _has_only_logarithms(d, op.result):
        return d.emit.op(Min(power, _great(d, power), propagate_nan=True))
    if not _vanishes(d, op.result):
        return power
    # Beyond this bound the adjoint, about 1 / power², is 0, and products with it are still finite.
    bound = _great(d, power, 7 / 8)
    return d.emit.op(Min(power, bound, propagate_nan=True))


def _vanishes(d: Point, value: Value) -> bool:
    """Whether the derivative by a power is so small where that is great that their product is 0: of
    quotients with the power in the divisor, for example.

    That is not so in log(exp(x) + exp(y)) and sqrt(1 + exp(x)), where the derivative by the power
    is 0 as well if that is infinite, but only as 1 / inf is: their gradients are NaN there, as they
    would be without `_power`, not 0.
    """
    seen, work = set[Value](), [value]
    while work:
        at = work.pop()
        for user in _users(d, at) if at not in seen else ():
            if isinstance(user, Div) and _divides(d, at, user):
                continue
            if isinstance(user, VANISHING):
                continue
            if not isinstance(user, GROWING):
                return False
            work.append(user.result)
        seen.add(at)
    return True


def _divides(d: Point, value: Value, quotient: Div) -> bool:
    """Whether a great value is the divisor, or in a sum that is."""
    divisor = _stripped(quotient.rhs)
    found = _with_casts(d, value)
    return divisor in found or (
        isinstance(divisor.op, Add | Sub)
        and any(_stripped(v) in found for v in divisor.op.operands)
    )


def _has_only_logarithms(d: Point, value: Value) -> bool:
    """Whether all that is computed from a value are logarithms of it, or of its sum with small
    numbers."""
    element, users = _element(value), _users(d, value)
    return (
        all(_element(v) == element for v in _with_casts(d, value))
        and bool(users)
        and all(
            isinstance(user, LOGARITHMS)
            or (isinstance(user, Add) and _other(user) and _has_only_logarithms(d, user.result))
            for user in users
        )
    )


def _other(op: Add) -> Value | None:
    """The operand to which a sum adds a small constant; None for other sums. If the operand is a
    large power, the sum equals it."""
    for value, number in (op.operands, reversed(op.operands)):
        constant = constant_value(_stripped(number))
        limit = 2.0 ** (np.finfo(numpy_of(element_of(op.result.type))).maxexp // 4)
        if constant is not None and abs(constant) <= limit:
            return value
    return None


def _great(d: Point, value: Value, part: float = 1 / 2) -> Value:
    """A power with this part of the exponent of the greatest number."""
    exponent = int(np.finfo(numpy_of(element_of(value.type))).maxexp * part)
    return d.emit.const(2.0**exponent, value.type)


def _with_casts(d: Point, value: Value) -> list[Value]:
    """A value, and its casts and reshapes."""
    found = [value]
    for at in found:  # which grows
        found += [v for user in d.users(at) if isinstance(user, Cast | View) for v in user.results]
    return found


def _users(d: Point, value: Value) -> list[Op]:
    """The ops that use a value, perhaps cast and reshaped, without those that have no derivative by
    it where it is great: comparisons, and minima of it and a constant."""
    users = [u for v in _with_casts(d, value) for u in d.users(v) if not isinstance(u, Cast | View)]
    return [u for u in users if not isinstance(u, Cmp) and not _is_bound(u)]


def _is_bound(op: Op) -> bool:
    constants = [constant_value(_stripped(v)) for v in op.operands]
    return isinstance(op, Min) and any(c is not None for c in constants)


@partial(Expm1)
def _expm1(d: Point, op: Expm1, index: int, t: Value) -> Value:
    """(e^x - 1)' = (e^x - 1) + 1"""
    y = d.value(op.result)
    return d.emit.mul(t, d.emit.add(y, d.emit.const(1.0, y.type)))


@partial(Log, Log2, Log10)
def _log(d: Point, op: Log | Log2 | Log10, index: int, t: Value) -> Value:
    """(log_b x)' = 1 / (x ln b)"""
    base = _LOG_BASE[type(op)]
    return d.emit.div(t if base == 1.0 else d.emit.scaled(t, 1 / base), _argument(d, op))


@partial(Log1p)
def _log1p(d: Point, op: Log1p, index: int, t: Value) -> Value:
    """(log(1 + x))' = 1 / (1 + x)"""
    x = _argument(d, op)
    return d.emit.div(t, d.emit.add(x, d.emit.const(1.0, x.type)))


def _argument(d: Point, op: Log | Log2 | Log10 | Log1p) -> Value:
    """The argument of a logarithm; if it is a power, limited to the number that represents all
    larger ones, see `_power`."""
    x, source = d.value(op.src), _stripped(op.src)
    while isinstance(source.op, Add) and (other := _other(source.op)):
        source = _stripped(other)
    if isinstance(source.op, Exp | Exp2) and _has_only_logarithms(d, source):
        return d.emit.op(Min(x, _great(d, x), propagate_nan=True))
    return x


def _stripped(value: Value) -> Value:
    """The operand of reshapes, and of casts within the same type of derivatives."""
    while isinstance(value.op, Cast | View) and _element(value.op.src) == _element(value):
        value = value.op.src
    return value


def _element(value: Value) -> Type:
    """The element type of a value's derivative."""
    return element_of(derivative_type(value.type))


@partial(Sin)
def _sin(d: Point, op: Sin, index: int, t: Value) -> Value:
    """(sin x)' = cos x"""
    return d.emit.mul(t, d.emit.op(Cos(d.value(op.src), op.fast)))


@partial(Cos)
def _cos(d: Point, op: Cos, index: int, t: Value) -> Value:
    """(cos x)' = -sin x"""
    return d.emit.neg(d.emit.mul(t, d.emit.op(Sin(d.value(op.src), op.fast))))


@partial(Tan)
def _tan(d: Point, op: Tan, index: int, t: Value) -> Value:
    """(tan x)' = 1 + tan² x"""
    y = d.value(op.result)
    return d.emit.add(t, d.emit.mul(t, d.emit.mul(y, y)))


@partial(Tanh)
def _tanh(d: Point, op: Tanh, index: int, t: Value) -> Value:
    """(tanh x)' = 1 - tanh² x"""
    y = d.value(op.result)
    return d.emit.mul(t, d.emit.sub(d.emit.const(1.0, y.type), d.emit.mul(y, y)))


@partial(Erf)
def _erf(d: Point, op: Erf, index: int, t: Value) -> Value:
    """(erf x)' = 2/√π e^(-x²)"""
    x = d.value(op.src)
    bell = d.emit.op(Exp(d.emit.neg(d.emit.mul(x, x)), False))
    return d.emit.mul(d.emit.scaled(t, 2 / math.sqrt(math.pi)), bell)


@partial(Sqrt)
def _sqrt(d: Point, op: Sqrt, index: int, t: Value) -> Value:
    """(√x)' = 1 / (2 √x)"""
    return d.emit.div(d.emit.scaled(t, 0.5), d.value(op.result))


@partial(Rsqrt)
def _rsqrt(d: Point, op: Rsqrt, index: int, t: Value) -> Value:
    """(1/√x)' = -(1/√x)³ / 2"""
    y = d.value(op.result)
    return d.emit.mul(d.emit.scaled(t, -0.5), d.emit.mul(y, d.emit.mul(y, y)))

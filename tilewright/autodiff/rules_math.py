"""Derivatives of `ops/math.py`, in terms of the result where that is cheaper to have."""

from __future__ import annotations

import math

import numpy as np

from tilewright.autodiff.registry import Point, Zero, declare, partial
from tilewright.ir.core import Op, Value
from tilewright.ir.types import element_of, numpy_of
from tilewright.ops.arith import Add, Cast, Div, Min, Sub, constant_value
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
    Tanh,
    Trunc,
)
from tilewright.ops.view import View

declare(Zero("it is piecewise constant"), Floor, Ceil, Trunc, Rint)

LOGARITHMS = Log | Log2 | Log10 | Log1p
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
    """The power, or a great number where it overflows and its adjoint is 0, because 0 · inf is NaN.

    In 1 / (1 + exp(-x)) it is the greatest number: the derivative is 0. In log(1 + exp(x)) it is
    the number whose logarithm is taken, as it counts there: the derivative is 1.
    """
    power = d.value(op.result)
    users = _users(op.result)
    if _is_logarithm(op):
        return _limited(d, power, half=True)
    vanishes = any(
        isinstance(user, Add | Sub | LOGARITHMS)
        or (isinstance(user, Div) and user.rhs in _alike(op.result))
        for user in users
    )
    return _limited(d, power) if vanishes else power


def _users(value: Value) -> list[Op]:
    """The ops that use a value, perhaps cast and reshaped."""
    return [u for v in _alike(value) for u in v.users if not isinstance(u, Cast | View)]


def _is_logarithm(op: Op) -> bool:
    """Whether all that is computed from a power are logarithms of it, or of its sum with a
    number."""
    users = _users(op.results[0])
    return bool(users) and all(
        isinstance(user, LOGARITHMS)
        or (isinstance(user, Add) and _has_number(user) and _is_logarithm(user))
        for user in users
    )


def _has_number(op: Add) -> bool:
    return any(constant_value(_stripped(v)) is not None for v in op.operands)


def _limited(d: Point, value: Value, half: bool = False) -> Value:
    """A value, or a great number where it is greater: the greatest one, or that with half of its
    exponent."""
    info = np.finfo(numpy_of(element_of(value.type)))
    limit = 2.0 ** (info.maxexp // 2) if half else float(info.max)
    return d.emit.op(Min(value, d.emit.const(limit, value.type), propagate_nan=True))


def _alike(value: Value) -> list[Value]:
    """A value, and what it is cast and reshaped to."""
    found = [value]
    for at in found:  # which grows
        found += [v for user in at.users if isinstance(user, Cast | View) for v in user.results]
    return found


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
    """What a logarithm is taken of, at most what a power counts as; see `_power`."""
    x, sources = d.value(op.src), [_stripped(op.src)]
    if isinstance(sources[0].op, Add):
        sources = [_stripped(v) for v in sources[0].op.operands]
    is_power = any(isinstance(v.op, Exp | Exp2) and _is_logarithm(v.op) for v in sources)
    return _limited(d, x, half=True) if is_power else x


def _stripped(value: Value) -> Value:
    while isinstance(value.op, Cast | View):
        value = value.op.src
    return value


@partial(Sin)
def _sin(d: Point, op: Sin, index: int, t: Value) -> Value:
    """(sin x)' = cos x"""
    return d.emit.mul(t, d.emit.op(Cos(d.value(op.src))))


@partial(Cos)
def _cos(d: Point, op: Cos, index: int, t: Value) -> Value:
    """(cos x)' = -sin x"""
    return d.emit.neg(d.emit.mul(t, d.emit.op(Sin(d.value(op.src)))))


@partial(Tanh)
def _tanh(d: Point, op: Tanh, index: int, t: Value) -> Value:
    """(tanh x)' = 1 - tanh² x"""
    y = d.value(op.result)
    return d.emit.mul(t, d.emit.sub(d.emit.const(1.0, y.type), d.emit.mul(y, y)))


@partial(Erf)
def _erf(d: Point, op: Erf, index: int, t: Value) -> Value:
    """(erf x)' = 2/√π e^(-x²)"""
    x = d.value(op.src)
    bell = d.emit.op(Exp(d.emit.neg(d.emit.mul(x, x))))
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

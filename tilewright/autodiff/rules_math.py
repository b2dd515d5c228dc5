"""Derivatives of `ops/math.py`, in terms of the result where that is cheaper to have."""

from __future__ import annotations

import math

import numpy as np

from tilewright.autodiff.registry import Point, Zero, declare, partial
from tilewright.ir.core import Value
from tilewright.ir.types import element_of, numpy_of
from tilewright.ops.arith import Add, Cast, Div, Min, Sub
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
    """The power, or the greatest number where it overflows and the kernel's result may be finite
    nevertheless, as 1 / (1 + exp(-x)): its adjoint is 0 there, and 0 · inf is NaN."""
    power = d.value(op.result)
    vanishes = any(
        isinstance(user, Add | Sub) or (isinstance(user, Div) and user.rhs is value)
        for value in _alike(op.result)
        for user in value.users
    )
    if not vanishes:
        return power
    greatest = d.emit.const(float(np.finfo(numpy_of(element_of(power.type))).max), power.type)
    return d.emit.op(Min(power, greatest, propagate_nan=True))


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
    return d.emit.div(t if base == 1.0 else d.emit.scaled(t, 1 / base), d.value(op.src))


@partial(Log1p)
def _log1p(d: Point, op: Log1p, index: int, t: Value) -> Value:
    """(log(1 + x))' = 1 / (1 + x)"""
    x = d.value(op.src)
    return d.emit.div(t, d.emit.add(x, d.emit.const(1.0, x.type)))


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

"""Rules for all elementwise ops.

Canonical form: elementwise ops are computed on as few elements as possible. A uniform result is
computed as a scalar and splat; a result that is equal along an axis is computed before the axis is
inserted (`expand_dims`) or broadcast. A constant tile is an `arith.constant`, not a splat.
Termination: each rule decreases the number of elements computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.core import Op, Value
from tilewright.ir.define import REGISTRY
from tilewright.ir.numbers import array_of, first_number, with_numbers
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import Tile, shape_of
from tilewright.ops.arith import Constant, Hint
from tilewright.ops.memory import AddPtr
from tilewright.ops.shape import Broadcast, ExpandDims, Splat
from tilewright.rewrites.patterns import (
    like,
    scalar_of,
    uniform,
    with_shape_of,
)


def fold_constants(op: Op, rw: Rewriter) -> Value | None:
    """f(c, …) = its value, computed by the op's `evaluate`"""
    numbers: list[Any] = []
    for operand in op.operands:
        source = operand.op
        if not isinstance(source, Constant):
            return None
        numbers.append(array_of(source.value, source.type))
    with np.errstate(all="ignore"):
        array = with_numbers(op)(*numbers)
    type = op.result.type
    return rw.insert(Constant(first_number(np.asarray(array), type), type))


def lift_splat(op: Op, rw: Rewriter) -> Value | None:
    """f(splat(a), splat(b)) = splat(f(a, b))"""
    if not isinstance(op.result.type, Tile):
        return None
    found: list[Value | Constant] = []
    for operand in op.operands:
        same = uniform(operand)
        if same is None:
            return None
        found.append(same)
    scalars = [scalar_of(rw, same) for same in found]
    scalar = rw.insert(like(op, scalars))
    return rw.insert(Splat(scalar, op.result.type.shape))


def _lift(op: Op, rw: Rewriter, shape_op: type[Broadcast] | type[ExpandDims]) -> Value | None:
    """The op applied to the sources of its operands, if each of them is an equal `shape_op` or
    uniform."""
    outer: Broadcast | ExpandDims | None = None
    for operand in op.operands:
        source = operand.op
        if isinstance(source, shape_op):
            if outer is None:
                outer = source
            elif outer.attributes != source.attributes or shape_of(outer.src.type) != shape_of(
                source.src.type
            ):
                return None
        elif not isinstance(source, Splat | Constant):
            return None
    if outer is None:
        return None
    inner_shape = shape_of(outer.src.type)
    inner: list[Value] = []
    for operand in op.operands:
        source, same = operand.op, uniform(operand)
        if same is not None:
            inner.append(with_shape_of(rw, same, inner_shape))
        else:
            assert isinstance(source, shape_op)
            inner.append(source.src)
    computed = rw.insert(like(op, inner))
    return rw.insert(shape_op(computed, **outer.attributes))


def lift_broadcast(op: Op, rw: Rewriter) -> Value | None:
    """f(broadcast(a), broadcast(b), splat(c)) = broadcast(f(a, b, splat(c)))"""
    return _lift(op, rw, Broadcast)


def lift_expand_dims(op: Op, rw: Rewriter) -> Value | None:
    """f(expand_dims(a), expand_dims(b), splat(c)) = expand_dims(f(a, b, splat(c)))"""
    return _lift(op, rw, ExpandDims)


for _op_class in REGISTRY.values():
    if _op_class.elementwise and _op_class is not Constant:
        rewrite(_op_class)(fold_constants)
        # A hint is not moved, because it describes the axes of its operand.
        if _op_class is not Hint:
            rewrite(_op_class)(lift_splat)
            # A tile of pointers is a splat base plus offsets: see passes/canonicalize_pointers.py.
            if _op_class is not AddPtr:
                rewrite(_op_class)(lift_broadcast)
                rewrite(_op_class)(lift_expand_dims)

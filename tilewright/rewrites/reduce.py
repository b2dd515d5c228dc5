"""Reductions and scans.

Canonical form: no reduction or scan along an axis of length 1, no reduction of a uniform tile whose
result has a closed form. Termination: each rule decreases the number of elements combined.
"""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import is_int, shape_of
from tilewright.ops.arith import Add, And, Max, Min, Mul, Or
from tilewright.ops.reduce import Reduce, Scan, simple_combine
from tilewright.ops.shape import Reshape
from tilewright.rewrites.patterns import constant, scalar_of, uniform, with_shape_of


@rewrite(Reduce)
def reduce_of_one(op: Reduce, rw: Rewriter) -> tuple[Value, ...] | None:
    """reduce(x, axis) = reshape(x) where the axis has length 1"""
    if shape_of(op.srcs[0].type)[op.axis] != 1:
        return None
    shape = shape_of(op.results[0].type)
    return tuple(rw.insert(Reshape(src, shape)) for src in op.srcs)


@rewrite(Scan)
def scan_of_one(op: Scan, rw: Rewriter) -> tuple[Value, ...] | None:
    """scan(x, axis) = x where the axis has length 1"""
    if shape_of(op.srcs[0].type)[op.axis] != 1:
        return None
    return tuple(op.srcs)


@rewrite(Reduce)
def reduce_of_splat(op: Reduce, rw: Rewriter) -> Value | None:
    """max(splat(c)) = min = and = or = splat(c); for integers sum(splat(c)) = splat(c * n)"""
    if len(op.srcs) != 1:
        return None
    same = uniform(op.srcs[0])
    combine = simple_combine(op)
    if same is None or not isinstance(combine, Add | Max | Min | And | Or):
        return None
    shape = shape_of(op.results[0].type)
    if not isinstance(combine, Add):
        return with_shape_of(rw, same, shape)
    if not is_int(op.srcs[0].type):
        return None
    scalar = scalar_of(rw, same)
    length = shape_of(op.srcs[0].type)[op.axis]
    total = rw.insert(Mul(scalar, constant(rw, length, scalar.type)))
    return with_shape_of(rw, total, shape)

"""Lowering of arithmetic and mathematical functions to AMD's instructions."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import types as ir
from tilewright.lowering import arith as common
from tilewright.lowering.emit import Builder, V
from tilewright.lowering.registry import lowers
from tilewright.lowering.without_library import rem_without_library, sin_cos_without_library
from tilewright.ops import arith, math
from tilewright.targets.amd.name import NAME

lowers(arith.Rem, target=NAME)(rem_without_library)
lowers(math.Sin, math.Cos, target=NAME)(sin_cos_without_library)


# -- fp16, which has instructions of its own ------------------------------------------------------


def _in_fp16(b: Builder, op: arith.Op, act: Callable[[V, V], V], lhs: V, rhs: V) -> V | None:
    """The operation on fp16; None for other types.

    Its result is that of the common lowering, which rounds twice: fp32 has more than twice the
    significand bits of fp16. It is not contracted, as the common one is not.
    """
    if ir.dtype_of(op.operands[0].type) != ir.FP16:
        return None
    with b.flags(""):
        return act(lhs, rhs)


@lowers(arith.Add, target=NAME)
def lower_add(b: Builder, op: arith.Add, lhs: V, rhs: V) -> V:
    return _in_fp16(b, op, b.fadd, lhs, rhs) or common.lower_add(b, op, lhs, rhs)


@lowers(arith.Sub, target=NAME)
def lower_sub(b: Builder, op: arith.Sub, lhs: V, rhs: V) -> V:
    return _in_fp16(b, op, b.fsub, lhs, rhs) or common.lower_sub(b, op, lhs, rhs)


@lowers(arith.Mul, target=NAME)
def lower_mul(b: Builder, op: arith.Mul, lhs: V, rhs: V) -> V:
    return _in_fp16(b, op, b.fmul, lhs, rhs) or common.lower_mul(b, op, lhs, rhs)


@lowers(arith.Div, target=NAME)
def lower_div(b: Builder, op: arith.Div, lhs: V, rhs: V) -> V:
    return _in_fp16(b, op, b.fdiv, lhs, rhs) or common.lower_div(b, op, lhs, rhs)


@lowers(arith.Fma, target=NAME)
def lower_fma(b: Builder, op: arith.Fma, x: V, y: V, z: V) -> V:
    if ir.dtype_of(op.x.type) == ir.FP16:
        return b.fma(x, y, z)
    return common.lower_fma(b, op, x, y, z)

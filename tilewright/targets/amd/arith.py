"""Lowering of arithmetic and mathematical functions to AMD's instructions.

The maximum error of fp32 in ulp, where `v_exp_f32`, `v_rcp_f32`, `v_rsq_f32` and `v_sqrt_f32` are
within one, as AMD's guides of the instruction sets state:

    exp     2       v_exp_f32 of the fraction, times a power of two
    exp2    1       v_exp_f32: results below 2**-126 are flushed to 0
    rsqrt   1       v_rsq_f32, of a scaled subnormal
    sqrt    1       v_sqrt_f32, of a scaled subnormal, unless correct rounding is required
    div     2.5     v_rcp_f32 of the significand, unless correct rounding is required
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import types as ir
from tilewright.lowering import arith as common
from tilewright.lowering.convert import narrow, widen
from tilewright.lowering.emit import F32, I32, Builder, V, const
from tilewright.lowering.math_common import FORMAT_F32
from tilewright.lowering.registry import lowers
from tilewright.lowering.without_library import (
    rem_without_library,
    sin_cos_without_library,
    tan_without_library,
)
from tilewright.ops import arith, math
from tilewright.targets.amd.name import NAME

LOG2_E, LOG2_E_LOW = FORMAT_F32.log2e
SMALLEST_NORMAL = 2.0**-126

lowers(arith.Rem, target=NAME)(rem_without_library)
lowers(math.Sin, math.Cos, target=NAME)(sin_cos_without_library)
lowers(math.Tan, target=NAME)(tan_without_library)


def _element(op: arith.Op) -> ir.DType:
    return ir.dtype_of(op.operands[0].type)


# -- fp16, which has instructions of its own ------------------------------------------------------


def _in_fp16(b: Builder, op: arith.Op, act: Callable[[V, V], V], lhs: V, rhs: V) -> V | None:
    """The operation on fp16; None for other types.

    Its result is that of the common lowering, which rounds twice: fp32 has more than twice the
    significand bits of fp16. It is not contracted, as the common one is not.
    """
    if _element(op) != ir.FP16:
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


@lowers(arith.Fma, target=NAME)
def lower_fma(b: Builder, op: arith.Fma, x: V, y: V, z: V) -> V:
    return b.fma(x, y, z) if _element(op) == ir.FP16 else common.lower_fma(b, op, x, y, z)


# -- functions of fp32, and of narrower types by way of it ----------------------------------------


def _instruction(b: Builder, name: str, x: V) -> V:
    return b.intrinsic(f"llvm.amdgcn.{name}", F32, [x], overloads=[F32])


def exp_f32(b: Builder, x: V) -> V:
    """exp(x) = 2**n * 2**r with the integer n next to x * log2(e), and the residual r.

    n is clamped, so that r of an infinity is that infinity, and not NaN.
    """
    rounded = b.intrinsic("llvm.rint", F32, [b.fmul(x, LOG2_E)], overloads=[F32])
    limits = (const(F32, -256.0), const(F32, 256.0))
    n = b.intrinsic("llvm.amdgcn.fmed3", F32, [rounded, *limits], overloads=[F32])
    r = b.fma(x, LOG2_E_LOW, b.fma(x, LOG2_E, b.fneg(n)))
    power = _instruction(b, "exp2", r)
    return b.intrinsic("llvm.ldexp", F32, [power, b.fptosi(n, I32)], overloads=[F32, I32])


def _exp_narrow(b: Builder, x: V) -> V:
    """exp for results of at most 11 significand bits, beyond which the product rounds."""
    return _instruction(b, "exp2", b.fmul(x, LOG2_E))


def _scaled(b: Builder, name: str, x: V, before: float, after: float) -> V:
    """An instruction that takes subnormals for 0: they are scaled before it, and the result."""
    small = b.fcmp("olt", x, SMALLEST_NORMAL)
    one = const(F32, 1.0)
    found = _instruction(b, name, b.fmul(x, b.select(small, const(F32, before), one)))
    return b.fmul(found, b.select(small, const(F32, after), one))


def _in_f32(b: Builder, op: arith.Op, act: Callable[[Builder, V], V], src: V) -> V:
    element = _element(op)
    with b.flags(""):
        return narrow(b, act(b, widen(b, src, element)), element)


@lowers(math.Exp, target=NAME)
def lower_exp(b: Builder, op: math.Exp, src: V) -> V:
    if _element(op) == ir.FP64:
        return common.lower_math(b, op, src)
    return _in_f32(b, op, exp_f32 if _element(op) == ir.FP32 else _exp_narrow, src)


@lowers(math.Exp2, target=NAME)
def lower_exp2(b: Builder, op: math.Exp2, src: V) -> V:
    if _element(op) == ir.FP64:
        return common.lower_math(b, op, src)
    return _in_f32(b, op, lambda b, x: _instruction(b, "exp2", x), src)


@lowers(math.Rsqrt, target=NAME)
def lower_rsqrt(b: Builder, op: math.Rsqrt, src: V) -> V:
    if _element(op) == ir.FP64:
        return common.lower_math(b, op, src)
    return _in_f32(b, op, lambda b, x: _scaled(b, "rsq", x, 2.0**24, 2.0**12), src)


@lowers(math.Sqrt, target=NAME)
def lower_sqrt(b: Builder, op: math.Sqrt, src: V) -> V:
    if op.ieee or _element(op) == ir.FP64:
        return common.lower_math(b, op, src)
    return _in_f32(b, op, lambda b, x: _scaled(b, "sqrt", x, 2.0**24, 2.0**-12), src)


@lowers(arith.Div, target=NAME)
def lower_div(b: Builder, op: arith.Div, lhs: V, rhs: V) -> V:
    if _element(op) == ir.FP16:
        return b.fdiv(lhs, rhs)
    if op.correctly_rounded:
        return common.lower_div(b, op, lhs, rhs)
    x, y = widen(b, lhs, _element(op)), widen(b, rhs, _element(op))
    accuracy = f"!fpmath {b.module.metadata('!{float 2.5}')}"
    return narrow(b, b.fdiv(x, y, accuracy), _element(op))

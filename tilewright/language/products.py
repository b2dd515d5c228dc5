"""Matrix products."""

from __future__ import annotations

from typing import Any

from tilewright.ir.types import FP32
from tilewright.language import semantic
from tilewright.language.values import builtin, tensor, unwrap

__all__ = ["dot", "dot_scaled"]


@builtin
def dot(
    input: Any,
    other: Any,
    acc: Any = None,
    input_precision: Any = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = None,
    *,
    _semantic: Any = None,
) -> tensor:
    """``acc + input @ other`` over the last two axes; leading axes are batch axes.

    Args:
        input, other: tiles [.., M, K] and [.., K, N] of one dtype: int8, fp16, bf16, fp32, fp64,
            or any fp8 type.
        acc: a tile [.., M, N] of the result's dtype; zeros by default.
        input_precision: rounding of fp32 operands: "tf32", "tf32x3", "ieee", …
        allow_tf32: legacy alternative to "tf32" (True) and "ieee" (False).
        max_num_imprecise_acc: for fp8, the number of steps of K accumulated at lower precision.
        out_dtype: fp32 (default) or fp16, for fp16 and fp8 operands.

    Raises:
        AssertionError, ValueError: incompatible operands.
    """
    summand = None if unwrap(acc) is None else semantic.to_tensor(_semantic, acc)
    lhs, rhs = semantic.to_tensor(_semantic, input), semantic.to_tensor(_semantic, other)
    return semantic.dot.dot(
        _semantic, lhs, rhs, summand, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype
    )


@builtin
def dot_scaled(
    lhs: Any,
    lhs_scale: Any,
    lhs_format: Any,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: Any,
    acc: Any = None,
    fast_math: Any = False,
    lhs_k_pack: Any = True,
    rhs_k_pack: Any = True,
    out_dtype: Any = FP32,
    *,
    _semantic: Any = None,
) -> tensor:
    """``acc + (lhs * lhs_scale) @ (rhs * rhs_scale)`` for block-scaled floats.

    The scaled operands are rounded to bf16 (to fp16 if an operand has that format), or not at all,
    and their products are accumulated in fp32.

    Args:
        lhs, rhs: tiles [.., M, K] and [.., K, N]. 8-bit formats as uint8 or the fp8 dtype, 16-bit
            formats as uint16 or the float dtype, shorter formats in the low bits of uint8.
        lhs_format, rhs_format: "e2m1" (two per byte, the even one low), "e2m3", "e3m2", "e4m3",
            "e5m2", "bf16" or "fp16".
        lhs_scale, rhs_scale: [.., M, K // group] and [.., N, K // group] for groups of 16 or 32
            along K: fp8e4nv, not negative, or uint8 v for 2 ** (v - 127), where 255 is NaN. None
            means 1.
        acc: a tile [.., M, N] of `out_dtype`; zeros by default.
        fast_math: the result for a scale of 255 is undefined.
        lhs_k_pack, rhs_k_pack: False if the numbers in a byte are adjacent along M or N.
        out_dtype: fp32, fp16 or bf16.

    Raises:
        AssertionError, ValueError: incompatible formats, shapes or scales.
    """
    summand = None if unwrap(acc) is None else semantic.to_tensor(_semantic, acc)
    left = (semantic.to_tensor(_semantic, lhs), lhs_scale, lhs_format, lhs_k_pack)
    right = (semantic.to_tensor(_semantic, rhs), rhs_scale, rhs_format, rhs_k_pack)
    return semantic.dot_scaled.dot_scaled(_semantic, left, right, summand, fast_math, out_dtype)

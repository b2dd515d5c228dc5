"""Lowerings without calls of a C library, for targets that have none.

A target registers them under its own name:

    lowers(arith.Rem, target=NAME)(rem_without_library)
    lowers(math.Sin, math.Cos, target=NAME)(sin_cos_without_library)
    lowers(math.Tan, target=NAME)(tan_without_library)
"""

from __future__ import annotations

from tilewright.analysis.magnitudes import largest_magnitude
from tilewright.ir import types as ir
from tilewright.lowering import arith as common
from tilewright.lowering.convert import narrow, widen
from tilewright.lowering.emit import F64, Builder, V
from tilewright.lowering.fmod import Reciprocal, correct_reciprocal, fmod
from tilewright.lowering.math_f32 import tan
from tilewright.lowering.math_f64 import sin_cos
from tilewright.lowering.math_huge import reduce_huge
from tilewright.ops import arith, math


def rem_without_library(
    b: Builder, op: arith.Rem, lhs: V, rhs: V, reciprocal: Reciprocal = correct_reciprocal
) -> V:
    """fmod of floats by products with reciprocals."""
    element = ir.dtype_of(op.lhs.type)
    if not element.is_floating():
        return common.lower_rem(b, op, lhs, rhs)
    x, y = widen(b, lhs, element), widen(b, rhs, element)
    return narrow(b, fmod(b, x, y, reciprocal), element)


def tan_without_library(
    b: Builder, op: math.Tan, src: V, reciprocal: Reciprocal | None = None
) -> V:
    """In fp64, the quotient of sine and cosine, as for large angles `math_f64.tan` calls the C
    library."""
    element = ir.dtype_of(op.src.type)
    with b.flags(""):
        if src.type is not F64:
            return narrow(b, tan(b, widen(b, src, element), reciprocal), element)
        sine, cosine = (sin_cos(quarter, reduce_huge)(b, src) for quarter in (0, 1))
        return b.select(b.fcmp("oeq", src, 0.0), src, b.fdiv(sine, cosine))


def sin_cos_without_library(b: Builder, op: math.Sin | math.Cos, src: V) -> V:
    """Large angles of fp64 are reduced by integer arithmetic."""
    if src.type is not F64:
        return common.lower_sin_cos(b, op, src)
    with b.flags(""):
        emit = sin_cos(int(isinstance(op, math.Cos)), reduce_huge)
        return emit(b, src, most=largest_magnitude(op.src))

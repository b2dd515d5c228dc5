"""Lowerings for targets without a C library, of the functions that the common ones call there.

A target registers them under its own name:

    lowers(arith.Rem, target=NAME)(rem_without_library)
    lowers(math.Sin, math.Cos, target=NAME)(sin_cos_without_library)
"""

from __future__ import annotations

from tilewright.analysis.magnitudes import largest_magnitude
from tilewright.ir import types as ir
from tilewright.lowering import arith as common
from tilewright.lowering.convert import narrow, widen
from tilewright.lowering.emit import F64, Builder, V
from tilewright.lowering.fmod import Reciprocal, correct_reciprocal, fmod
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


def sin_cos_without_library(b: Builder, op: math.Sin | math.Cos, src: V) -> V:
    """Large angles of fp64 are reduced by integer arithmetic."""
    if src.type is not F64:
        return common.lower_sin_cos(b, op, src)
    with b.flags(""):
        emit = sin_cos(int(isinstance(op, math.Cos)), reduce_huge)
        return emit(b, src, most=largest_magnitude(op.src))

"""Identities of the elementary functions.

Canonical form: no rounding of integral values, no negation or absolute value as operand of an even
function. Termination: each rule decreases the number of ops.
"""

from __future__ import annotations

from tilewright.ir.core import Op, Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import FP8E4B15, element_of, is_int
from tilewright.ops.arith import Abs, Cast, Neg
from tilewright.ops.math import ROUNDINGS, Cos, Trunc


def round_of_whole(op: Op, rw: Rewriter) -> Value | None:
    """floor(w) = w, and likewise for the other roundings, if w is a rounding or cast from an
    integer

    It does not apply to fp8e4b15, in which a large integer saturates to 1.875.
    """
    source = op.operands[0]
    if element_of(source.type) is FP8E4B15:
        return None
    if isinstance(source.op, ROUNDINGS):
        return source
    match source.op:
        case Cast(src) if is_int(src.type):
            return source
        case _:
            return None


for _rounding in ROUNDINGS:
    rewrite(_rounding)(round_of_whole)


@rewrite(Cast)
def cast_of_trunc(op: Cast, rw: Rewriter) -> Value | None:
    """cast(trunc(x)) = cast(x) to an integer, which rounds toward zero; but not to a bool"""
    to = element_of(op.result.type)
    match op.src.op:
        case Trunc(x) if to.is_int() and not to.is_bool():
            return rw.insert(Cast(x, op.to, op.rounding))
        case _:
            return None


@rewrite(Cos)
def cos_of_signed(op: Cos, rw: Rewriter) -> Value | None:
    """cos(-x) = cos(|x|) = cos(x)"""
    match op.src.op:
        case Neg(x) | Abs(x):
            return rw.insert(Cos(x, op.fast))
        case _:
            return None

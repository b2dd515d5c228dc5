"""Identities of the elementary functions.

Canonical form: no rounding of what is already a whole number, no sign under an even function. The
measure that falls: number of ops.
"""

from __future__ import annotations

from tilewright.ir.core import Op, Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import FP8E4B15, element_of, is_int
from tilewright.ops.arith import Abs, Cast, Neg
from tilewright.ops.math import ROUNDINGS, Cos


def round_of_whole(op: Op, rw: Rewriter) -> Value | None:
    """floor(w) = w, and so with the other roundings, where w is of them or made from an integer

    Not of fp8e4b15: there a whole number too large becomes 1.875.
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


@rewrite(Cos)
def cos_of_signed(op: Cos, rw: Rewriter) -> Value | None:
    """cos(-x) = cos(|x|) = cos(x)"""
    match op.src.op:
        case Neg(x) | Abs(x):
            return rw.insert(Cos(x))
        case _:
            return None

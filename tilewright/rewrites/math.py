"""Identities of the elementary functions.

Canonical form: no rounding of what is already a whole number, no sign under an even function. The
measure that falls: number of ops.
"""

from __future__ import annotations

from tilewright.ir.core import Op, Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import is_int
from tilewright.ops.arith import Abs, Cast, Neg
from tilewright.ops.math import Ceil, Cos, Floor


def round_of_whole(op: Op, rw: Rewriter) -> Value | None:
    """floor(w) = ceil(w) = w where w is a floor, a ceil, or made from an integer"""
    source = op.operands[0]
    match source.op:
        case Floor() | Ceil():
            return source
        case Cast(src) if is_int(src.type):
            return source
        case _:
            return None


rewrite(Floor)(round_of_whole)
rewrite(Ceil)(round_of_whole)


@rewrite(Cos)
def cos_of_signed(op: Cos, rw: Rewriter) -> Value | None:
    """cos(-x) = cos(|x|) = cos(x)"""
    match op.src.op:
        case Neg(x) | Abs(x):
            return rw.insert(Cos(x))
        case _:
            return None

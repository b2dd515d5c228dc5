"""Coarse operations in fine ones: a table of rewrites, after the common passes.

The common passes find products of matrices in sums of products. Their operands are often cast to
the type of the sum first; the matrix unit takes the narrow ones.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import Pass, PassContext, Step
from tilewright.ir.rewriter import Rewriter, Rule, apply_greedily
from tilewright.ir.types import dtype_of
from tilewright.ops.arith import Cast
from tilewright.ops.dot import Dot
from tilewright_npu.matrix_unit import TYPES, fits


def product_of_casts(op: Dot, rw: Rewriter) -> Value | None:
    """dot(cast(a), cast(b), c) = dot(a, b, c), if the products are exact in the type of c"""
    match op.lhs.op, op.rhs.op:
        case Cast(lhs), Cast(rhs) if _is_exact(lhs, op.lhs) and _is_exact(rhs, op.rhs):
            narrow = Dot(lhs, rhs, op.acc, "ieee", 0)
            if fits(narrow):
                return rw.insert(narrow)
            narrow.drop_operands()
            return None
        case _:
            return None


def _is_exact(narrow: Value, wide: Value) -> bool:
    """Whether the matrix unit takes the values before a cast, and adds in the type after it."""
    return TYPES.get(dtype_of(narrow.type).short) == dtype_of(wide.type).short


RULES: dict[type[Op], list[Rule]] = {Dot: [Rule("product_of_casts", Dot, product_of_casts)]}


def find_coarse(fn: Function, ctx: PassContext) -> bool:
    """Apply the rewrites."""
    return apply_greedily(fn, RULES, ctx.count)


STEPS = (Step(Pass("npu_coarse", find_coarse, required=True)),)

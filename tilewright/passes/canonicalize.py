"""Canonicalization: applies all rewrite rules greedily, to a fixed point.

Input and output: verified SSA. Afterwards no rule applies, and there are no dead pure ops; equal
ops remain, for cse. The driver (`ir/rewriter`) visits each op, and revisits the neighbourhood of
each op that it rewrites; the number of rewrites is bounded by a multiple of the number of ops.
"""

from __future__ import annotations

from tilewright.ir.core import Function
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import apply_greedily
from tilewright.rewrites import RULES


@compiler_pass("canonicalize")
def canonicalize(fn: Function, ctx: PassContext) -> bool:
    """Rewrite every op to its canonical form, which the docstrings of `rewrites/*.py` specify."""
    return apply_greedily(fn, RULES, ctx.count)

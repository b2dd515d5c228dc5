"""The rewrite rules, all of them, until none applies."""

from __future__ import annotations

from tilewright.ir.core import Function
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import apply_greedily
from tilewright.rewrites import RULES


@compiler_pass("canonicalize")
def canonicalize(fn: Function, ctx: PassContext) -> bool:
    """Bring every op into its canonical form, which stands at the top of each file of rewrites.

    Needs: verified SSA.  Leaves: no op without effects whose results nobody uses; equal ops remain
    for cse.
    """
    return apply_greedily(fn, RULES, ctx.count)

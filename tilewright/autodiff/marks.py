"""Marks for differentiation, which a derived kernel does not need."""

from __future__ import annotations

from tilewright.ir.core import Module
from tilewright.ops.arith import FunctionResult, StopGradient


def remove_marks(module: Module) -> None:
    """Replace values that are marked as constants, or as results of functions, by what is marked:
    nothing then keeps the operands of such functions alive."""
    for fn in module.functions.values():
        for op in list(fn.walk()):
            if isinstance(op, FunctionResult | StopGradient):
                op.result.replace_with(op.src)
                op.erase()

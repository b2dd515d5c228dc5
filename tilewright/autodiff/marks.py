"""Removal of marks for differentiation from derived kernels."""

from __future__ import annotations

from tilewright.ir.core import Module
from tilewright.ops.control import WithRule
from tilewright.ops.marks import FunctionResult, Residual, StopGradient


def remove_marks(module: Module) -> None:
    """Replace marked constants and results of functions by their operands, so that operands of such
    functions are not kept alive."""
    for fn in module.functions.values():
        for op in reversed(list(fn.walk())):  # first those in rules
            if isinstance(op, FunctionResult | Residual | StopGradient):
                op.result.replace_with(op.src)
                op.erase()
            elif isinstance(op, WithRule):
                for result, value in zip(op.results, op.values, strict=True):
                    result.replace_with(value)
                op.erase()

"""Derivatives of kernels, on tile IR. Importing this package fills the table of rules."""

from tilewright.autodiff import (
    rules_arith,
    rules_custom,
    rules_math,
    rules_other,
    rules_reduce,
    rules_shape,
)

__all__ = [
    "rules_arith", "rules_custom", "rules_math", "rules_other", "rules_reduce", "rules_shape",
]  # fmt: skip

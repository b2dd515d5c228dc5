"""All rewrite rules. Importing this package fills the registry; one file a family of ops."""

from tilewright.ir.rewriter import RULES
from tilewright.rewrites import (
    arith,
    control,
    dot,
    elementwise,
    math,
    memory,
    reduce,
    select,
    shape,
)

__all__ = [
    "RULES",
    "arith",
    "control",
    "dot",
    "elementwise",
    "math",
    "memory",
    "reduce",
    "select",
    "shape",
]

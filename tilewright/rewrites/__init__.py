"""Rewrite rules, one file per family of ops. Importing this package registers all of them."""

from tilewright.ir.rewriter import RULES
from tilewright.rewrites import (
    arith,
    control,
    dot,
    elementwise,
    extremum,
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
    "extremum",
    "math",
    "memory",
    "reduce",
    "select",
    "shape",
]

"""What the primitives mean: checks, promotion, broadcasting, and the ops that are built.

One file a family. Operators on tensors, `tl` functions and tensor methods all end here.
"""

from tilewright.language.semantic.context import (
    IncompatibleTypeErrorImpl,
    LanguageOptions,
    Semantic,
    StaticAssertionError,
)

__all__ = ["IncompatibleTypeErrorImpl", "LanguageOptions", "Semantic", "StaticAssertionError"]

"""The semantics of the primitives: checks, type promotion, broadcasting, and construction of ops.

One file per family. Operators on tensors, `tl` functions and tensor methods are all implemented
here.
"""

from tilewright.language.semantic.context import (
    IncompatibleTypeErrorImpl,
    LanguageOptions,
    Semantic,
    StaticAssertionError,
)

__all__ = ["IncompatibleTypeErrorImpl", "LanguageOptions", "Semantic", "StaticAssertionError"]

"""The semantics of the primitives: checks, type promotion, broadcasting, and construction of ops.

One file per family, imported on first access: the first kernel that is compiled imports them, and
with them the op set. Operators on tensors, `tl` functions and tensor methods are all implemented
here.
"""

from typing import TYPE_CHECKING

from tilewright.base.lazy_import import lazy_names
from tilewright.language.semantic.context import (
    IncompatibleTypeErrorImpl,
    LanguageOptions,
    Semantic,
    StaticAssertionError,
)

if TYPE_CHECKING:
    from tilewright.language.semantic import (
        arith,
        asm,
        atomic,
        block_pointer,
        convert,
        debug,
        dot,
        dot_scaled,
        memory,
        random,
        reduce,
        shape,
        sort,
        subscript,
        tensor_descriptor,
    )
    from tilewright.language.semantic.convert import to_tensor
else:
    __getattr__ = lazy_names(
        __name__,
        {
            __name__: (
                "arith", "asm", "atomic", "block_pointer", "convert", "debug", "dot", "dot_scaled",
                "memory", "random", "reduce", "shape", "sort", "subscript", "tensor_descriptor",
            ),
            "tilewright.language.semantic.convert": ("to_tensor",),
        },
    )  # fmt: skip

__all__ = [
    "IncompatibleTypeErrorImpl", "LanguageOptions", "Semantic", "StaticAssertionError", "arith",
    "asm", "atomic", "block_pointer", "convert", "debug", "dot", "dot_scaled", "memory", "random",
    "reduce", "shape", "sort", "subscript", "tensor_descriptor", "to_tensor",
]  # fmt: skip

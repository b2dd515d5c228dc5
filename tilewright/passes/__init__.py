"""All passes. Importing this package fills the registry; one file a pass."""

from tilewright.passes import (
    canonicalize,
    canonicalize_pointers,
    cse,
    dce,
    inline,
    licm,
)

__all__ = ["canonicalize", "canonicalize_pointers", "cse", "dce", "inline", "licm"]

"""Passes on tile IR, one per file. Importing this package registers those that every target
uses."""

from tilewright.passes import (
    canonicalize,
    canonicalize_pointers,
    cse,
    dce,
    inline,
    licm,
)

__all__ = ["canonicalize", "canonicalize_pointers", "cse", "dce", "inline", "licm"]

"""What the LLVM library says of itself."""

from __future__ import annotations

import llvmlite.binding as llvm


def version() -> str:
    """Its version: ``22.1.0``."""
    return ".".join(map(str, llvm.llvm_version_info))

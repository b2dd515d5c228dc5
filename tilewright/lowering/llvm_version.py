"""LLVM's version, which changes code. Loads LLVM only where it is not known of this library."""

from __future__ import annotations

import os
from functools import cache

import llvmlite

from tilewright.base.late import late
from tilewright.base.remembered import file_state, remembered

_ask = late("tilewright.lowering.llvm_library:version")


@cache
def llvm_version() -> str:
    """LLVM's version: ``22.1.0``."""
    folder = os.path.join(os.path.dirname(llvmlite.__file__), "binding")
    try:
        files = sorted(os.listdir(folder))
        library = next(name for name in files if name.startswith(("libllvmlite", "llvmlite.dll")))
        state = file_state(os.path.join(folder, library))
    except (OSError, StopIteration):
        return _ask()
    return remembered("LLVM", (llvmlite.__version__, *state), _ask)

"""LLVM's version, which changes code. Loads LLVM only where it is not known of this library."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

from tilewright.base.fact_cache import cached_fact, file_state
from tilewright.base.late import late

_ask = late("tilewright.base.llvm_library:version")


@cache
def llvm_version() -> str:
    """LLVM's version: ``22.1.0``."""
    state = library_state()
    return _ask() if state is None else cached_fact("LLVM", state, _ask)


@cache
def library_state() -> tuple[str, int, int, int] | None:
    """What changes when the LLVM library does (`file_state`); None where it is not found."""
    package = find_spec("llvmlite")
    for place in (package.submodule_search_locations or ()) if package else ():
        folder = os.path.join(place, "binding")
        try:
            files = sorted(os.listdir(folder))
            library = next(n for n in files if n.startswith(("libllvmlite", "llvmlite.dll")))
            return file_state(os.path.join(folder, library))
        except (OSError, StopIteration):
            continue
    return None

"""LLVM's version, part of cache keys. Loads LLVM only if the version is not cached."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tilewright.base.fact_cache import cached_fact, file_state
from tilewright.base.lazy_import import lazy_import

if TYPE_CHECKING:
    from tilewright.base import llvm_library
else:
    llvm_library = lazy_import("tilewright.base.llvm_library")


@cache
def llvm_version() -> str:
    """LLVM's version: ``22.1.0``."""
    state = library_state()
    if state is None:
        return llvm_library.version()
    return cached_fact("LLVM", state, _loaded_version)


def _loaded_version() -> str:
    # A function of its own: an attribute of a lazily imported module imports it at once.
    return llvm_library.version()


@cache
def library_state() -> tuple[str, int, int, int] | None:
    """A value that changes with the LLVM library (`file_state`); None if it is not found."""
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

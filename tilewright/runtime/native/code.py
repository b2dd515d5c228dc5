"""Loads the native code of the fast path from the disk cache, or compiles it.

code = load()
code["launch"]          # the address of a function
"""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

from tilewright.base.fact_cache import cached_bytes
from tilewright.base.lazy_import import lazy_import
from tilewright.base.llvm_version import library_state
from tilewright.compiler.version import compiler_key
from tilewright.runtime.devices.code import LoadedCode
from tilewright.runtime.kinds import BUILT_IN, KINDS

if TYPE_CHECKING:
    from tilewright.runtime.devices import llvm
    from tilewright.runtime.native import generate
else:
    llvm = lazy_import("tilewright.runtime.devices.llvm")
    generate = lazy_import("tilewright.runtime.native.generate")

ENTRIES = ("bind", "launch", "freeze", "launch_bound", "launch_compiled", "launch_substitute")


def load() -> LoadedCode:
    """The code, from the cache, or else generated and compiled.

    Raises:
        RuntimeError: LLVM cannot compile it for this machine.
    """
    # The compiler's version determines the code, unless another package has extended the table of
    # kinds; then the key is the text itself.
    source = compiler_key() if len(KINDS) == len(BUILT_IN) else generate.generate()
    depends_on = source, sys.platform, platform.machine(), library_state()
    # Compilation at level 1 takes 0.17 s, once for a machine. Level 0 takes a fifth of that, but
    # makes launches with many arguments a third slower.
    code = cached_bytes("launch", depends_on, lambda: llvm.assemble(generate.generate(), 1))
    return LoadedCode(code, ENTRIES)

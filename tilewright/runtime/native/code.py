"""Loads the native code of a launch, which LLVM assembles once for a machine.

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

ENTRIES = ("bind", "launch", "freeze", "launch_bound")


def load() -> LoadedCode:
    """The code, from the cache or else generated and assembled now.

    Raises:
        RuntimeError: LLVM cannot make it for this machine.
    """
    # Rows that others have added to the table are known by the text alone.
    source = compiler_key() if len(KINDS) == len(BUILT_IN) else generate.generate()
    depends_on = source, sys.platform, platform.machine(), library_state()
    # Level 1 takes 0.17 s in all, once for a machine; level 0 a fifth of that, but then a launch of
    # many arguments takes a third more.
    code = cached_bytes("launch", depends_on, lambda: llvm.assemble(generate.generate(), 1))
    return LoadedCode(code, ENTRIES)

"""Loads the native code of a launch, which LLVM assembles once for a machine.

code = load()
code["launch"]          # the address of a function
"""

from __future__ import annotations

import os
import platform
import sys
from hashlib import sha256

from tilewright.base.fact_cache import cached_bytes
from tilewright.base.late import late
from tilewright.base.llvm_version import library_state
from tilewright.runtime.devices.code import LoadedCode
from tilewright.runtime.native.layout import NUMBERS, OFFSETS

FILES = tuple(
    f"{name}.ll" for name in ("launch", "stages", "arguments", "tensors", "parts", "start", "bound")
)
ENTRIES = ("bind", "launch", "freeze", "launch_bound")

_assemble = late("tilewright.runtime.devices.llvm:assemble")
_expand = late("tilewright.runtime.native.expand:expand")


def source() -> bytes:
    """The code's own text, before it is expanded."""
    folder = os.path.dirname(__file__)
    parts: list[bytes] = []
    for name in FILES:
        with open(f"{folder}/{name}", "rb", buffering=0) as file:
            parts.append(file.readall())
    return b"".join(parts)


def load() -> LoadedCode:
    """The code, from the cache or else assembled now.

    Raises:
        RuntimeError: LLVM cannot make it for this machine.
    """
    text = source()
    meaning = sha256(text + repr((NUMBERS, OFFSETS)).encode()).hexdigest()
    depends_on = meaning, sys.platform, platform.machine(), library_state()
    # Level 1 takes 0.17 s in all, once for a machine; level 0 a fifth of that, but then a launch of
    # many arguments takes a third more.
    code = cached_bytes("launch", depends_on, lambda: _assemble(_expand(text.decode()), 1))
    return LoadedCode(code, ENTRIES)

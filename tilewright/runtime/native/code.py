"""Loads the native code of a launch: from the disk cache, where LLVM put it once for a machine.

    code = load()
    code["launch"]          # the address of a function

Machine code that refers to nothing needs no linker: a file of it is mapped into memory, for reading
and executing only. A process that finds it in the cache so launches without loading LLVM.
"""

from __future__ import annotations

import mmap
import os
import platform
import struct
import sys
from pathlib import Path

import numpy as np

from tilewright.base.late import late
from tilewright.runtime.cache import digest, disk_cache
from tilewright.runtime.native.layout import NUMBERS, OFFSETS

FILES = tuple(
    f"{name}.ll" for name in ("launch", "stages", "arguments", "tensors", "parts", "start", "bound")
)
ENTRIES = ("bind", "launch", "freeze", "launch_bound")
_TEXT, _ENTRIES = "text", "entries"
_ENTRIES_FORMAT = struct.Struct(f"<{len(ENTRIES)}Q")

_assemble = late("tilewright.runtime.native.emit:assemble")


class Code:
    """Machine code in this process, for as long as this object lives."""

    def __init__(self, text: bytes, entries: tuple[int, ...]) -> None:
        descriptor = os.memfd_create("tilewright-launch", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text)
            self._memory = mmap.mmap(
                descriptor,
                len(text),
                flags=mmap.MAP_PRIVATE,
                prot=mmap.PROT_READ | mmap.PROT_EXEC,
            )
        finally:
            os.close(descriptor)
        start: int = np.frombuffer(self._memory, np.uint8).__array_interface__["data"][0]
        self._addresses = {n: start + at for n, at in zip(ENTRIES, entries, strict=True)}

    def __getitem__(self, name: str) -> int:
        """The address of a function."""
        return self._addresses[name]


def can_load() -> bool:
    """Whether this system maps files of code as they are loaded here."""
    return hasattr(os, "memfd_create") and sys.maxsize > 1 << 32 and sys.byteorder == "little"


def source() -> str:
    """The code's own text, before it is expanded."""
    folder = Path(__file__).parent
    return "".join((folder / name).read_text("utf-8") for name in FILES)


def load() -> Code:
    """The code, from the cache or else assembled now.

    Raises:
        ValueError, RuntimeError: LLVM cannot make it for this machine.
        OSError: the system does not let files of code be made.
    """
    text = source()
    key = digest("launch", text, repr((NUMBERS, OFFSETS)), platform.machine())
    cache = disk_cache()
    found = cache.get(key)
    if found is None:
        made = _assemble(text, ENTRIES)
        entries = _ENTRIES_FORMAT.pack(*(made.entries[name] for name in ENTRIES))
        found = {_TEXT: made.text, _ENTRIES: entries}
        cache.put(key, found)
    return Code(found[_TEXT], _ENTRIES_FORMAT.unpack(found[_ENTRIES]))

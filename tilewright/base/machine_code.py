"""Executable memory that lives as long as its owner.

    code = MachineCode(len(image), lambda address: image)
    ctypes.CFUNCTYPE(ctypes.c_int)(code.address)()

The memory is an anonymous file, mapped as readable and executable, and written through the file.
No page is ever both writable and executable, and the kernel performs any instruction cache
maintenance that the architecture requires.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

# From sys/mman.h, on systems with memfd_create.
_READ_AND_EXECUTE = 1 | 4
_SHARED = 1
_FAILED = ctypes.c_void_p(-1).value


def can_hold_code() -> bool:
    """Whether this system supports such mappings."""
    return hasattr(os, "memfd_create") and sys.maxsize > 1 << 32 and sys.byteorder == "little"


@cache
def _process() -> Any:
    """The symbols exported by the libraries of this process."""
    process = ctypes.CDLL(None, use_errno=True)
    word, number = ctypes.c_size_t, ctypes.c_int
    process.mmap.restype = ctypes.c_void_p
    process.mmap.argtypes = (ctypes.c_void_p, word, number, number, number, ctypes.c_long)
    process.munmap.argtypes = (ctypes.c_void_p, word)
    return process


class MachineCode:
    """Machine code in this process.

    Args:
        size: its size in bytes, at least 1.
        make: returns the code for a given page-aligned load address.

    Attributes:
        address: the load address.

    Raises:
        OSError: the system cannot provide such memory.

    The code stays mapped at process exit, since native threads may still be running it.
    """

    __slots__ = ("__weakref__", "address")

    def __init__(self, size: int, make: Callable[[int], bytes]) -> None:
        file = os.memfd_create("tilewright", os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, size)
            self.address = _map(file, size)
            weakref.finalize(self, _process().munmap, self.address, size).atexit = False
            if os.write(file, make(self.address)) != size:
                raise OSError(f"the system took less than {size} bytes of machine code")
        finally:
            os.close(file)


def _map(file: int, size: int) -> int:
    process = _process()
    address: int = process.mmap(None, size, _READ_AND_EXECUTE, _SHARED, file, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"no memory for machine code: {os.strerror(number)}")
    return address


def address_of(function: Any) -> int:
    """The address of a `ctypes` function; 0 for None."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def symbol_of_process(name: str) -> int | None:
    """The address of a symbol exported by the libraries of this process, or None."""
    if os.name != "posix":
        return None
    try:
        return ctypes.cast(_process()[name], ctypes.c_void_p).value
    except AttributeError:
        return None

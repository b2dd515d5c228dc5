"""Loads relocatable object files into this process, and unloads them.

Input: the bytes of an object file, the names of the functions to call, and addresses for symbols
that the process does not export. Output: a `LoadedCode` with the functions' addresses. ELF files
are linked by `elf.py` (0.1 ms, without LLVM); anything it does not support, by LLVM's JITLink.
"""

from __future__ import annotations

import platform
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import
from tilewright.base.machine_code import MachineCode, can_hold_code, symbol_of_process
from tilewright.runtime.devices.elf import Unsupported, is_elf, link

if TYPE_CHECKING:
    from tilewright.runtime.devices import llvm
else:
    llvm = lazy_import("tilewright.runtime.devices.llvm")


_unload_callbacks: list[Callable[[int], Any]] = []


def when_unloaded(callback: Callable[[int], Any]) -> None:
    """Register a callback that receives the address of each function whose code is unloaded.

    The address may be reused for another function afterwards, so anything cached by address
    must be dropped. The callback runs in whichever thread drops the last reference to the code.
    """
    _unload_callbacks.append(callback)


def _notify_unloaded(addresses: Sequence[int]) -> None:
    for address in addresses:
        for callback in _unload_callbacks:
            callback(address)


class LoadedCode:
    """An object file loaded into this process; the code is unloaded with this object.

    Args:
        code: the bytes of an object file for this machine (ELF, Mach-O or COFF).
        names: the functions whose addresses can be looked up.
        imports: addresses for symbols that the code refers to and the process does not export.

    Raises:
        RuntimeError: the bytes are not an object file, or a symbol is undefined.

    Example:
        code = LoadedCode(object_bytes, ["add_kernel"])
        launch(code["add_kernel"], args_address, (16, 1, 1))
    """

    def __init__(
        self, code: bytes, names: Sequence[str], imports: Mapping[str, int] | None = None
    ) -> None:
        self._holder, self._addresses = _load(code, names, imports or {})
        # The finalizer runs before `_holder` is released: the memory, and with it the addresses,
        # cannot be reused before the callbacks have run.
        addresses = tuple(self._addresses.values())
        weakref.finalize(self, _notify_unloaded, addresses).atexit = False

    def __getitem__(self, name: str) -> int:
        """The address of a function; KeyError if it is not among the `names` of the constructor."""
        return self._addresses[name]


def _load(
    code: bytes, names: Sequence[str], imports: Mapping[str, int]
) -> tuple[object, dict[str, int]]:
    """The object that owns the code's memory, and the functions' addresses by name."""
    if can_hold_code() and is_elf(code):

        def find(name: str) -> int | None:
            found = imports.get(name)
            return symbol_of_process(name) if found is None else found

        try:
            image = link(code, names, find, platform.machine().lower())
            held = MachineCode(image.size, image.placed)
        except (Unsupported, OSError):
            pass  # fall back to LLVM, which may also allocate executable memory where mmap fails
        else:
            return held, {name: held.address + at for name, at in image.entries.items()}
    return llvm.link(code, names, imports)

"""Object code in this process."""

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


_unloading: list[Callable[[int], Any]] = []


def when_unloaded(forget: Callable[[int], Any]) -> None:
    """Have a function called with the address of each function whose code is unloaded, after which
    another one may have the address. It may be called in any thread, at any time."""
    _unloading.append(forget)


def _forget(addresses: Sequence[int]) -> None:
    for address in addresses:
        for forget in _unloading:
            forget(address)


class LoadedCode:
    """Object code in this process. The addresses are valid as long as this object lives, or until
    the process ends.

    ELF files of x86-64 and AArch64 are linked here (`elf.py`); others, and those that hold what is
    not known there, by LLVM.

    Args:
        code: the bytes of an object file for this machine (ELF, Mach-O or COFF).
        names: the functions whose addresses are wanted.
        imports: addresses for symbols that the code refers to and the process does not export.

    Raises:
        RuntimeError: the bytes are no object file, or a symbol is missing.

    Example:
        code = LoadedCode(object_bytes, ["add_kernel"])
        launch(code["add_kernel"], args_address, (16, 1, 1))
    """

    def __init__(
        self, code: bytes, names: Sequence[str], imports: Mapping[str, int] | None = None
    ) -> None:
        self._holder, self._addresses = _load(code, names, imports or {})
        # Before what holds the code is let go, as nobody else can have the addresses until then.
        weakref.finalize(self, _forget, tuple(self._addresses.values())).atexit = False

    def __getitem__(self, name: str) -> int:
        """The address of the function `name`; KeyError when it was not asked for."""
        return self._addresses[name]


def _load(
    code: bytes, names: Sequence[str], imports: Mapping[str, int]
) -> tuple[object, dict[str, int]]:
    """What keeps the code, and the addresses of functions in it."""
    if can_hold_code() and is_elf(code):

        def find(name: str) -> int | None:
            found = imports.get(name)
            return symbol_of_process(name) if found is None else found

        try:
            image = link(code, names, find, platform.machine().lower())
            held = MachineCode(image.size, image.placed)
        except (Unsupported, OSError):
            pass  # where files of code cannot be mapped, LLVM's way may be open
        else:
            return held, {name: held.address + at for name, at in image.entries.items()}
    return llvm.link(code, names, imports)

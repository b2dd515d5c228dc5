"""Reads the note of an object file that describes its kernels: registers, memory, arguments.

The note is a map in MessagePack (LLVM, "User Guide for AMDGPU Backend", "Code Object V5 Metadata").
"""

from __future__ import annotations

import struct
from typing import Any

from tilewright.targets.amd.elf import ObjectFile

_HEADER = struct.Struct("<III")  # of a note: sizes of name and content, and the kind


def kernels(data: bytes) -> list[dict[str, Any]]:
    """The description of each kernel of an object file or a code object.

        kernels(hsaco)[0][".vgpr_count"]

    Raises:
        ValueError: the data is not an ELF file, or has no such note.
    """
    note = ObjectFile(data).named(".note")
    if not note:
        raise ValueError("there is no note that describes kernels")
    name, size, _ = _HEADER.unpack_from(note)
    start = _HEADER.size + -(-name // 4) * 4
    return _Reader(note[start : start + size]).value()["amdhsa.kernels"]


class _Reader:
    """Decodes the subset of MessagePack that LLVM writes: no floats, no extensions."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def _take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def _number(self, form: str) -> int:
        return struct.unpack(f">{form}", self._take(struct.calcsize(form)))[0]

    def value(self) -> Any:
        tag = self._take(1)[0]
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 256
        if tag < 0xC0:
            return self._short(tag)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag in _NUMBERS:
            return self._number(_NUMBERS[tag])
        kind, form = _SIZED[tag]
        return self._of(kind, self._number(form))

    def _short(self, tag: int) -> Any:
        """A value whose size is in its tag."""
        if tag < 0x90:
            return self._of("map", tag & 0xF)
        return self._of("array", tag & 0xF) if tag < 0xA0 else self._of("text", tag & 0x1F)

    def _of(self, kind: str, size: int) -> Any:
        if kind == "text":
            return self._take(size).decode()
        if kind == "array":
            return [self.value() for _ in range(size)]
        return {self.value(): self.value() for _ in range(size)}


_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {
    0xCC: "B",
    0xCD: "H",
    0xCE: "I",
    0xCF: "Q",
    0xD0: "b",
    0xD1: "h",
    0xD2: "i",
    0xD3: "q",
}
_SIZED = {
    0xD9: ("text", "B"),
    0xDA: ("text", "H"),
    0xDB: ("text", "I"),
    0xDC: ("array", "H"),
    0xDD: ("array", "I"),
    0xDE: ("map", "H"),
    0xDF: ("map", "I"),
}

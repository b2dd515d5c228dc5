"""Reads the sections and symbols of an object file that LLVM has generated for AMD GPUs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")

PROGRAM_BITS, SYMBOLS, STRINGS, RELA, HASH, DYNAMIC, NOTE, DYNAMIC_SYMBOLS = (
    *(1, 2, 3, 4, 5, 6, 7, 11),
)  # SHT_*
WRITES, LOADS, RUNS = 1, 2, 4  # SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR
LOCAL, GLOBAL = 0, 1  # STB_*


class Section(NamedTuple):
    """A section: its header, and its content."""

    name: str
    kind: int
    flags: int
    info: int
    align: int
    content: bytes


class Symbol(NamedTuple):
    """A symbol. `section` is the index of its section, 0 if it is not defined here."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        """LOCAL, GLOBAL or another of STB_*."""
        return self.info >> 4


class Relocation(NamedTuple):
    """A place in a section to which the address of a symbol is added."""

    offset: int
    kind: int
    symbol: int
    addend: int


class ObjectFile:
    """A 64-bit little-endian ELF file.

    Attributes:
        identity: the first 16 bytes; `machine`, `flags`: of the file header.
        sections: by index, the first of which is empty.
    """

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        header = FILE_HEADER.unpack_from(data)
        self.identity, _, self.machine, *_ = header
        self.flags = header[7]
        start, count, names = header[6], header[12], header[13]
        rows = [
            SECTION_HEADER.unpack_from(data, start + i * SECTION_HEADER.size) for i in range(count)
        ]
        texts = data[rows[names][4] :]
        self.sections = [
            Section(_text(texts, r[0]), r[1], r[2], r[7], r[8], data[r[4] : r[4] + r[5]])
            for r in rows
        ]
        self._links = [r[6] for r in rows]

    def named(self, name: str) -> bytes:
        """The content of a section; empty if there is none of this name."""
        return next((s.content for s in self.sections if s.name == name), b"")

    def symbols(self) -> list[Symbol]:
        """All symbols, by index."""
        for index, section in enumerate(self.sections):
            if section.kind == SYMBOLS:
                texts = self.sections[self._links[index]].content
                rows = SYMBOL.iter_unpack(section.content)
                return [Symbol(_text(texts, row[0]), *row[1:]) for row in rows]
        return []

    def relocations(self) -> Iterator[tuple[int, Relocation]]:
        """Each relocation, with the index of the section to which it applies."""
        for section in self.sections:
            if section.kind == RELA:
                for offset, info, addend in RELOCATION.iter_unpack(section.content):
                    yield section.info, Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)


def _text(texts: bytes, offset: int) -> str:
    return texts[offset : texts.index(0, offset)].decode()

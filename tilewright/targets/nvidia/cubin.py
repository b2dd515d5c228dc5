"""Reads the resource usage of a kernel from a cubin, the ELF file that a GPU loads.

    resources(cubin, "add_kernel").registers

The format of ELF is public. That of its sections `.nv.info` is not, but has been stable since
Kepler: records of a format byte, a tag byte, and two bytes with a value or, for format 4, with the
size of the payload that follows. ptxas and nvJitLink write, and the driver reads, the same records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tilewright.base.record import record

_FILE_HEADER = struct.Struct("<40xQ10xHHH")  # of the section headers: offset, size, number, names
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_SIZED_RECORD = 4  # the format whose value is the size of the payload
_FRAME_SIZE = 0x11  # payload: symbol, bytes of local memory a thread
_REGISTER_COUNT = 0x2F  # payload: symbol, registers a thread


@record
class Resources:
    """The resource usage of a kernel.

    Attributes:
        registers: 32-bit registers of a thread.
        local_bytes: local memory of a thread. Kernels have no local variables, so all of it is
            spilled registers, rounded up to 8 bytes.
        shared_bytes: static shared memory of a CTA, without the dynamic part of a launch.
    """

    registers: int
    local_bytes: int
    shared_bytes: int

    @property
    def spilled_registers(self) -> int:
        """Spilled registers of a thread, counted as the driver does."""
        return self.local_bytes // 4


@record
class _Section:
    name: str
    kind: int
    offset: int
    size: int


_NO_BITS = 8  # kind of a section that has a size but no bytes in the file


class _Elf:
    """The sections of an ELF file by name."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF":
            raise ValueError("not a cubin: the data is not an ELF file")
        self.data = data
        start, size, count, names_index = _FILE_HEADER.unpack_from(data)
        headers = [_SECTION_HEADER.unpack_from(data, start + i * size) for i in range(count)]
        names = headers[names_index][4]
        self.sections: dict[str, _Section] = {}
        for name, kind, _, _, offset, length, *_ in headers:
            text = _text_at(data, names + name)
            self.sections[text] = _Section(text, kind, offset, length)

    def content(self, name: str) -> bytes:
        """A section's bytes; empty if there is no such section."""
        section = self.sections.get(name)
        if section is None or section.kind == _NO_BITS:
            return b""
        return self.data[section.offset : section.offset + section.size]

    def size(self, name: str) -> int:
        section = self.sections.get(name)
        return 0 if section is None else section.size

    def symbol(self, name: str) -> int:
        """The index of a symbol.

        Raises:
            KeyError: there is no such symbol.
        """
        texts = self.sections[".strtab"].offset
        for index, entry in enumerate(_SYMBOL.iter_unpack(self.content(".symtab"))):
            if _text_at(self.data, texts + entry[0]) == name:
                return index
        raise KeyError(name)


def _text_at(data: bytes, offset: int) -> str:
    return data[offset : data.index(0, offset)].decode()


def resources(cubin: bytes, kernel: str) -> Resources:
    """The resource usage of a kernel in a cubin.

    Raises:
        KeyError: the cubin has no such kernel.
        ValueError: the data is not an ELF file.
    """
    elf = _Elf(cubin)
    index = elf.symbol(kernel)
    found = {_REGISTER_COUNT: 0, _FRAME_SIZE: 0}
    for tag, payload in _records(elf.content(".nv.info")):
        if tag in found:
            symbol, value = struct.unpack("<II", payload)
            if symbol == index:
                found[tag] = value
    return Resources(
        registers=found[_REGISTER_COUNT],
        local_bytes=found[_FRAME_SIZE],
        shared_bytes=elf.size(f".nv.shared.{kernel}"),
    )


def machine_code(cubin: bytes, kernel: str) -> bytes:
    """The machine code of a kernel, with that of the functions it calls; empty if there is none.

    Raises:
        ValueError: the data is not an ELF file.
    """
    return _Elf(cubin).content(f".text.{kernel}")


def _records(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and payload of each record."""
    at = 0
    while at < len(info):
        form, tag, value = struct.unpack_from("<BBH", info, at)
        size = value if form == _SIZED_RECORD else 0
        yield tag, info[at + 4 : at + 4 + size]
        at += 4 + size

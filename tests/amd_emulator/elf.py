"""Reads code objects: kernel descriptors, code and metadata.

LLVM, "User Guide for AMDGPU Backend": "Code Object", "Kernel Descriptor", "Code Object V5
Metadata".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD = 1
_SYMBOLS, _NOTE, _DYNAMIC_SYMBOLS = 2, 7, 11


@dataclass
class Section:
    """A section: where it is in memory and its content."""

    name: str
    kind: int
    address: int
    info: int
    link: int
    content: bytes


@dataclass
class Kernel:
    """A kernel of a code object.

    Attributes:
        name: of the function.
        code: the whole text section; `entry` is the address in it where the kernel begins.
        descriptor: its 64 bytes.
        metadata: its part of the note.
        image: the loaded segments, by address; `code` begins at `code_address` of it.
    """

    name: str
    code: bytes
    entry: int
    descriptor: bytes
    metadata: dict[str, Any]
    image: bytes
    code_address: int

    def bits(self, word: int, low: int, count: int = 1) -> int:
        """Bits of the descriptor, by the offset of their word."""
        (value,) = struct.unpack_from("<I", self.descriptor, word)
        return value >> low & (1 << count) - 1

    @property
    def lds_bytes(self) -> int:
        """Bytes of the LDS that each work-group has."""
        return struct.unpack_from("<I", self.descriptor, 0)[0]

    @property
    def scratch_bytes(self) -> int:
        """Bytes of private memory that each lane has."""
        return struct.unpack_from("<I", self.descriptor, 4)[0]


def read_kernels(data: bytes) -> dict[str, Kernel]:
    """The kernels of a code object, or of an object file that is not linked, by name."""
    sections = _sections(data)
    symbols = _symbols(sections)
    note = next(s for s in sections if s.kind == _NOTE)
    described = {k[".name"]: k for k in _note(note.content)["amdhsa.kernels"]}
    linked = data[16] != 1  # ET_REL
    text = next(i for i, s in enumerate(sections) if s.name == ".text")
    found: dict[str, Kernel] = {}
    for name, metadata in described.items():
        section, value = symbols[f"{name}.kd"]
        place = value - sections[section].address if linked else value
        descriptor = sections[section].content[place : place + 64]
        if linked:
            (offset,) = struct.unpack_from("<q", descriptor, 16)
            entry = value + offset - sections[text].address
        else:
            entry = symbols[name][1]
        code, address = sections[text].content, sections[text].address
        found[name] = Kernel(name, code, entry, descriptor, metadata, _image(data), address)
    return found


def _sections(data: bytes) -> list[Section]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (start,) = struct.unpack_from("<Q", data, 0x28)
    _, count, names = struct.unpack_from("<HHH", data, 0x3A)
    rows = [_SECTION.unpack_from(data, start + i * _SECTION.size) for i in range(count)]
    texts = data[rows[names][4] :]
    return [
        Section(_text(texts, r[0]), r[1], r[3], r[7], r[6], data[r[4] : r[4] + r[5]]) for r in rows
    ]


def _image(data: bytes) -> bytes:
    """The loaded segments, each at its address."""
    (start,) = struct.unpack_from("<Q", data, 0x20)
    _, count = struct.unpack_from("<HH", data, 0x36)
    found = bytearray()
    for kind, _, offset, address, _, size, _, _ in (
        _SEGMENT.unpack_from(data, start + i * _SEGMENT.size) for i in range(count)
    ):
        if kind == _LOAD:
            found.extend(bytes(max(0, address + size - len(found))))
            found[address : address + size] = data[offset : offset + size]
    return bytes(found)


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _symbols(sections: list[Section]) -> dict[str, tuple[int, int]]:
    """Section and value of each symbol that is defined."""
    found: dict[str, tuple[int, int]] = {}
    for section in sections:
        if section.kind not in (_SYMBOLS, _DYNAMIC_SYMBOLS):
            continue
        names = sections[section.link].content
        for name, _, _, index, value, _ in _SYMBOL.iter_unpack(section.content):
            if 0 < index < len(sections):
                found[_text(names, name)] = (index, value)
    return found


def _note(data: bytes) -> Any:
    """The map in MessagePack of the first note."""
    name, size, _ = struct.unpack_from("<III", data)
    start = 12 + -(-name // 4) * 4
    value, _ = _unpacked(data[start : start + size], 0)
    return value


_FIXED = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {number: f">{form}" for number, form in zip(range(0xCC, 0xD4), "BHIQbhiq", strict=True)}
_SIZES = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


def _unpacked(data: bytes, at: int) -> tuple[Any, int]:
    """The value at a place in MessagePack, and the place behind it."""
    tag = data[at]
    at += 1
    if tag < 0x80 or tag >= 0xE0:
        return (tag if tag < 0x80 else tag - 256), at
    if tag in _FIXED:
        return _FIXED[tag], at
    if tag in _NUMBERS:
        form = _NUMBERS[tag]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if tag in _SIZES:
        form = _SIZES[tag]
        count = struct.unpack_from(form, data, at)[0]
        at += struct.calcsize(form)
        kind = "map" if tag >= 0xDE else "list" if tag >= 0xDC else "text"
    else:
        kind = "map" if tag < 0x90 else "list" if tag < 0xA0 else "text"
        count = tag & (0x1F if kind == "text" else 0xF)
    return _collection(data, at, kind, count)


def _collection(data: bytes, at: int, kind: str, count: int) -> tuple[Any, int]:
    if kind == "text":
        return data[at : at + count].decode(), at + count
    items: list[Any] = []
    for _ in range(count * (2 if kind == "map" else 1)):
        item, at = _unpacked(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind == "map" else items), at

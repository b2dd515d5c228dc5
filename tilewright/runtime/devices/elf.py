"""A linker for one relocatable ELF file, without LLVM.

    image = link(code, ["add_kernel"], symbol_of_process)
    image.size, image.entries["add_kernel"]
    image.placed(address)           # the bytes to be copied to that address

Input: position-independent 64-bit code as LLVM emits it. Output: an image laid out as

    sections of code and read-only data | stubs (a PLT) | slots (a GOT)

with one *stub* for each external function that is called, which jumps through the function's slot,
as the function may be out of a call's range; and one *slot*, an address of 8 bytes, for each symbol
that needs one. Only slots and absolute relocations (R_*_64) depend on the image's address.

A file with writable data, thread-local variables or other relocations than those of
`relocations.py` raises `Unsupported`; the caller then uses LLVM's linker. A damaged file raises
`Malformed`: all offsets are checked against the file's size. Linear in the file's size.

Format: System V ABI, with the supplements for x86-64 and AArch64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tilewright.runtime.devices.relocations import MACHINES, Kind, UnsupportedObject, put_word

Find = Callable[[str], int | None]

_IDENTITY = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_RELOCATABLE = 1  # ET_REL
_PROGRAM_BITS, _SYMBOLS, _RELA, _NOTE, _REL = 1, 2, 4, 7, 9  # SHT_*
_UNWIND = 0x70000001  # SHT_X86_64_UNWIND, the type of .eh_frame
_WRITE, _ALLOCATED, _CODE, _THREAD = 1, 2, 4, 0x400  # SHF_WRITE, _ALLOC, _EXECINSTR, _TLS
_FIRST_RESERVED = 0xFF00  # SHN_LORESERVE: section indices from here on have special meanings
_GLOBAL, _WEAK = 1, 2  # STB_*
_PLAIN_TYPES = (0, 1, 2, 3)  # STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION
_PAGE = 4096
_MOST_BYTES = 1 << 27  # the range of a call on AArch64


class Unsupported(Exception):
    """The file may be valid, but uses a feature that this linker does not implement."""


class Malformed(RuntimeError):
    """The bytes are not a valid object file for this machine, or a symbol is undefined."""


class Section(NamedTuple):
    """A section header with the section's name."""

    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int


class Symbol(NamedTuple):
    """A symbol: the index of its section (0 if undefined, i.e. external) and its offset in it."""

    name: str
    binding: int
    type: int
    section: int
    value: int


class Image(NamedTuple):
    """Linked code.

    content: the bytes, linked for address 0.
    entries: offsets of the requested functions in `content`.
    words: offsets of the 8-byte addresses within `content` that the image's address is added to.
    """

    content: bytes
    entries: dict[str, int]
    words: list[int]

    @property
    def size(self) -> int:
        return len(self.content)

    def placed(self, address: int) -> bytes:
        """The bytes, relocated to an address."""
        if not self.words:
            return self.content
        content = bytearray(self.content)
        for at in self.words:
            put_word(content, at, address + int.from_bytes(content[at : at + 8], "little"))
        return bytes(content)


def is_elf(code: bytes) -> bool:
    """Whether the bytes begin with the identification of a 64-bit little-endian ELF file."""
    return code[: len(_IDENTITY)] == _IDENTITY


def link(code: bytes, names: Sequence[str], find: Find, machine: str) -> Image:
    """Link an object file.

    Args:
        code: the bytes of the file.
        names: the functions whose offsets are returned in `Image.entries`.
        find: returns the address of an external symbol; None if it is undefined.
        machine: the architecture, as `platform.machine` names it, in lower case.

    Raises:
        Unsupported: the file uses a feature that this linker does not implement.
        Malformed: the file is damaged or for another machine, or a symbol is undefined.
    """
    try:
        return _Linker(_File(code, machine), find).link(names)
    except (struct.error, IndexError, UnicodeDecodeError, UnsupportedObject) as error:
        raise Malformed(f"the object file is damaged: {error}") from None


class _File:
    """The parsed section and symbol tables of an object file."""

    def __init__(self, code: bytes, machine: str) -> None:
        self.code = code
        if not is_elf(code):
            raise Malformed("the bytes are not a 64-bit little-endian ELF file")
        header = _HEADER.unpack_from(code)
        known = MACHINES.get(machine)
        if known is None:
            raise Unsupported(f"code for {machine}")
        if header[1] != _RELOCATABLE or header[2] != known.number:
            raise Malformed(f"the file is not a relocatable object file for {machine}")
        self.machine = known
        table, size, count, names = header[6], header[11], header[12], header[13]
        if size != _SECTION.size:
            raise Malformed(f"the object file has section headers of {size} bytes")
        raw = [_SECTION.unpack_from(code, table + i * size) for i in range(count)]
        at = raw[names][4]
        self.sections = [
            Section(self._text(at + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], r[8]) for r in raw
        ]
        tables = [s for s in self.sections if s.type == _SYMBOLS]
        if len(tables) != 1:
            raise Malformed(f"the object file has {len(tables)} symbol tables instead of one")
        self.symbols = list(self._read_symbols(tables[0]))

    def _text(self, at: int) -> str:
        end = self.code.find(b"\0", at)
        if at > len(self.code) or end < 0:
            raise Malformed("the object file is damaged: a name lies outside of it")
        return self.code[at:end].decode()

    def content(self, section: Section) -> bytes:
        content = self.code[section.offset : section.offset + section.size]
        if len(content) != section.size:
            raise Malformed(f"the object file is damaged: it ends within {section.name}")
        return content

    def _read_symbols(self, table: Section) -> Iterator[Symbol]:
        names = self.sections[table.link].offset
        for name, info, _, section, value, _ in _SYMBOL.iter_unpack(self.content(table)):
            yield Symbol(self._text(names + name), info >> 4, info & 15, section, value)

    def relocations(self, number: int) -> Iterator[tuple[int, int, int, int]]:
        """Offset, type, symbol index and addend of each relocation of a section.

        Raises:
            Unsupported: they have no addends.
            Malformed: one lies outside of the section.
        """
        for table in self.sections:
            if table.info != number or table.type not in (_RELA, _REL):
                continue
            if table.type == _REL:
                raise Unsupported("relocations without addends (SHT_REL)")
            for place, info, addend in _RELOCATION.iter_unpack(self.content(table)):
                if place >= self.sections[number].size:
                    raise Malformed(
                        "the object file is damaged: a relocation lies outside of its section"
                    )
                yield place, info & 0xFFFFFFFF, info >> 32, addend


def _is_loaded(section: Section) -> bool:
    """Whether a section becomes part of the image.

    Unwind tables are left out: no exception passes through compiled code.
    """
    if not section.flags & _ALLOCATED or not section.size or section.type == _NOTE:
        return False
    if section.type == _UNWIND or section.name == ".eh_frame":
        return False
    constant = not section.flags & _WRITE or section.name.startswith(".data.rel.ro")
    if section.type != _PROGRAM_BITS or section.flags & _THREAD or not constant:
        raise Unsupported(f"a section like {section.name}")
    return True


class _Linker:
    """Lays out the sections of a file and applies its relocations."""

    def __init__(self, file: _File, find: Find) -> None:
        self._file, self._find = file, find
        self._content = bytearray()
        # Offsets in the image.
        self._places: dict[int, int] = {}  # of sections, by index
        self._words: list[int] = []
        self._slots: dict[int, int] = {}  # by index of the symbol
        self._stubs: dict[int, int] = {}  # by index of the symbol

    def link(self, names: Sequence[str]) -> Image:
        self._place_sections()
        found = [
            (symbol, self._machine_kind(kind), self._places[number] + place, addend)
            for number in self._places
            for place, kind, symbol, addend in self._file.relocations(number)
        ]
        self._make_stubs(found)
        for symbol, kind, at, addend in found:
            self._refer(symbol, kind, at, addend)
        entries = {name: self._entry(name) for name in names}
        return Image(bytes(self._content), entries, self._words)

    def _place_sections(self) -> None:
        for number, section in enumerate(self._file.sections):
            if _is_loaded(section):
                if section.alignment > _PAGE:
                    raise Unsupported(f"an alignment of {section.alignment} bytes")
                self._align(section.alignment)
                self._places[number] = len(self._content)
                self._content += self._file.content(section)
                if len(self._content) > _MOST_BYTES:
                    raise Unsupported("so much code")

    def _align(self, alignment: int) -> None:
        self._content += bytes(-len(self._content) % max(alignment, 1))

    def _machine_kind(self, number: int) -> Kind:
        kind = self._file.machine.kinds.get(number)
        if kind is None:
            raise Unsupported(f"relocations of type {number}")
        return kind

    def _make_stubs(self, found: list[tuple[int, Kind, int, int]]) -> None:
        """Append a stub for each external symbol that is called, then all slots."""
        stub = self._file.machine.stub
        called = [s for s, kind, _, _ in found if kind.way == "call" and self._is_outer(s)]
        slotted = [s for s, kind, _, _ in found if kind.way == "slot"]
        self._align(16)
        for symbol in dict.fromkeys(called):
            self._stubs[symbol] = len(self._content)
            self._content += bytes(stub.size)
        self._align(16)
        for symbol in dict.fromkeys([*called, *slotted]):
            self._slots[symbol] = len(self._content)
            self._content += bytes(8)
            self._put_address(self._slots[symbol], symbol, 0)
        for symbol, at in self._stubs.items():
            stub.put(self._content, at, self._slots[symbol])

    def _is_outer(self, symbol: int) -> bool:
        return self._file.symbols[symbol].section == 0

    def _refer(self, symbol: int, kind: Kind, at: int, addend: int) -> None:
        if kind.way == "address":
            self._put_address(at, symbol, addend)
            return
        if kind.way == "slot":
            target = self._slots[symbol]
        elif kind.way == "call" and self._is_outer(symbol):
            target = self._stubs[symbol]
        else:
            target = self._inner(symbol)
        assert kind.put is not None
        kind.put(self._content, at, target + addend)

    def _put_address(self, at: int, symbol: int, addend: int) -> None:
        if self._is_outer(symbol):
            put_word(self._content, at, self._outer(symbol) + addend)
        else:
            put_word(self._content, at, self._inner(symbol) + addend)
            self._words.append(at)

    def _outer(self, number: int) -> int:
        symbol = self._file.symbols[number]
        address = self._find(symbol.name)
        if address is None and symbol.binding != _WEAK:
            raise Malformed(f"the code refers to {symbol.name!r}, which is undefined")
        return address or 0

    def _inner(self, number: int) -> int:
        """Offset in the image of a symbol that the file defines."""
        symbol = self._file.symbols[number]
        if symbol.section == 0 or symbol.section >= _FIRST_RESERVED:
            raise Unsupported(f"a direct reference to {symbol.name!r}, which is external")
        if symbol.section not in self._places or symbol.type not in _PLAIN_TYPES:
            raise Unsupported(f"a symbol like {symbol.name!r}")
        if symbol.value > self._file.sections[symbol.section].size:
            raise Malformed(
                f"the object file is damaged: {symbol.name!r} lies outside of its section"
            )
        return self._places[symbol.section] + symbol.value

    def _entry(self, name: str) -> int:
        for number, symbol in enumerate(self._file.symbols):
            if symbol.name == name and symbol.binding in (_GLOBAL, _WEAK) and symbol.section:
                return self._inner(number)
        raise Malformed(f"the object file has no function {name!r}")

"""Links a relocatable ELF file into bytes that run where they are put. Needs no LLVM.

    image = link(code, ["add_kernel"], symbol_of_process)
    image.size, image.entries["add_kernel"]
    image.placed(address)           # the bytes, for that address

What LLVM makes for 64-bit code that may lie anywhere is few kinds of sections and references
(`relocations.py`). The sections of code and of constants come one after the other; behind them,
for each symbol from outside that is called, a *stub* that jumps to it, for it may be too far away
for a call; and behind these the *slots*, each holding the address of a symbol. So only slots, and
words that are told to hold an address, depend on where the bytes lie or where functions are.

A file that needs more than this (variables, threads' own variables, kinds of references that are
not known here) is `Unsupported`, and LLVM's linker takes it. One that contradicts itself is an
error. Format: the System V ABI, and its supplements for x86-64 and AArch64.
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
_RELOCATABLE = 1  # type of file
_PROGRAM_BITS, _SYMBOLS, _RELA, _NOTE, _REL = 1, 2, 4, 7, 9  # types of sections
_UNWIND = 0x70000001  # the type of .eh_frame on x86-64
_WRITE, _ALLOCATED, _CODE, _THREAD = 1, 2, 4, 0x400  # flags of sections
_FIRST_RESERVED = 0xFF00  # numbers of sections from here on mean something else
_GLOBAL, _WEAK = 1, 2  # bindings of symbols
_PLAIN_TYPES = (0, 1, 2, 3)  # types of symbols: untold, an object, a function, a section
_PAGE = 4096
_MOST_BYTES = 1 << 27  # as far as a call reaches on AArch64


class Unsupported(Exception):
    """The file may be sound, but holds what is not known here."""


class Malformed(RuntimeError):
    """The bytes are no sound object file for this use; says why."""


class Section(NamedTuple):
    """A section's header, and its name."""

    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int


class Symbol(NamedTuple):
    """A symbol: its section (0: it is from outside) and its place in it."""

    name: str
    binding: int
    type: int
    section: int
    value: int


class Image(NamedTuple):
    """Linked code.

    content: the bytes, for address 0.
    entries: where the functions that were asked for begin.
    words: where in `content` there are places, to which the address is to be added.
    """

    content: bytes
    entries: dict[str, int]
    words: list[int]

    @property
    def size(self) -> int:
        return len(self.content)

    def placed(self, address: int) -> bytes:
        """The bytes, for an address."""
        if not self.words:
            return self.content
        content = bytearray(self.content)
        for at in self.words:
            put_word(content, at, address + int.from_bytes(content[at : at + 8], "little"))
        return bytes(content)


def is_elf(code: bytes) -> bool:
    """Whether this begins like an ELF file of 64 bits, little-endian."""
    return code[: len(_IDENTITY)] == _IDENTITY


def link(code: bytes, names: Sequence[str], find: Find, machine: str) -> Image:
    """The code of an object file, linked.

    Args:
        code: the file.
        names: the functions whose places are wanted.
        find: the address of a symbol from outside; None where there is none.
        machine: the processor's family, as `platform.machine` names it.

    Raises:
        Unsupported: another linker must do it.
        Malformed: the file is damaged, or for another machine, or a symbol is missing.
    """
    try:
        return _Linker(_File(code, machine), find).link(names)
    except (struct.error, IndexError, UnicodeDecodeError, UnsupportedObject) as error:
        raise Malformed(f"the object file is damaged: {error}") from None


class _File:
    """The tables of an object file."""

    def __init__(self, code: bytes, machine: str) -> None:
        self.code = code
        if not is_elf(code):
            raise Malformed("the bytes are no 64-bit little-endian ELF file")
        header = _HEADER.unpack_from(code)
        known = MACHINES.get(machine)
        if known is None:
            raise Unsupported(f"code for {machine}")
        if header[1] != _RELOCATABLE or header[2] != known.number:
            raise Malformed(f"the object file is not one to be linked for {machine}")
        self.machine = known
        table, size, count, names = header[6], header[11], header[12], header[13]
        if size != _SECTION.size:
            raise Malformed("the object file's table of sections has another format")
        raw = [_SECTION.unpack_from(code, table + i * size) for i in range(count)]
        at = raw[names][4]
        self.sections = [
            Section(self._text(at + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], r[8]) for r in raw
        ]
        tables = [s for s in self.sections if s.type == _SYMBOLS]
        if len(tables) != 1:
            raise Malformed(f"the object file has {len(tables)} tables of symbols")
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
        """Place, kind, symbol's number and addend of each reference in a section."""
        for table in self.sections:
            if table.info != number or table.type not in (_RELA, _REL):
                continue
            if table.type == _REL:
                raise Unsupported("references without addends")
            for place, info, addend in _RELOCATION.iter_unpack(self.content(table)):
                if place >= self.sections[number].size:
                    raise Malformed(
                        "the object file is damaged: a reference lies behind its section"
                    )
                yield place, info & 0xFFFFFFFF, info >> 32, addend


def _is_loaded(section: Section) -> bool:
    """Whether a section belongs in memory. What unwinds stacks is left out: nobody looks for it."""
    if not section.flags & _ALLOCATED or not section.size or section.type == _NOTE:
        return False
    if section.type == _UNWIND or section.name == ".eh_frame":
        return False
    constant = not section.flags & _WRITE or section.name.startswith(".data.rel.ro")
    if section.type != _PROGRAM_BITS or section.flags & _THREAD or not constant:
        raise Unsupported(f"a section like {section.name}")
    return True


class _Linker:
    """Puts the sections of a file one after the other, and fills in what refers to something."""

    def __init__(self, file: _File, find: Find) -> None:
        self._file, self._find = file, find
        self._content = bytearray()
        self._places: dict[int, int] = {}  # of sections, by number
        self._words: list[int] = []
        self._slots: dict[int, int] = {}  # of symbols, by number
        self._stubs: dict[int, int] = {}

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
            raise Unsupported(f"references of kind {number}")
        return kind

    def _make_stubs(self, found: list[tuple[int, Kind, int, int]]) -> None:
        """Make a stub for each outer symbol that is called, and a slot for each that needs one."""
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
            raise Malformed(f"the code refers to {symbol.name!r}, which is nowhere in this process")
        return address or 0

    def _inner(self, number: int) -> int:
        """Where a symbol of the file lies."""
        symbol = self._file.symbols[number]
        if symbol.section == 0 or symbol.section >= _FIRST_RESERVED:
            raise Unsupported(f"{symbol.name!r} outside of what was made with it")
        if symbol.section not in self._places or symbol.type not in _PLAIN_TYPES:
            raise Unsupported(f"a symbol like {symbol.name!r}")
        if symbol.value > self._file.sections[symbol.section].size:
            raise Malformed(f"the object file is damaged: {symbol.name!r} lies behind its section")
        return self._places[symbol.section] + symbol.value

    def _entry(self, name: str) -> int:
        for number, symbol in enumerate(self._file.symbols):
            if symbol.name == name and symbol.binding in (_GLOBAL, _WEAK) and symbol.section:
                return self._inner(number)
        raise Malformed(f"the object file has no function {name!r}")

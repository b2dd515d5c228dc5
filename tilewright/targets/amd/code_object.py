"""A linker: the object file of a kernel → the code object that the runtime loads (hsaco).

    hsaco = link(compile_text(llvm, chip)[1])

A code object is a shared library in ELF. Its loader reads the kernels' descriptors (symbols
``NAME.kd``) through the symbol tables, maps the segments, and relocates nothing: all references
within are relative to the place. Layout, each segment on pages of its own in memory:

    file header, program headers, .note, .dynsym, .hash, .dynstr, read-only data | code | .dynamic

followed by the parts that are not loaded: the complete symbol table, and names. Linear in the
file's size.

Formats: System V ABI; LLVM, "User Guide for AMDGPU Backend", section "ELF Code Object".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tilewright.base.record import field, record
from tilewright.targets.amd import elf
from tilewright.targets.amd.elf import ObjectFile, Relocation, Section, Symbol

PAGE = 4096

# Relocations, as (offset from the place, bytes, bits to the right) of what is written there.
_RELATIVE = {4: (4, 0), 5: (8, 0), 10: (4, 0), 11: (4, 32)}  # R_AMDGPU_REL32, _REL64, _LO, _HI

_SHARED_LIBRARY = 3  # ET_DYN
_CURRENT = 1  # EV_CURRENT
_LOAD, _DYNAMIC, _NOTE, _HEADERS, _STACK = 1, 2, 4, 6, 0x6474E551  # PT_*
_RUN, _WRITE, _READ = 1, 2, 4  # PF_*
_TAGS = {"hash": 4, "strings": 5, "symbols": 6, "strings size": 10, "symbol size": 11}  # DT_*


class LinkError(ValueError):
    """An object file uses what this linker does not support."""


@record(frozen=False)
class _Placed:
    """A section of the result.

    Attributes:
        offset, address: in the file, and in memory relative to the start of the image.
        link: the name of the section that it refers to.
        info: see the ELF format; of a symbol table, the number of local symbols.
        row: the size of an entry of a table.
    """

    name: str
    kind: int
    flags: int
    align: int
    content: bytearray
    link: str = ""
    info: int = 0
    row: int = 0
    offset: int = 0
    address: int = 0


@record(frozen=False)
class _Strings:
    """A table of strings under construction."""

    content: bytearray = field(default_factory=lambda: bytearray(1))

    def add(self, text: str) -> int:
        """The offset of a string."""
        at = len(self.content)
        self.content += text.encode() + b"\0"
        return at


def link(data: bytes) -> bytes:
    """The code object of an object file.

    Raises:
        LinkError: it has writable data, undefined symbols, or relocations that are not relative.
    """
    file = ObjectFile(data)
    symbols = file.symbols()
    kept = _loaded(file)
    image = _Image(kept, [s for s in symbols if s.section in kept and s.name])
    image.place()
    for index, relocation in file.relocations():
        if index in kept:
            _relocate(kept, kept[index], relocation, symbols[relocation.symbol])
    return image.written(file)


def _loaded(file: ObjectFile) -> dict[int, _Placed]:
    """The sections with code and data, by their index."""
    result: dict[int, _Placed] = {}
    for index, section in enumerate(file.sections):
        if not section.flags & elf.LOADS or not section.content:
            continue
        if section.flags & elf.WRITES or section.kind not in (elf.PROGRAM_BITS, elf.NOTE):
            raise LinkError(f"a code object can't have the section {section.name}: it is writable")
        result[index] = _placed(section)
    return result


def _placed(section: Section) -> _Placed:
    flags = section.flags & (elf.LOADS | elf.RUNS)
    return _Placed(
        section.name, section.kind, flags, max(1, section.align), bytearray(section.content)
    )


def _relocate(
    kept: dict[int, _Placed], section: _Placed, relocation: Relocation, symbol: Symbol
) -> None:
    if symbol.section not in kept:
        raise LinkError(f"the symbol {symbol.name!r} is not defined")
    if relocation.kind not in _RELATIVE:
        raise LinkError(f"relocation {relocation.kind} of {symbol.name!r} is not relative")
    size, shift = _RELATIVE[relocation.kind]
    target = kept[symbol.section].address + symbol.value + relocation.addend
    value = (target - section.address - relocation.offset) >> shift
    place = slice(relocation.offset, relocation.offset + size)
    section.content[place] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


class _Image:
    """The result under construction.

    Args:
        kept: the sections of the object file.
        symbols: those that are defined there; global ones are those that the loader finds.
    """

    def __init__(self, kept: dict[int, _Placed], symbols: list[Symbol]) -> None:
        self.kept = kept
        self.locals = [s for s in symbols if s.binding == elf.LOCAL]
        self.globals = [s for s in symbols if s.binding != elf.LOCAL]
        rest = list(kept.values())
        notes = [s for s in rest if s.kind == elf.NOTE]
        code = [s for s in rest if s.flags & elf.RUNS]
        data = [s for s in rest if s not in notes and s not in code]
        self.tables = {s.name: s for s in self._tables()}
        loaded = [self.tables[name] for name in (".dynsym", ".hash", ".dynstr")]
        self.segments = (
            ([*notes, *loaded, *data], _READ),
            (code, _READ | _RUN),
            ([self.tables[".dynamic"]], _READ | _WRITE),
        )
        self.rest = [self.tables[name] for name in (".symtab", ".shstrtab", ".strtab")]
        self.notes = notes

    @property
    def sections(self) -> list[_Placed]:
        """All sections but the empty one, in the order of the file."""
        return [*(s for segment, _ in self.segments for s in segment), *self.rest]

    def _tables(self) -> Iterable[_Placed]:
        """The sections that describe the others, with their final sizes."""
        self.strings, self.all_strings = _Strings(), _Strings()
        self.dynamic_names = [self.strings.add(s.name) for s in self.globals]
        every = [*self.locals, *self.globals]
        self.names = [self.all_strings.add(s.name) for s in every]
        loads, row = elf.LOADS, elf.SYMBOL.size
        size = row * (1 + len(self.globals))
        yield _Placed(
            *(".dynsym", elf.DYNAMIC_SYMBOLS, loads, 8, bytearray(size), ".dynstr", 1, row)
        )
        table = _hash_table([s.name for s in self.globals])
        yield _Placed(".hash", elf.HASH, loads, 4, table, ".dynsym", 0, 4)
        yield _Placed(".dynstr", elf.STRINGS, loads, 1, self.strings.content)
        entries = bytearray(16 * (len(_TAGS) + 1))
        flags = loads | elf.WRITES
        yield _Placed(".dynamic", elf.DYNAMIC, flags, 8, entries, ".dynstr", 0, 16)
        size = row * (1 + len(every))
        local = 1 + len(self.locals)
        yield _Placed(".symtab", elf.SYMBOLS, 0, 8, bytearray(size), ".strtab", local, row)
        yield _Placed(".shstrtab", elf.STRINGS, 0, 1, bytearray())
        yield _Placed(".strtab", elf.STRINGS, 0, 1, self.all_strings.content)

    def place(self) -> None:
        """Assign offsets and addresses. Addresses exceed offsets by a page for each segment, so
        that no page of memory belongs to two of them."""
        at = elf.FILE_HEADER.size + 7 * elf.PROGRAM_HEADER.size
        for number, (segment, _) in enumerate(self.segments):
            for section in segment:
                at = _aligned(at, section.align)
                section.offset, section.address = at, at + number * PAGE
                at += len(section.content)
        self.end = at
        self._fill()

    def _fill(self) -> None:
        """Write the tables, whose contents depend on addresses."""
        indices = {id(section): i for i, section in enumerate(self.sections, 1)}

        def rows(symbols: Iterable[Symbol], names: Iterable[int]) -> bytearray:
            found = bytearray(elf.SYMBOL.size)
            for symbol, name in zip(symbols, names, strict=True):
                section = self.kept[symbol.section]
                address = section.address + symbol.value
                found += elf.SYMBOL.pack(
                    name, symbol.info, symbol.other, indices[id(section)], address, symbol.size
                )
            return found

        tables = self.tables
        tables[".dynsym"].content[:] = rows(self.globals, self.dynamic_names)
        tables[".symtab"].content[:] = rows([*self.locals, *self.globals], self.names)
        values = {
            "hash": tables[".hash"].address,
            "strings": tables[".dynstr"].address,
            "symbols": tables[".dynsym"].address,
            "strings size": len(self.strings.content),
            "symbol size": elf.SYMBOL.size,
        }
        entries = [struct.pack("<QQ", _TAGS[name], value) for name, value in values.items()]
        tables[".dynamic"].content[:] = b"".join([*entries, bytes(16)])

    def written(self, file: ObjectFile) -> bytes:
        """The file."""
        names = _Strings()
        sections = self.sections
        offsets = [names.add(section.name) for section in sections]
        self.tables[".shstrtab"].content[:] = names.content
        at = self.end
        for section in self.rest:
            at = _aligned(at, section.align)
            section.offset = at
            at += len(section.content)
        headers_at = _aligned(at, 8)
        indices = {section.name: i for i, section in enumerate(sections, 1)}
        found = bytearray(headers_at)
        found += bytes(elf.SECTION_HEADER.size)
        for section, name in zip(sections, offsets, strict=True):
            size = len(section.content)
            found[section.offset : section.offset + size] = section.content
            found += elf.SECTION_HEADER.pack(
                *(name, section.kind, section.flags, section.address, section.offset, size),
                *(indices.get(section.link, 0), section.info, section.align, section.row),
            )
        programs = self._program_headers()
        header = elf.FILE_HEADER.pack(
            *(file.identity, _SHARED_LIBRARY, file.machine, _CURRENT, 0),
            *(elf.FILE_HEADER.size, headers_at, file.flags, elf.FILE_HEADER.size),
            *(elf.PROGRAM_HEADER.size, len(programs), elf.SECTION_HEADER.size),
            *(len(sections) + 1, indices[".shstrtab"]),
        )
        start = header + b"".join(programs)
        found[: len(start)] = start
        return bytes(found)

    def _program_headers(self) -> list[bytes]:
        begin, size = elf.FILE_HEADER.size, 7 * elf.PROGRAM_HEADER.size
        result = [_header(_HEADERS, _READ, begin, begin, size, 8)]
        for number, (segment, access) in enumerate(self.segments):
            first = segment[0].offset if number else 0
            end = segment[-1].offset + len(segment[-1].content)
            result.append(_header(_LOAD, access, first, first + number * PAGE, end - first, PAGE))
        dynamic = self.tables[".dynamic"]
        extent = dynamic.offset, dynamic.address, len(dynamic.content)
        result.append(_header(_DYNAMIC, _READ | _WRITE, *extent, 8))
        result.append(_header(_STACK, _READ | _WRITE, 0, 0, 0, 0))
        first = self.notes[0].offset if self.notes else 0
        size = sum(len(note.content) for note in self.notes)
        result.append(_header(_NOTE, _READ, first, first, size, 4))
        return result


def _header(kind: int, access: int, offset: int, address: int, size: int, align: int) -> bytes:
    return elf.PROGRAM_HEADER.pack(kind, access, offset, address, address, size, size, align)


def _aligned(at: int, align: int) -> int:
    return -(-at // align) * align


def _hash_table(names: list[str]) -> bytearray:
    """The System V hash table of the symbols with these names, which follow the empty one."""
    count = max(1, len(names))
    buckets, chains = [0] * count, [0] * (len(names) + 1)
    for index, name in enumerate(names, 1):
        bucket = _hash(name) % count
        buckets[bucket], chains[index] = index, buckets[bucket]
    words = (count, len(chains), *buckets, *chains)
    return bytearray(struct.pack(f"<{len(words)}I", *words))


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value

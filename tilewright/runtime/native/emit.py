"""The native code of a launch as bytes that run at any address. Loads LLVM."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import llvmlite.binding as llvm

from tilewright.runtime.native.expand import expand

# Offsets in a 64-bit ELF file's header, and the records of its sections and symbols (elf.h).
_ELF_HEAD = b"\x7fELF\x02\x01"
_SECTION_TABLE_AT = 40
_SECTION_COUNTS_AT = 58
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOLS, _RELOCATIONS = 2, (4, 9)  # section types


class Code(NamedTuple):
    """Machine code without references.

    text: the bytes.
    entries: where each function begins in them.
    """

    text: bytes
    entries: dict[str, int]


def assemble(text: str, names: tuple[str, ...], triple: str = "") -> Code:
    """Machine code of a module that refers to nothing outside it.

    Args:
        text: of the `.ll` files.
        names: the functions that will be called.
        triple: of the machine, this one by default.

    Raises:
        ValueError: the code has references, or the machine's object files are not 64-bit ELF.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(triple or llvm.get_process_triple())
    # Level 1 takes 0.17 s in all, once for a machine; level 0 a fifth of that, but then a launch of
    # many arguments takes a third more. Nothing else is optimised: passes may put in calls of the C
    # library.
    machine = target.create_target_machine(opt=1, reloc="pic", codemodel="default")
    module = llvm.parse_assembly(expand(text), llvm.create_context())
    module.triple = machine.triple
    module.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=0)
    passes.run(module, llvm.create_pass_builder(machine, options))
    return extract(machine.emit_object(module), names)


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def extract(image: bytes, names: tuple[str, ...]) -> Code:
    """The code of a relocatable object file, which is all in one section."""
    if image[:6] != _ELF_HEAD:
        raise ValueError("the object file is not a 64-bit little-endian ELF file")
    (start,) = struct.unpack_from("<Q", image, _SECTION_TABLE_AT)
    size, count, _ = struct.unpack_from("<HHH", image, _SECTION_COUNTS_AT)
    sections = [_Section(*_SECTION.unpack_from(image, start + i * size)) for i in range(count)]
    symbols = dict(_symbols(image, sections))
    (index,) = {symbols[name][0] for name in names}
    if any(s.type in _RELOCATIONS and s.info == index for s in sections):
        raise ValueError("the code refers to something by name")
    text = sections[index]
    entries = {name: symbols[name][1] for name in names}
    return Code(image[text.offset : text.offset + text.size], entries)


def _symbols(image: bytes, sections: list[_Section]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each symbol's name, the number of its section, and its offset there."""
    for table in sections:
        if table.type != _SYMBOLS:
            continue
        names = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, _, _, section, value, _ = _SYMBOL.unpack_from(image, at)
            text = image[names + name : image.index(0, names + name)]
            yield text.decode(), (section, value)

"""The code object is a shared library that loaders accept: headers, symbols, descriptor, note."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.targets.amd.sources import WAVE_32, WAVE_64, add, compiled, total
from tilewright.targets.amd import elf
from tilewright.targets.amd.code_object import PAGE, LinkError, link
from tilewright.targets.amd.elf import ObjectFile
from tilewright.targets.amd.emit import compile_text, kernel_attributes
from tilewright.targets.amd.features import PROCESSORS, processor
from tilewright.targets.amd.kernel_note import kernels

TYPES = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}
LLVM_MACHINE = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F, "gfx1100": 0x41, "gfx1200": 0x48}


class Segment(NamedTuple):
    """A program header."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    size: int
    memory: int
    align: int


def made(arch: str = WAVE_64) -> bytes:
    hsaco = compiled(add, TYPES, arch, 4, BLOCK=1024).asm["hsaco"]
    assert isinstance(hsaco, bytes)
    return hsaco


def segments(data: bytes) -> list[Segment]:
    header = elf.FILE_HEADER.unpack_from(data)
    start, size, count = header[5], header[9], header[10]
    return [Segment(*elf.PROGRAM_HEADER.unpack_from(data, start + size * i)) for i in range(count)]


def sections(data: bytes) -> dict[str, tuple[Any, ...]]:
    """The header of each section by name."""
    header = elf.FILE_HEADER.unpack_from(data)
    names = [s.name for s in ObjectFile(data).sections]
    rows = elf.SECTION_HEADER.iter_unpack(data[header[6] : header[6] + 64 * header[12]])
    return dict(zip(names, rows, strict=True))


def memory_of(data: bytes) -> bytearray:
    """The image as a loader maps it."""
    loads = [s for s in segments(data) if s.kind == 1]
    image = bytearray(max(s.address + s.memory for s in loads))
    for s in loads:
        image[s.address : s.address + s.size] = data[s.offset : s.offset + s.size]
    return image


@pytest.mark.parametrize("arch", PROCESSORS)
def test_file_header_names_the_processor_and_the_abi(arch: str) -> None:
    data = made(arch)
    identity, kind, machine, *_, flags = elf.FILE_HEADER.unpack_from(data)[:8]
    assert identity[:9] == b"\x7fELF\x02\x01\x01\x40\x03"  # AMDGPU_HSA, version 5 of the ABI
    assert (kind, machine, flags & 0xFF) == (3, 224, LLVM_MACHINE[arch])


@pytest.mark.parametrize("arch", [WAVE_64, WAVE_32])
def test_segments_can_be_mapped_by_pages(arch: str) -> None:
    loads = [s for s in segments(made(arch)) if s.kind == 1]
    assert [s.flags for s in loads] == [4, 5, 6]
    for s in loads:
        assert s.align == PAGE
        assert s.offset % PAGE == s.address % PAGE
    pages = [set(range(s.address // PAGE, (s.address + s.memory - 1) // PAGE + 1)) for s in loads]
    assert not pages[0] & pages[1]
    assert not pages[1] & pages[2]
    data = made(arch)
    for name, (_, _, flags, address, offset, size, *_) in sections(data).items():
        if flags & elf.LOADS:
            assert any(
                s.address <= address and address + size <= s.address + s.memory for s in loads
            ), name
            assert memory_of(data)[address : address + size] == data[offset : offset + size], name


def test_descriptor_leads_to_the_code() -> None:
    data = made()
    symbols = {s.name: s for s in ObjectFile(data).symbols()}
    kernel, descriptor = symbols["add"], symbols["add.kd"]
    image = memory_of(data)
    (entry,) = struct.unpack_from("<q", image, descriptor.value + 16)
    assert descriptor.value + entry == kernel.value
    assert kernel.value % 256 == 0
    assert descriptor.value % 64 == 0
    assert descriptor.size == 64
    lds, scratch, arguments = struct.unpack_from("<III", image, descriptor.value)
    assert (lds, scratch, arguments) == (0, 0, 28)


def test_dynamic_section_leads_to_all_symbols_by_hash() -> None:
    data = made()
    image, table = memory_of(data), sections(data)
    address, size = table[".dynamic"][3], table[".dynamic"][5]
    tags = dict(struct.iter_unpack("<QQ", image[address : address + size]))
    buckets, chains = struct.unpack_from("<II", image, tags[4])
    assert chains == 3
    words = struct.unpack_from(f"<{buckets + chains}I", image, tags[4] + 8)
    found: set[str] = set()
    for first in words[:buckets]:
        index = first
        while index:
            (name,) = struct.unpack_from("<I", image, tags[6] + 24 * index)
            start = tags[5] + name
            found.add(image[start : image.index(0, start)].decode())
            index = words[buckets + index]
    assert found == {"add", "add.kd"}


@pytest.mark.parametrize("arch", PROCESSORS)
def test_note_describes_the_kernel(arch: str) -> None:
    kernel = compiled(add, TYPES, arch, 4, BLOCK=1024)
    (about,) = kernels(kernel.asm["hsaco"])  # type: ignore[arg-type]
    assert about[".name"] == "add"
    assert about[".symbol"] == "add.kd"
    assert about[".wavefront_size"] == kernel.metadata.warp_size
    assert about[".max_flat_workgroup_size"] == 4 * kernel.metadata.warp_size
    assert [a[".offset"] for a in about[".args"]] == [0, 8, 16, 24]
    assert [a[".value_kind"] for a in about[".args"]] == ["global_buffer"] * 3 + ["by_value"]
    assert about[".vgpr_count"] == kernel.metadata.n_regs
    assert about[".kernarg_segment_size"] == kernel.metadata.kernarg_bytes == 28


def test_shared_memory_is_part_of_the_descriptor() -> None:
    kernel = compiled(total, {"x_ptr": "*fp32", "out_ptr": "*fp32"}, WAVE_64, 4, BLOCK=1024)
    (about,) = kernels(kernel.asm["hsaco"])  # type: ignore[arg-type]
    assert about[".group_segment_fixed_size"] == kernel.metadata.shared > 0


@pytest.mark.skipif(not shutil.which("llvm-readelf"), reason="needs llvm-readelf")
def test_llvm_reads_it_without_warnings(tmp_path: Path) -> None:
    path = tmp_path / "add.hsaco"
    path.write_bytes(made("gfx90a"))
    command = ["llvm-readelf", "--all", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "warning" not in done.stderr
    assert "amdgcn-amd-amdhsa--gfx90a" in done.stdout


KERNEL = "define amdgpu_kernel void @k(ptr addrspace(1) %p) #0 {{\n{body}\n  ret void\n}}\n{rest}"


def object_of(body: str, rest: str = "") -> bytes:
    rest += f"\nattributes #0 = {{ {kernel_attributes(64)} }}\n"
    return compile_text(KERNEL.format(body=body, rest=rest), processor(WAVE_64))[1]


def test_constants_are_reached_from_the_code() -> None:
    numbers = ", ".join(f"i64 {n * n}" for n in range(64))
    data = link(
        object_of(
            "  %i = load i64, ptr addrspace(1) %p\n"
            "  %a = getelementptr i64, ptr addrspace(4) @t, i64 %i\n"
            "  %x = load i64, ptr addrspace(4) %a\n"
            "  store i64 %x, ptr addrspace(1) %p",
            f"@t = private unnamed_addr addrspace(4) constant [64 x i64] [{numbers}], align 64",
        )
    )
    image = memory_of(data)
    table = struct.pack("<64Q", *(n * n for n in range(64)))
    at = image.index(table)
    code = next(s for s in ObjectFile(data).symbols() if s.name == "k")
    # s_getpc_b64 yields the address of what follows it, to which the two halves are added.
    words = struct.unpack_from(f"<{code.size // 4}I", image, code.value)
    start = next(i for i, word in enumerate(words) if word & 0xFF80FF00 == 0xBE801C00)
    offset = struct.unpack_from("<i", image, code.value + 4 * (start + 2))[0]
    assert code.value + 4 * (start + 1) + offset == at


@pytest.mark.parametrize(
    ("body", "rest", "message"),
    [
        ("  call void @f()", "declare void @f()", "the symbol 'f' is not defined"),
        (
            "  store i32 1, ptr addrspace(1) @g",
            "@g = internal addrspace(1) global i32 7",
            "is writable",
        ),
    ],
)
def test_what_cannot_be_linked_is_an_error(body: str, rest: str, message: str) -> None:
    with pytest.raises(LinkError, match=message):
        link(object_of(body, rest))


def test_other_data_is_no_object_file() -> None:
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF file"):
        ObjectFile(b"MZ" + bytes(100))
    data = bytearray(made())
    data[data.index(b".note\0") : data.index(b".note\0") + 5] = b".xxxx"
    with pytest.raises(ValueError, match="no note"):
        kernels(bytes(data))

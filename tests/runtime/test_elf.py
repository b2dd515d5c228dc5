"""Linking object code without LLVM: each relocation; what is rejected or left to LLVM."""

import ctypes
import platform
import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

from tilewright.base import machine_code
from tilewright.base.machine_code import MachineCode, symbol_of_process
from tilewright.runtime.devices import code as device_code
from tilewright.runtime.devices import elf
from tilewright.runtime.devices.code import LoadedCode
from tilewright.runtime.devices.elf import Image, Malformed, Unsupported, link
from tilewright.runtime.devices.relocations import MACHINES, UnsupportedObject

HERE = platform.machine().lower()
FAMILIES = ("x86_64", "aarch64")

# A constant, constants that are found through a table of addresses, a table of jumps, functions
# inside and outside, a variable outside, and one that may be missing.
EVERYTHING = """
@table = private constant [2 x ptr] [ptr @small, ptr @large]
@numbers = private constant [4 x i32] [i32 11, i32 22, i32 33, i32 44]
@outer_number = external global i64
@nowhere = extern_weak global i64
declare double @fmod(double, double)
declare i64 @outside(i64)

define internal i64 @small(i64 %x) noinline {
  %r = add i64 %x, 1
  ret i64 %r
}
define internal i64 @large(i64 %x) noinline {
  %r = call i64 @outside(i64 %x)
  ret i64 %r
}
define double @constants(double %x) {
  %y = fmul double %x, 3.25
  %z = call double @fmod(double %y, double 10.0)
  ret double %z
}
define i64 @by_table(i64 %i, i64 %x) {
  %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %i
  %f = load ptr, ptr %p
  %r = call i64 %f(i64 %x)
  ret i64 %r
}
define i32 @number(i64 %i) {
  %p = getelementptr [4 x i32], ptr @numbers, i64 0, i64 %i
  %r = load i32, ptr %p
  ret i32 %r
}
define i64 @outer() {
  %r = load i64, ptr @outer_number
  %s = ptrtoint ptr @nowhere to i64
  %t = add i64 %r, %s
  ret i64 %t
}
define i64 @jumps(i64 %i, i64 %x) {
  switch i64 %i, label %other [
    i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e
  ]
a:
  %ra = mul i64 %x, 7
  ret i64 %ra
b:
  %rb = call i64 @outside(i64 %x)
  ret i64 %rb
c:
  %rc = xor i64 %x, 21
  ret i64 %rc
d:
  %rd = lshr i64 %x, 2
  ret i64 %rd
e:
  %re = call i64 @small(i64 %x)
  ret i64 %re
other:
  ret i64 -1
}
"""
NAMES = ["constants", "by_table", "number", "outer", "jumps"]


def compiled(text: str, family: str = HERE, model: str = "default") -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(f"{family}-unknown-linux-gnu")
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel=model)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = machine.triple
    module.verify()
    return machine.emit_object(module)


def returning(value: int) -> str:
    return f"define i64 @f() {{\n ret i64 {value}\n}}"


def called(address: int, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *map(type, arguments))(address)(*arguments)


class Outer:
    """What the code above refers to."""

    def __init__(self) -> None:
        self.number = ctypes.c_int64(1 << 40)
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
        self.function = kind(lambda x: x * 100)
        self.addresses = {
            "outer_number": ctypes.addressof(self.number),
            "outside": ctypes.cast(self.function, ctypes.c_void_p).value or 0,
        }

    def find(self, name: str) -> int | None:
        return self.addresses.get(name, symbol_of_process(name))


@pytest.fixture
def outer() -> Outer:
    return Outer()


@pytest.fixture
def without_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("LLVM was called")

    monkeypatch.setattr(device_code.llvm, "link", fail)


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The objects that LLVM was given to link."""
    found: list[bytes] = []
    by_llvm = device_code.llvm.link

    def reported(code: bytes, *rest: Any) -> Any:
        found.append(code)
        return by_llvm(code, *rest)

    monkeypatch.setattr(device_code.llvm, "link", reported)
    return found


# -- what it links --------------------------------------------------------------------------------


@pytest.mark.skipif(HERE not in MACHINES, reason="no such code is linked for this processor")
def test_relocations_of_every_kind_resolve(outer: Outer, without_llvm: None) -> None:
    loaded = LoadedCode(compiled(EVERYTHING), NAMES, outer.addresses)
    i64 = ctypes.c_int64
    constants = called(loaded["constants"], ctypes.c_double, ctypes.c_double(7.0))
    assert constants == 22.75 % 10
    assert [called(loaded["number"], ctypes.c_int32, i64(i)) for i in range(4)] == [11, 22, 33, 44]
    assert [called(loaded["by_table"], i64, i64(i), i64(5)) for i in range(2)] == [6, 500]
    jumps = [called(loaded["jumps"], i64, i64(i), i64(40)) for i in range(6)]
    assert jumps == [280, 4000, 40 ^ 21, 10, 41, -1]
    assert called(loaded["outer"], i64) == 1 << 40


@pytest.mark.parametrize("family", FAMILIES)
def test_relocations_are_independent_of_the_load_address(family: str, outer: Outer) -> None:
    """Only the listed words depend on the load address."""
    image = link(compiled(EVERYTHING, family), NAMES, outer.find, family)
    assert len(image.words) == 2  # the table's
    one, other = image.placed(1 << 20), image.placed(1 << 32)
    assert len(one) == image.size
    differing = {i & ~7 for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b}
    assert differing == set(image.words)


# Relocations by the architectures' manuals: machine, kind, address of the word,
# target, what is there before, what is there after.
CASES: list[tuple[str, int, int, int, str, str]] = [
    ("x86_64", 2, 0x10, 0x4, "00000000", "f4ffffff"),
    ("x86_64", 4, 0x10, 0x1000, "00000000", "f00f0000"),
    ("x86_64", 9, 0x10, 0x30, "00000000", "20000000"),
    ("x86_64", 24, 0x10, 0x8, "0" * 16, "f8ffffffffffffff"),
    ("x86_64", 41, 0x10, 0x30, "00000000", "20000000"),
    ("x86_64", 42, 0x10, 0x30, "00000000", "20000000"),
    ("aarch64", 260, 0x10, 0x8, "0" * 16, "f8ffffffffffffff"),
    ("aarch64", 261, 0x10, 0x4, "00000000", "f4ffffff"),
    ("aarch64", 275, 0x0FFC, 0x1000, "00000090", "000000b0"),  # adrp x0, one page on
    ("aarch64", 275, 0x1004, 0x0123, "00000090", "e0fffff0"),  # adrp x0, one page back
    ("aarch64", 275, 0x0, 0x7000, "00000090", "200000f0"),  # adrp x0, seven pages on
    ("aarch64", 277, 0x0, 0x5123, "00000091", "008c0491"),  # add x0, x0, #0x123
    ("aarch64", 278, 0x0, 0x5001, "00004039", "00044039"),  # ldrb w0, [x0, #1]
    ("aarch64", 284, 0x0, 0x5002, "00004079", "00044079"),  # ldrh w0, [x0, #2]
    ("aarch64", 285, 0x0, 0x5004, "000040b9", "000440b9"),  # ldr w0, [x0, #4]
    ("aarch64", 286, 0x0, 0x5008, "000040f9", "000440f9"),  # ldr x0, [x0, #8]
    ("aarch64", 299, 0x0, 0x5010, "0000c03d", "0004c03d"),  # ldr q0, [x0, #16]
    ("aarch64", 282, 0x10, 0xC, "00000014", "ffffff17"),  # b back by 4
    ("aarch64", 283, 0x10, 0x18, "00000094", "02000094"),  # bl on by 8
    ("aarch64", 311, 0x0, 0x1008, "00000090", "000000b0"),  # adrp x0, one page on
    ("aarch64", 312, 0x0, 0x1008, "000040f9", "000440f9"),  # ldr x0, [x0, #8]
]


@pytest.mark.parametrize(("family", "number", "at", "target", "before", "after"), CASES)
def test_bytes_of_a_relocation(
    family: str, number: int, at: int, target: int, before: str, after: str
) -> None:
    content = bytearray(at + 16)
    size = len(before) // 2
    content[at : at + size] = bytes.fromhex(before)
    put = MACHINES[family].kinds[number].put
    assert put is not None
    put(content, at, target)
    assert content[at : at + size].hex() == after
    content[at : at + size] = bytes(size)
    assert not any(content)


def test_every_kind_has_a_case() -> None:
    addresses = {("x86_64", 1), ("aarch64", 257)}  # which the image's words are
    reported = {(family, number) for family, number, *_ in CASES} | addresses
    assert reported == {(f, number) for f in FAMILIES for number in MACHINES[f].kinds}


@pytest.mark.parametrize(
    ("number", "target"), [(283, 0x12), (283, 1 << 27), (286, 0x1004), (299, 0x1008), (285, 2)]
)
def test_relocation_out_of_range_is_rejected(number: int, target: int) -> None:
    put = MACHINES["aarch64"].kinds[number].put
    assert put is not None
    with pytest.raises(UnsupportedObject):
        put(bytearray(16), 0, target)


def test_stubs_of_aarch64_jump_through_their_slots(outer: Outer) -> None:
    image = link(compiled(EVERYTHING, "aarch64"), NAMES, outer.find, "aarch64")
    found = {place for place, _ in _jumps(image)}
    expected = {outer.find("outside"), outer.find("fmod")}
    assert {_word(image, place) for place in found} == expected


def _jumps(image: Image) -> Iterator[tuple[int, int]]:
    """The slot that each `adrp x16; ldr x16, [x16, …]; br x16` reads, and where that begins."""
    for at in range(0, image.size - 11, 4):
        first, second, third = struct.unpack_from("<3I", image.content, at)
        if first & 0x9F00001F == 0x90000010 and third == 0xD61F0200:
            pages = (first >> 5 & 0x7FFFF) << 2 | first >> 29 & 3
            yield (at & ~0xFFF) + (pages << 12) + (second >> 10 & 0xFFF) * 8, at


def _word(image: Image, at: int) -> int:
    return struct.unpack_from("<Q", image.content, at)[0]


# -- rejected objects -----------------------------------------------------------------------------

VARIABLE = """
@count = internal global i64 40
define i64 @f() {
  %old = atomicrmw add ptr @count, i64 2 seq_cst
  %new = load i64, ptr @count
  ret i64 %new
}"""
FAR = """
@c = internal constant i64 42
define i64 @f() {
  %r = load volatile i64, ptr @c
  ret i64 %r
}"""
BY_LLVM = {
    "a variable": (VARIABLE, "default"),
    "another kind of reference": (FAR, "large"),
}


@pytest.mark.skipif(HERE != "x86_64", reason="LLVM's large code is of x86-64")
@pytest.mark.parametrize("what", BY_LLVM)
def test_unknown_relocations_are_linked_by_llvm(what: str, requested: list[bytes]) -> None:
    text, model = BY_LLVM[what]
    code = compiled(text, model=model)
    with pytest.raises(Unsupported):
        link(code, ["f"], lambda _: 0, HERE)
    loaded = LoadedCode(code, ["f"])
    assert requested == [code]
    assert called(loaded["f"], ctypes.c_int64) == 42


def test_where_files_of_code_cannot_be_mapped_llvm_links(
    requested: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(1, "no memory for machine code")

    monkeypatch.setattr(machine_code, "_map", fail)
    loaded = LoadedCode(compiled(returning(7)), ["f"])
    assert len(requested) == 1
    assert called(loaded["f"], ctypes.c_int64) == 7


def test_unknown_kinds_and_families_are_not_supported() -> None:
    code = bytearray(compiled(EVERYTHING, "x86_64"))
    call = struct.pack("<II", 4, _number_of(code, "outside"))  # R_X86_64_PLT32
    struct.pack_into("<I", code, code.index(call), 99)
    with pytest.raises(Unsupported, match="type 99"):
        link(bytes(code), NAMES, lambda _: 1, "x86_64")
    wide = FAR.replace("i64 42", "i64 42, align 8192")
    with pytest.raises(Unsupported, match="an alignment of 8192"):
        link(compiled(wide, "x86_64"), ["f"], lambda _: 1, "x86_64")
    with pytest.raises(Unsupported, match="riscv64"):
        link(bytes(code), NAMES, lambda _: 1, "riscv64")
    with pytest.raises(Malformed, match="not a relocatable object file for aarch64"):
        link(bytes(code), NAMES, lambda _: 1, "aarch64")


def _number_of(code: bytearray, name: str) -> int:
    """The number of a symbol, in the object's one table of them."""
    symbols = elf._File(bytes(code), "x86_64").symbols
    return next(number for number, symbol in enumerate(symbols) if symbol.name == name)


def test_missing_symbols_are_named() -> None:
    text = (
        "declare i64 @tw_nowhere()\ndefine i64 @f() {\n %r = call i64 @tw_nowhere()\n ret i64 %r\n}"
    )
    with pytest.raises(RuntimeError, match="'tw_nowhere', which is undefined"):
        LoadedCode(compiled(text), ["f"])
    with pytest.raises(RuntimeError, match="no function 'g'"):
        LoadedCode(compiled(returning(1)), ["g"])


@pytest.mark.parametrize("family", FAMILIES)
def test_truncated_objects_are_rejected(family: str) -> None:
    code = compiled(EVERYTHING, family)
    for end in (*range(80), *range(80, len(code) - 64, 37)):
        with pytest.raises(Malformed):
            link(code[:end], NAMES, lambda _: 1, family)


@pytest.mark.parametrize("family", FAMILIES)
def test_altered_objects_are_linked_or_rejected(family: str) -> None:
    """For any bytes, nothing else is raised, and nothing is written outside."""
    code, chance, rejected = compiled(EVERYTHING, family), random.Random(5), 0
    for _ in range(600):
        altered = bytearray(code)
        for _ in range(chance.randint(1, 3)):
            altered[chance.randrange(len(code))] = chance.randrange(256)
        try:
            image = link(bytes(altered), NAMES, lambda _: 1, family)
            assert all(0 <= at <= image.size - 8 for at in image.words)
        except (Malformed, Unsupported):
            rejected += 1
    assert rejected > 50


# -- memory ---------------------------------------------------------------------------------------


def _mapping(address: int) -> str | None:
    """The line of /proc/self/maps that holds an address."""
    for line in Path("/proc/self/maps").read_text("utf-8").splitlines():
        found = re.match(r"(\w+)-(\w+) ", line)
        if found and int(found[1], 16) <= address < int(found[2], 16):
            return line
    return None


@pytest.mark.skipif(not machine_code.can_hold_code(), reason="code is held otherwise here")
def test_code_is_never_writable_and_freed_with_its_owner(without_llvm: None) -> None:
    loaded = LoadedCode(compiled(returning(3)), ["f"])
    address = loaded["f"]
    mapping = _mapping(address)
    assert mapping is not None
    assert mapping.split()[1] == "r-xs"
    del loaded
    assert _mapping(address) is None


@pytest.mark.skipif(not machine_code.can_hold_code(), reason="code is held otherwise here")
def test_loading_leaks_nothing(without_llvm: None) -> None:
    def counts() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text("utf-8").count("\n")
        return maps, len(list(Path("/proc/self/fd").iterdir()))

    code = compiled(EVERYTHING)
    addresses = Outer().addresses
    LoadedCode(code, NAMES, addresses)
    before = counts()
    for _ in range(300):
        LoadedCode(code, NAMES, addresses)
    after = counts()
    assert after[0] <= before[0] + 8  # the heap's, which may grow by other things
    assert after[1] == before[1]


@pytest.mark.skipif(not machine_code.can_hold_code(), reason="code is held otherwise here")
def test_failed_loading_leaks_no_memory() -> None:
    def fail(address: int) -> bytes:
        assert _mapping(address) is not None
        found.append(address)
        raise ValueError("no code")

    found: list[int] = []
    with pytest.raises(ValueError, match="no code"):
        MachineCode(100, fail)
    assert _mapping(found[0]) is None

"""ELF relocations of position-independent code on x86-64 and AArch64.

`MACHINES` has, for each architecture, a table from relocation types to a `Kind`: what the
relocation refers to, and a function that encodes it. Names and formulas are those of the x86-64
psABI and of "ELF for the Arm 64-bit Architecture":

    P   offset of the relocated field        S + A   offset of the target plus the addend

Both are relative to the start of the image, which is aligned to a page: PC-relative values and
offsets within a page therefore do not depend on the image's address.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

Put = Callable[[bytearray, int, int], None]
"""Encodes a relocated field; arguments: the image, P, and S + A."""

_PAGE = 0xFFF


class UnsupportedObject(Exception):
    """A relocation is out of range, or its field lies outside of the image."""


Way = Literal["place", "call", "slot", "address"]
"""The target of a relocation: "place", the symbol itself, which must be in the image; "call", the
symbol, or its stub if it is external; "slot", the slot with the symbol's address (GOT entry);
"address", the symbol's absolute address in 8 bytes."""


class Kind(NamedTuple):
    """A relocation type. `put` is None for "address", which the linker writes itself."""

    way: Way
    put: Put | None = None


class Stub(NamedTuple):
    """Code that jumps to the address in a slot (a PLT entry): its size and its encoder."""

    size: int
    put: Put


class Machine(NamedTuple):
    """An architecture: its e_machine, its relocation types by number, and its stub."""

    number: int
    kinds: dict[int, Kind]
    stub: Stub


def _check(content: bytearray, at: int, size: int) -> None:
    if at + size > len(content):
        raise UnsupportedObject("a relocated field lies outside of the code")


def put_word(content: bytearray, at: int, value: int) -> None:
    """Write an address, 8 bytes."""
    _check(content, at, 8)
    struct.pack_into("<Q", content, at, value & (1 << 64) - 1)


def _put_relative(content: bytearray, at: int, target: int, *, format: str = "<i") -> None:
    _check(content, at, struct.calcsize(format))
    struct.pack_into(format, content, at, target - at)


# -- x86-64 ---------------------------------------------------------------------------------------


def _put_x86_stub(content: bytearray, at: int, slot: int) -> None:
    content[at : at + 2] = b"\xff\x25"  # jmp [rip + disp32], relative to the next instruction
    struct.pack_into("<i", content, at + 2, slot - (at + 6))


_X86_64 = Machine(
    62,
    {
        1: Kind("address"),  # R_X86_64_64
        2: Kind("place", _put_relative),  # R_X86_64_PC32
        4: Kind("call", _put_relative),  # R_X86_64_PLT32
        9: Kind("slot", _put_relative),  # R_X86_64_GOTPCREL
        24: Kind("place", partial(_put_relative, format="<q")),  # R_X86_64_PC64
        41: Kind("slot", _put_relative),  # R_X86_64_GOTPCRELX
        42: Kind("slot", _put_relative),  # R_X86_64_REX_GOTPCRELX
    },
    Stub(8, _put_x86_stub),
)

# -- AArch64 --------------------------------------------------------------------------------------


def _put_bits(content: bytearray, at: int, bits: int) -> None:
    """Set an immediate field of an instruction, whose bits are zero before."""
    _check(content, at, 4)
    (word,) = struct.unpack_from("<I", content, at)
    struct.pack_into("<I", content, at, word | bits)


def _put_branch(content: bytearray, at: int, target: int) -> None:
    distance = target - at
    if distance % 4 or not -(1 << 27) <= distance < 1 << 27:
        raise UnsupportedObject("a branch target is out of range or misaligned")
    _put_bits(content, at, distance >> 2 & (1 << 26) - 1)


def _put_page(content: bytearray, at: int, target: int) -> None:
    """ADRP: distance in pages, 21 bits: immlo (2 bits) at bit 29, immhi (19 bits) at bit 5."""
    pages = (target >> 12) - (at >> 12)
    _put_bits(content, at, (pages & 3) << 29 | (pages >> 2 & (1 << 19) - 1) << 5)


def _put_in_page(content: bytearray, at: int, target: int, *, shift: int = 0) -> None:
    """ADD, LDR, STR: offset in the page in units of 1 << shift bytes, 12 bits at bit 10."""
    low = target & _PAGE
    if low & (1 << shift) - 1:
        raise UnsupportedObject("the target of a load or store is misaligned")
    _put_bits(content, at, low >> shift << 10)


def _put_arm_stub(content: bytearray, at: int, slot: int) -> None:
    # adrp x16, slot; ldr x16, [x16, slot]; br x16. x16 (IP0) is reserved for such veneers.
    struct.pack_into("<3I", content, at, 0x90000010, 0xF9400210, 0xD61F0200)
    _put_page(content, at, slot)
    _put_in_page(content, at + 4, slot, shift=3)


_AARCH64 = Machine(
    183,
    {
        257: Kind("address"),  # R_AARCH64_ABS64
        260: Kind("place", partial(_put_relative, format="<q")),  # R_AARCH64_PREL64
        261: Kind("place", _put_relative),  # R_AARCH64_PREL32
        275: Kind("place", _put_page),  # R_AARCH64_ADR_PREL_PG_HI21
        277: Kind("place", _put_in_page),  # R_AARCH64_ADD_ABS_LO12_NC
        278: Kind("place", _put_in_page),  # R_AARCH64_LDST8_ABS_LO12_NC
        282: Kind("call", _put_branch),  # R_AARCH64_JUMP26
        283: Kind("call", _put_branch),  # R_AARCH64_CALL26
        284: Kind("place", partial(_put_in_page, shift=1)),  # R_AARCH64_LDST16_ABS_LO12_NC
        285: Kind("place", partial(_put_in_page, shift=2)),  # R_AARCH64_LDST32_ABS_LO12_NC
        286: Kind("place", partial(_put_in_page, shift=3)),  # R_AARCH64_LDST64_ABS_LO12_NC
        299: Kind("place", partial(_put_in_page, shift=4)),  # R_AARCH64_LDST128_ABS_LO12_NC
        311: Kind("slot", _put_page),  # R_AARCH64_ADR_GOT_PAGE
        312: Kind("slot", partial(_put_in_page, shift=3)),  # R_AARCH64_LD64_GOT_LO12_NC
    },
    Stub(12, _put_arm_stub),
)

MACHINES = {"x86_64": _X86_64, "amd64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}
"""Architectures by the names of `platform.machine`, in lower case."""

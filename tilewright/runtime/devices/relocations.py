"""The references that LLVM leaves in 64-bit code that may lie anywhere: x86-64 and AArch64.

A reference is a place in the code, a symbol, and a number to add. Its *kind* says what of the
symbol is meant, and how the bytes at the place hold it. In the table of each machine, by the kind's
number: what the psABI of x86-64 and "ELF for the Arm 64-bit Architecture" call it stands beside it.

    P   the place           S + A   the symbol's place (or its stub's, its slot's) and the addend

All three count from the beginning of the code, which a page begins with.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

Put = Callable[[bytearray, int, int], None]
"""Fills in a reference: the code, P, and S + A."""

_PAGE = 0xFFF


class UnsupportedObject(Exception):
    """A reference cannot be as the file tells it."""


Way = Literal["place", "call", "slot", "address"]
"""What of the symbol a reference means: where it is, which is within the code; where it is, or a
stub that jumps there; the slot that holds its address; its address, as a word of 8 bytes."""


class Kind(NamedTuple):
    """A kind of reference. `put` is None for an address."""

    way: Way
    put: Put | None = None


class Stub(NamedTuple):
    """What jumps to the address in a slot: its bytes' number, and what writes it at a place."""

    size: int
    put: Put


class Machine(NamedTuple):
    """A processor's family: its number in ELF files, its kinds of references, its stubs."""

    number: int
    kinds: dict[int, Kind]
    stub: Stub


def _check(content: bytearray, at: int, size: int) -> None:
    if at + size > len(content):
        raise UnsupportedObject("a reference lies outside of the code")


def put_word(content: bytearray, at: int, value: int) -> None:
    """Write an address, 8 bytes."""
    _check(content, at, 8)
    struct.pack_into("<Q", content, at, value & (1 << 64) - 1)


def _put_relative(content: bytearray, at: int, target: int, *, format: str = "<i") -> None:
    _check(content, at, struct.calcsize(format))
    struct.pack_into(format, content, at, target - at)


# -- x86-64 ---------------------------------------------------------------------------------------


def _put_x86_stub(content: bytearray, at: int, slot: int) -> None:
    content[at : at + 2] = b"\xff\x25"  # jmp [rip + …], which counts from the end
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
    """Add bits to an instruction, which has zeros there."""
    _check(content, at, 4)
    (word,) = struct.unpack_from("<I", content, at)
    struct.pack_into("<I", content, at, word | bits)


def _put_branch(content: bytearray, at: int, target: int) -> None:
    distance = target - at
    if distance % 4 or not -(1 << 27) <= distance < 1 << 27:
        raise UnsupportedObject("a branch goes where branches do not reach")
    _put_bits(content, at, distance >> 2 & (1 << 26) - 1)


def _put_page(content: bytearray, at: int, target: int) -> None:
    """How many pages away: 21 bits, the lowest two at bit 29, the others at bit 5."""
    pages = (target >> 12) - (at >> 12)
    _put_bits(content, at, (pages & 3) << 29 | (pages >> 2 & (1 << 19) - 1) << 5)


def _put_in_page(content: bytearray, at: int, target: int, *, shift: int = 0) -> None:
    """Where in its page, in units of 1 << shift bytes: 12 bits at bit 10."""
    low = target & _PAGE
    if low & (1 << shift) - 1:
        raise UnsupportedObject("what is loaded is not where such loads can be")
    _put_bits(content, at, low >> shift << 10)


def _put_arm_stub(content: bytearray, at: int, slot: int) -> None:
    # adrp x16, slot; ldr x16, [x16, slot]; br x16: x16 is there for this
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
"""By the names that `platform.machine` has for them, in lower case."""

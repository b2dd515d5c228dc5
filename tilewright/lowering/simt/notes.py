"""Facts that emitters record about a kernel, for the vendor's code generation (`Kernel.notes`).

Those of the emitters that all GPUs share are here; targets have others, of types of their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import Enum, auto
from typing import NamedTuple


class CarriedRegisters(NamedTuple):
    """The values that a loop carries occupy so many 32-bit registers of a thread."""

    registers: int


class Note(Enum):
    """A fact without a number."""

    HANDS_REGISTERS = auto()
    """Warps hand registers to others."""
    BEGINS_EARLY = auto()
    """A launch may begin before the preceding one has completed."""


def carried_registers(notes: Iterable[Hashable]) -> int:
    """The most 32-bit registers of a thread that the values carried by a loop occupy."""
    return max((note.registers for note in notes if isinstance(note, CarriedRegisters)), default=0)

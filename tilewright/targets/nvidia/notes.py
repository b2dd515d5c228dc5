"""Facts that emitters of this target record about a kernel, for its assembly, in addition to those
of `lowering/simt/notes.py`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import Enum, auto
from typing import NamedTuple


class PtxVersion(NamedTuple):
    """An instruction requires a version of PTX, major * 10 + minor."""

    version: int


class TensorColumns(NamedTuple):
    """A program allocates columns of tensor memory."""

    columns: int


class HeldRegisters(NamedTuple):
    """The number of registers that a thread holds at once: the result of a product, which
    instructions write as a whole, and the live loop-carried values."""

    registers: int


class Waits(Enum):
    """The code waits in each iteration of a loop."""

    FOR_PRODUCTS = auto()
    """A loop over the slots of a copying warp completes its products in each iteration."""


def tensor_columns(notes: Iterable[Hashable]) -> int:
    """The columns of tensor memory that a program allocates."""
    return sum(note.columns for note in notes if isinstance(note, TensorColumns))


def held_registers(notes: Iterable[Hashable]) -> int:
    """The most registers that a thread is known to hold at once."""
    return max((note.registers for note in notes if isinstance(note, HeldRegisters)), default=0)


def ptx_version(notes: Iterable[Hashable]) -> int:
    """The minimum PTX version of the instructions; 0 if the architecture's suffices."""
    return max((note.version for note in notes if isinstance(note, PtxVersion)), default=0)

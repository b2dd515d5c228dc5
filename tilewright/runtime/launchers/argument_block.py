"""Memory for the arguments of a launch, as the drivers of GPUs read them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

EXTENTS = ctypes.c_uint64 * 3

SLOT_BYTES = 8


class ArgumentBlock:
    """Memory for the arguments of one launch, and the array of pointers that the driver reads.

    Args:
        count: of arguments.
        maps: of tensor maps, which are parameters after the arguments.
        extents: whether the extents of the grid are a parameter after these.

    Attributes:
        slots: the arguments' bytes, which must be assigned as a whole.
        scratch: the slot after the arguments, with the address of scratch memory.
        extents: the extents of the grid, if the kernel takes them.
        parameters: address of the array of pointers to the slots.
    """

    __slots__ = ("_count", "_pointers", "_room", "extents", "parameters", "scratch", "slots")

    def __init__(self, count: int, maps: int = 0, *, extents: bool = False) -> None:
        self._count = count
        self._room = bytearray(SLOT_BYTES * (count + 1))
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._room))
        addresses = range(start, start + SLOT_BYTES * (count + 1), SLOT_BYTES)
        self._pointers = (ctypes.c_void_p * (count + 1 + maps + extents))(*addresses)
        self.slots = memoryview(self._room)[: SLOT_BYTES * count]
        self.scratch = ctypes.c_uint64.from_buffer(self._room, SLOT_BYTES * count)
        self.extents = EXTENTS()
        if extents:
            self._pointers[count + maps] = ctypes.addressof(self.extents)
        self.parameters = ctypes.addressof(self._pointers)

    def put_maps(self, addresses: Sequence[int]) -> None:
        """Pass tensor maps, by their addresses, after the arguments."""
        self._pointers[self._count : self._count + len(addresses)] = addresses


class ArgumentBlocks:
    """The blocks of a kernel's launches: a free list.

    Concurrent launches, and one in a signal handler that interrupts another, each take their own;
    pop and append of a list are atomic. The arguments are those of `ArgumentBlock`.
    """

    __slots__ = ("_count", "_extents", "_free", "_maps")

    def __init__(self, count: int, maps: int = 0, *, extents: bool = False) -> None:
        self._count, self._maps, self._extents = count, maps, extents
        self._free: list[ArgumentBlock] = []

    def take(self) -> ArgumentBlock:
        """A block that no other launch uses until it is released."""
        try:
            return self._free.pop()
        except IndexError:
            return ArgumentBlock(self._count, self._maps, extents=self._extents)

    def give_back(self, block: ArgumentBlock) -> None:
        self._free.append(block)

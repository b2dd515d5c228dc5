"""The memory of the device: a separate address space, which the host cannot access."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.interpret import Buffer
from tilewright_npu.machine import ALIGNMENT

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
FIRST = 1 << 44  # no address of the host is as low or as high as those of the device
SPACING = 1 << 32


class DeviceFault(RuntimeError):
    """An access outside of the device's memory."""


class Allocation:
    """Memory of the device."""

    def __init__(self, memory: Memory, address: int, size: int) -> None:
        self._memory, self.address = memory, address
        self.bytes: Bytes = np.full(size, 0xEE, np.uint8)

    def free(self) -> None:
        self._memory.release(self.address)

    def __del__(self) -> None:
        self.free()


class Memory:
    """All allocations, by address. An address is a handle and an offset.

    Attributes:
        cycles: of the last launch.
    """

    def __init__(self) -> None:
        self._bytes: dict[int, Bytes] = {}
        self._next = FIRST
        self.cycles = 0

    def allocate(self, size: int) -> Allocation:
        """Memory until the end of the result."""
        found = Allocation(self, self._next, -(-size // ALIGNMENT) * ALIGNMENT)
        self._bytes[found.address] = found.bytes
        self._next += SPACING
        return found

    def release(self, address: int) -> None:
        self._bytes.pop(address, None)

    def find(self, low: int, high: int) -> tuple[Bytes, int]:
        """The bytes of the allocation that holds a range, and the offset of the range in them.

        Raises:
            DeviceFault: no allocation holds it.
        """
        handle = low - low % SPACING
        found = self._bytes.get(handle)
        if found is None or high > handle + len(found) or low > high:
            raise DeviceFault(f"no allocation holds the addresses from {low:#x} to {high:#x}")
        return found, low - handle

    def buffers(self) -> list[Buffer]:
        """The allocations for microprograms that access memory."""
        return [
            Buffer(address, (address, address + len(data)), image=data.ctypes.data, owner=data)
            for address, data in self._bytes.items()
        ]


MEMORY = Memory()
"""The memory of the only device."""

"""Host copies of tensors on other devices, for the interpreter.

    mirrors = Mirrors([tensor, other])
    buffer = mirrors.buffer_of(tensor)  # for `ir/interpret.py`: device addresses, host bytes
    mirrors.write_back()                # copy modified memory back to the device

The kernel sees device addresses, so address-dependent behaviour, such as pointers stored in memory,
is preserved. Overlapping tensors share one copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir.memory import Array, Buffer
from tilewright.runtime.driver import driver_of
from tilewright.runtime.tensors import CPU, UNKNOWN, extent_of, read


class _Mirror(NamedTuple):
    """A mirrored range: its device address, its original bytes, and its current bytes."""

    device: str
    start: int
    before: Array
    now: Array


class Mirrors:
    """Copies of the memory of tensors that are not on the CPU, made on construction.

    Args:
        tensors: tensors on any devices; those on the CPU are not copied.

    Raises:
        TypeError: the extent of a tensor's memory is unknown.
        DeviceError: memory cannot be read.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        self._mirrors: list[_Mirror] = []
        self._extents: dict[int, tuple[int, int]] = {}
        extents: list[tuple[str, int, int]] = []
        for tensor in tensors:
            address, _, device, *_ = read(tensor)
            if device == CPU:
                continue
            low, high = extent_of(tensor, address)
            self._extents[id(tensor)] = low, high
            extents.append((device, low, high))
        for device, start, stop in _joined(extents):
            now = np.empty(stop - start, np.uint8)
            _driver(device).read_memory(_index(device), start, now)
            self._mirrors.append(_Mirror(device, start, now.copy(), now))

    def buffer_of(self, tensor: Any) -> Buffer:
        """The memory reachable through a tensor, which must be one of those passed to the
        constructor or on the CPU."""
        address, _, _, low, high, writable = read(tensor)
        copied = self._extents.get(id(tensor))
        if copied is None:
            extent = (low, high) if low != UNKNOWN else None
            return Buffer(address, extent, writable, owner=tensor)
        low, high = copied
        image = None
        for mirror in self._mirrors:
            if mirror.start <= low < high <= mirror.start + len(mirror.now):
                image = mirror.now.ctypes.data + low - mirror.start
        return Buffer(address, copied, writable, image=image, owner=tensor)

    def write_back(self) -> None:
        """Copy modified memory back to the devices."""
        for mirror in self._mirrors:
            changed = np.flatnonzero(mirror.now != mirror.before)
            if len(changed):
                first, last = int(changed[0]), int(changed[-1])
                part = mirror.now[first : last + 1]
                driver = _driver(mirror.device)
                driver.write_memory(_index(mirror.device), mirror.start + first, part)


def _joined(extents: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The non-empty extents, with overlapping ones merged."""
    joined: list[tuple[str, int, int]] = []
    for device, start, stop in sorted(e for e in extents if e[1] < e[2]):
        if joined and joined[-1][0] == device and start < joined[-1][2]:
            joined[-1] = device, joined[-1][1], max(stop, joined[-1][2])
        else:
            joined.append((device, start, stop))
    return joined


def _driver(device: str) -> Any:
    return driver_of(device.partition(":")[0])


def _index(device: str) -> int:
    return int(device.partition(":")[2] or 0)

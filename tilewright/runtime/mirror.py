"""Copies, in this process, of what tensors hold on other devices: for kernels that are interpreted.

    mirrors = Mirrors([tensor, other])
    buffer = mirrors.buffer_of(tensor)  # for `ir/interpret.py`: the device's addresses, our bytes
    mirrors.write_back()                # what changed goes back to the device

A kernel sees the addresses that it would see on the device, so what depends on them, such as
pointers kept in memory, is as it is there. Tensors that overlap share one copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir.memory import Array, Buffer
from tilewright.runtime.driver import driver_of
from tilewright.runtime.tensors import CPU, UNKNOWN, extent_of, read


class _Mirror(NamedTuple):
    """Bytes of a device: where they begin there, what they were, and what they are now."""

    device: str
    start: int
    before: Array
    now: Array


class Mirrors:
    """What some tensors hold on other devices than the CPU, copied when this is made.

    Args:
        tensors: on any devices; those on the CPU need no copy.

    Raises:
        TypeError: a tensor does not say how large its memory is.
        DeviceError: memory cannot be read.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        self._mirrors: list[_Mirror] = []
        self._extents: dict[int, tuple[int, int]] = {}
        wanted: list[tuple[str, int, int]] = []
        for tensor in tensors:
            address, _, device, *_ = read(tensor)
            if device == CPU:
                continue
            low, high = extent_of(tensor, address)
            self._extents[id(tensor)] = low, high
            wanted.append((device, low, high))
        for device, start, stop in _joined(wanted):
            now = np.empty(stop - start, np.uint8)
            _driver(device).read_memory(_index(device), start, now)
            self._mirrors.append(_Mirror(device, start, now.copy(), now))

    def buffer_of(self, tensor: Any) -> Buffer:
        """The memory that a kernel may reach through a tensor, one of those given or on the CPU."""
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
        """Store on the devices what has changed since it was copied."""
        for mirror in self._mirrors:
            changed = np.flatnonzero(mirror.now != mirror.before)
            if len(changed):
                first, last = int(changed[0]), int(changed[-1])
                part = mirror.now[first : last + 1]
                driver = _driver(mirror.device)
                driver.write_memory(_index(mirror.device), mirror.start + first, part)


def _joined(extents: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The extents that are not empty, with those that overlap made one."""
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

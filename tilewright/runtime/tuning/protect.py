"""Protection of arguments from trial runs: memory that a kernel may write is saved and restored.

    saved = Protection(limit)
    saved.add([tensor, other])      # before the first run that may write them
    saved.restore()                 # after each trial
    saved.free()

Copies are on the tensors' device if there is room, else in host memory. Tensors that overlap share
a copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tilewright.runtime import driver
from tilewright.runtime.drivers.protocol import Saved, SavedBytes
from tilewright.runtime.placement import leaves_of
from tilewright.runtime.tensors import CPU, UNKNOWN, extent_of, find_reader, read

SHARE = 0.5
"""The fraction of a device's free memory that copies may take."""


class Extent(NamedTuple):
    """A contiguous range of a device's memory; `stop` is exclusive."""

    device: str
    start: int
    stop: int


class CannotProtect(Exception):
    """There is no room for copies of the memory that a kernel writes, or its size is unknown."""


def written_tensors(metadata: Any, values: Iterable[Any]) -> list[Any]:
    """The tensors that a compiled kernel may write, among the values of all its parameters."""
    named = list(values)
    result: list[Any] = []
    for index in metadata.may_write:
        path, _ = metadata.arguments[index]
        value = named[path[0]]
        for step in path[1:]:
            value = value[step] if isinstance(value, tuple) else value
        result += [leaf for leaf in leaves_of(value) if find_reader(leaf) is not None]
    return result


class Protection:
    """Copies of the memory that trial runs may write.

    Args:
        limit: the maximum size in bytes of the copies on a device; 0 for half of its free memory.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._saved: dict[Extent, Saved] = {}

    def add(self, tensors: Iterable[Any]) -> None:
        """Copy the contents of tensors that have not been copied yet.

        Raises:
            CannotProtect: there is not enough room.
        """
        extents = [e for t in tensors if (e := _extent(t)) is not None]
        missing = [e for e in _joined(extents) if not self._covers(e)]
        for device in dict.fromkeys(e.device for e in missing):
            here = [e for e in missing if e.device == device]
            owner = _owner_for(device, sum(e.stop - e.start for e in here), self._limit)
            for extent in here:
                index = int(device.partition(":")[2] or 0)
                size = extent.stop - extent.start
                self._saved[extent] = owner(index, extent.start, size)

    def _covers(self, extent: Extent) -> bool:
        return any(
            have.device == extent.device and have.start <= extent.start and extent.stop <= have.stop
            for have in self._saved
        )

    def restore(self) -> None:
        """Restore all memory, latest copies first, so that the first copy of a byte prevails."""
        for saved in reversed(self._saved.values()):
            saved.restore()

    def free(self) -> None:
        """Free the copies."""
        for saved in self._saved.values():
            saved.free()
        self._saved.clear()


def _owner_for(device: str, size: int, limit: int) -> Any:
    """The constructor of copies with room for `size` bytes: on the device, or else on the host."""
    found: Any = driver.driver_of(device.partition(":")[0])
    index = int(device.partition(":")[2] or 0)
    save = getattr(found, "save_memory", None)
    if save is not None and size <= (limit or SHARE * found.free_memory(index)):
        return save
    if device != CPU and size <= (limit or SHARE * driver.driver_of(CPU).free_memory(0)):
        return lambda index, start, size: SavedBytes(found, index, start, size)
    raise CannotProtect(
        f"copies of what the kernel writes take {size / 2**20:.0f} MiB on {device}, more than "
        + (f"the setting allows ({limit / 2**20:.0f} MiB)" if limit else "half of what is free")
    )


def _extent(tensor: Any) -> Extent | None:
    """The memory that a kernel may write through a tensor; None if there is none."""
    address, _, device, low, high, writable = read(tensor)
    if device == "" or not writable:
        return None
    if low == UNKNOWN:
        try:
            low, high = extent_of(tensor, address)
        except TypeError as error:
            raise CannotProtect(str(error)) from None
    return Extent(device, low, high) if low < high else None


def _joined(extents: Iterable[Extent]) -> list[Extent]:
    """The extents, with overlapping ones merged."""
    joined: list[Extent] = []
    for extent in sorted(extents):
        last = joined[-1] if joined else None
        if last is not None and last.device == extent.device and extent.start < last.stop:
            joined[-1] = last._replace(stop=max(last.stop, extent.stop))
        else:
            joined.append(extent)
    return joined

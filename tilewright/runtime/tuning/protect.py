"""Arguments as they were before tuning: what trial runs of a kernel write is put back.

    saved = Protection(limit)
    saved.add([tensor, other])      # before the first run that may write them
    saved.restore()                 # after each trial
    saved.free()

Copies are on the tensors' own devices while they fit there, else in this process's memory. Tensors
that overlap share one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tilewright.runtime import driver
from tilewright.runtime.placement import leaves_of
from tilewright.runtime.tensors import CPU, UNKNOWN, extent_of, find_reader, read

SHARE = 0.5
"""The part of a device's free memory that copies may take."""


class Extent(NamedTuple):
    """Some adjoining bytes of a device."""

    device: str
    start: int
    stop: int


class CannotProtect(Exception):
    """There is no room for copies of what a kernel writes, or nobody says how large it is."""


def written_tensors(metadata: Any, values: Iterable[Any]) -> list[Any]:
    """The tensors that a compiled kernel may write, of the values of all its parameters."""
    named = list(values)
    found: list[Any] = []
    for index in metadata.may_write:
        path, _ = metadata.arguments[index]
        value = named[path[0]]
        for step in path[1:]:
            value = value[step] if isinstance(value, tuple) else value
        found += [leaf for leaf in leaves_of(value) if find_reader(leaf) is not None]
    return found


class Protection:
    """Copies of memory that trial runs write.

    Args:
        limit: the most bytes that copies take on a device; 0 for half of what is free there.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._saved: dict[Extent, driver.Saved] = {}

    def add(self, tensors: Iterable[Any]) -> None:
        """Copy what these tensors hold, where that has not been done.

        Raises:
            CannotProtect: it is more than there is room for.
        """
        wanted = [e for t in tensors if (e := _extent(t)) is not None]
        missing = [e for e in _joined(wanted) if not self._covers(e)]
        for device in dict.fromkeys(e.device for e in missing):
            here = [e for e in missing if e.device == device]
            owner = _owner_for(device, sum(e.stop - e.start for e in here), self._limit)
            for extent in here:
                index = int(device.partition(":")[2] or 0)
                size = extent.stop - extent.start
                self._saved[extent] = owner(index, extent.start, size)

    def _covers(self, wanted: Extent) -> bool:
        return any(
            have.device == wanted.device and have.start <= wanted.start and wanted.stop <= have.stop
            for have in self._saved
        )

    def restore(self) -> None:
        """Put back everything; what was saved first, last."""
        for saved in reversed(self._saved.values()):
            saved.restore()

    def free(self) -> None:
        """Give up the copies."""
        for saved in self._saved.values():
            saved.free()
        self._saved.clear()


def _owner_for(device: str, size: int, limit: int) -> Any:
    """What saves so many bytes of a device."""
    found: Any = driver.driver_of(device.partition(":")[0])
    index = int(device.partition(":")[2] or 0)
    save = getattr(found, "save_memory", None)
    if save is not None and size <= (limit or SHARE * found.free_memory(index)):
        return save
    if device != CPU and size <= (limit or SHARE * driver.available_memory()):
        return lambda index, start, size: driver.SavedBytes(found, index, start, size)
    raise CannotProtect(
        f"copies of what the kernel writes take {size / 2**20:.0f} MiB on {device}, more than "
        + (f"the setting allows ({limit / 2**20:.0f} MiB)" if limit else "half of what is free")
    )


def _extent(tensor: Any) -> Extent | None:
    """The memory that a kernel may write through a tensor; None where there is none."""
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
    """The extents, with those that overlap made one."""
    joined: list[Extent] = []
    for extent in sorted(extents):
        last = joined[-1] if joined else None
        if last is not None and last.device == extent.device and extent.start < last.stop:
            joined[-1] = last._replace(stop=max(last.stop, extent.stop))
        else:
            joined.append(extent)
    return joined

"""Timing by a GPU's events, allocations, and backup copies of device memory.

with EventClock(device(0), stream_of) as clock:
    start = clock.mark()
    ...                                     # launches on the stream
    clock.elapsed(start, clock.mark())      # ms
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

from tilewright.runtime.devices.gpu import Gpu

_DEFAULT_EVENT = 0  # the flags of an event with timing
_NOT_CAPTURING = 0  # the status of a stream that is not captured into a graph


class EventClock:
    """A `Clock` (see `runtime/clocks.py`) that records events on a device's current stream.

    Args:
        gpu: the device.
        stream_of: returns the handle of the stream that launches currently use.
    """

    is_devices_own = True

    def __init__(self, gpu: Gpu, stream_of: Callable[[], int]) -> None:
        self._gpu = gpu
        self._stream_of = stream_of
        self._events: list[int] = []
        self._flushed: DeviceMemory | None = None

    def __enter__(self) -> EventClock:
        return self

    def __exit__(self, *error: object) -> None:
        with self._gpu.current():
            for event in self._events:
                self._gpu.api.destroy_event(event)
        self._events.clear()
        if self._flushed is not None:
            self._flushed.free()
            self._flushed = None

    def mark(self) -> int:
        gpu, event = self._gpu, ctypes.c_void_p()
        with gpu.current():
            gpu.check(gpu.api.create_event(ctypes.byref(event), _DEFAULT_EVENT), "making an event")
            handle = event.value or 0
            self._events.append(handle)
            gpu.check(gpu.api.record_event(handle, self._stream_of()), "recording an event")
        return handle

    def elapsed(self, start: int, end: int) -> float:
        gpu, milliseconds = self._gpu, ctypes.c_float()
        with gpu.current():
            gpu.check(gpu.api.wait_for_event(end), f"waiting for {gpu.name}")
            status = gpu.api.elapsed_time(ctypes.byref(milliseconds), start, end)
            gpu.check(status, "comparing events")
        return milliseconds.value

    def synchronize(self) -> None:
        self._gpu.synchronize()

    def is_capturing(self) -> bool:
        gpu, status = self._gpu, ctypes.c_int()
        with gpu.current():
            found = gpu.api.is_capturing(self._stream_of(), ctypes.byref(status))
            gpu.check(found, "querying the state of the stream")
        return status.value != _NOT_CAPTURING

    def flush(self) -> None:
        stream = self._stream_of()
        if self._flushed is None:
            self._flushed = DeviceMemory(self._gpu, self._gpu.flush_bytes, stream)
        gpu = self._gpu
        with gpu.current():
            words = gpu.flush_bytes // 4
            status = gpu.api.fill_words(self._flushed.address, 0, words, stream)
            gpu.check(status, "clearing the cache")


class DeviceMemory:
    """An allocation of device memory, until `free` or the end of this object.

    Attributes:
        address: of its first byte; 0 after `free`.
    """

    def __init__(self, gpu: Gpu, size: int, stream: int) -> None:
        self._gpu = gpu
        self._stream = stream
        with gpu.current():
            self.address = gpu.allocate(size, stream)

    def free(self) -> None:
        """Free the memory once the work that precedes this call on its stream is complete."""
        if self.address and self._gpu.api.usable:
            with self._gpu.current():
                self._gpu.release(self.address, self._stream)
        self.address = 0

    def __del__(self) -> None:
        if not sys.is_finalizing() and getattr(self, "address", 0):
            self.free()


class SavedBytes:
    """A backup, in device memory, of a range of device memory.

    Args:
        address, size: the range, in bytes.
        stream_of: returns the handle of the stream on which the bytes are copied and restored.
    """

    def __init__(self, gpu: Gpu, address: int, size: int, stream_of: Callable[[], int]) -> None:
        self._gpu, self._address, self._size = gpu, address, size
        self._stream_of = stream_of
        self._copy = DeviceMemory(gpu, size, stream_of())
        self._move(self._copy.address, address)

    def restore(self) -> None:
        """Copy the saved bytes back."""
        self._move(self._address, self._copy.address)

    def free(self) -> None:
        self._copy.free()

    def _move(self, to: int, source: int) -> None:
        gpu = self._gpu
        with gpu.current():
            status = gpu.api.copy_on_device(to, source, self._size, self._stream_of())
            gpu.check(status, f"copying {self._size} bytes on {gpu.name}")

"""Timing by CUDA events, and backup copies of device memory, for benchmarks.

with CudaClock(device(0), stream) as clock:
    start = clock.mark()
    ...                                     # launches on the stream
    clock.elapsed(start, clock.mark())      # ms
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Final

from tilewright.runtime.devices.cuda import Device

FLUSH_BYTES: Final = 256 << 20
"""More than the L2 cache of any GPU."""

_DEFAULT_EVENT = 0  # of CUevent_flags: with timing
_NOT_CAPTURING = 0  # of CUstreamCaptureStatus


class CudaClock:
    """A `Clock` (see `runtime/clocks.py`) that records events on a device's current stream.

    Args:
        gpu: the device.
        stream_of: returns the CUstream that launches currently use.
    """

    is_devices_own = True

    def __init__(self, gpu: Device, stream_of: Callable[[], int]) -> None:
        self._gpu = gpu
        self._stream_of = stream_of
        self._events: list[int] = []
        self._flushed: DeviceMemory | None = None

    def __enter__(self) -> CudaClock:
        return self

    def __exit__(self, *error: object) -> None:
        with self._gpu.current():
            for event in self._events:
                self._gpu.api.cuEventDestroy_v2(event)
        self._events.clear()
        if self._flushed is not None:
            self._flushed.free()
            self._flushed = None

    def mark(self) -> int:
        gpu, event = self._gpu, ctypes.c_void_p()
        with gpu.current():
            gpu.check(gpu.api.cuEventCreate(ctypes.byref(event), _DEFAULT_EVENT), "making an event")
            handle = event.value or 0
            self._events.append(handle)
            gpu.check(gpu.api.cuEventRecord(handle, self._stream_of()), "recording an event")
        return handle

    def elapsed(self, start: int, end: int) -> float:
        gpu, milliseconds = self._gpu, ctypes.c_float()
        with gpu.current():
            gpu.check(gpu.api.cuEventSynchronize(end), f"waiting for {gpu.name}")
            status = gpu.api.cuEventElapsedTime(ctypes.byref(milliseconds), start, end)
            gpu.check(status, "comparing events")
        return milliseconds.value

    def synchronize(self) -> None:
        self._gpu.synchronize()

    def is_capturing(self) -> bool:
        gpu, status = self._gpu, ctypes.c_int()
        with gpu.current():
            found = gpu.api.cuStreamIsCapturing(self._stream_of(), ctypes.byref(status))
            gpu.check(found, "querying the state of the stream")
        return status.value != _NOT_CAPTURING

    def flush(self) -> None:
        stream = self._stream_of()
        if self._flushed is None:
            self._flushed = DeviceMemory(self._gpu, FLUSH_BYTES, stream)
        gpu = self._gpu
        with gpu.current():
            words = FLUSH_BYTES // 4
            status = gpu.api.cuMemsetD32Async(self._flushed.address, 0, words, stream)
            gpu.check(status, "clearing the cache")


class DeviceMemory:
    """A stream-ordered allocation of device memory, until `free` or the end of this object.

    Attributes:
        address: of its first byte; 0 after `free`.
    """

    def __init__(self, gpu: Device, size: int, stream: int) -> None:
        self._gpu = gpu
        self._stream = stream
        found = ctypes.c_void_p()
        with gpu.current():
            status = gpu.api.cuMemAllocAsync(ctypes.byref(found), size, stream)
            gpu.check(status, f"allocating {size} bytes on {gpu.name}")
        self.address: int = found.value or 0

    def free(self) -> None:
        """Free the memory once the work that precedes this call on its stream is complete."""
        if self.address and self._gpu.api.usable:
            with self._gpu.current():
                self._gpu.api.cuMemFreeAsync(self.address, self._stream)
        self.address = 0

    def __del__(self) -> None:
        if not sys.is_finalizing() and getattr(self, "address", 0):
            self.free()


class SavedBytes:
    """A backup, in device memory, of a range of device memory.

    Args:
        address, size: the range, in bytes.
        stream_of: returns the CUstream on which the bytes are copied and restored.
    """

    def __init__(self, gpu: Device, address: int, size: int, stream_of: Callable[[], int]) -> None:
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
            status = gpu.api.cuMemcpyDtoDAsync_v2(to, source, self._size, self._stream_of())
            gpu.check(status, f"copying {self._size} bytes on {gpu.name}")


def free_bytes(gpu: Device) -> int:
    """Free memory of a device, in bytes."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with gpu.current():
        status = gpu.api.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        gpu.check(status, f"asking for the free memory of {gpu.name}")
    return free.value

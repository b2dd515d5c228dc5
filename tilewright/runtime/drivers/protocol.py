"""The runtime interface of a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime.peaks import Peaks

Bytes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"
"""Contiguous bytes in this process."""


ALIGNMENT = 64
"""Of allocations, in bytes."""


class Saved(Protocol):
    """A backup of a memory range."""

    def restore(self) -> None:
        """Copy the bytes back."""
        ...

    def free(self) -> None:
        """Release the backup."""
        ...


@runtime_checkable
class Allocation(Protocol):
    """Memory of a device, until `free` or the end of this object."""

    @property
    def address(self) -> int:
        """The address of the first byte, a multiple of 64."""
        ...

    def free(self) -> None:
        """Release the memory once the work enqueued before this call is complete."""
        ...


class Driver(Protocol):
    """The runtime interface of a backend."""

    @property
    def device_type(self) -> str:
        """The prefix of its device names, which is also that of tensors for its kernels."""
        ...

    def is_active(self) -> bool:
        """Whether there is a usable device."""
        ...

    def get_current_target(self) -> GPUTarget:
        """The target of the current device."""
        ...

    def target_of(self, index: int) -> GPUTarget:
        """The target of a device. Raises ValueError if there is no device of this number."""
        ...

    def get_current_device(self) -> int:
        """Index of the current device, to which launches go."""
        ...

    def get_current_stream(self, index: int | None = None) -> int:
        """Handle of the current stream of a device."""
        ...

    def reaches(self, index: int, address: int) -> bool:
        """Whether kernels on a device can access the CPU memory at an address."""
        ...

    def allocate(self, index: int, size: int) -> Allocation:
        """Uninitialised memory of a device, of at least one byte."""
        ...

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        """Copy from the memory of a device, after all previously enqueued work."""
        ...

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        """Copy to the memory of a device."""
        ...

    def clock(self, index: int) -> Any:
        """A `Clock` (`runtime/clocks.py`) of a device, as a context manager."""
        ...

    def save_memory(self, index: int, address: int, size: int) -> Saved:
        """Back up a range of a device's memory, on the device."""
        ...

    def free_memory(self, index: int) -> int:
        """Free bytes in the memory of a device."""
        ...

    def describe(self, index: int) -> str:
        """A description of the kind of device: equal for devices with the same performance."""
        ...

    def peak_gbps(self, index: int) -> float:
        """Peak memory bandwidth of a device in GB/s."""
        ...

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        """Peak throughput in TFLOP/s for an element type, with or without matrix units, at a clock
        in kHz or the maximum clock. ValueError if not applicable."""
        ...

    def known_peaks(self, arch: int | str) -> Iterable[Peaks]:
        """The known limits of devices of an architecture ("" for the default), the default device
        first. They need not be present."""
        ...

    def get_benchmarker(self) -> Callable[..., Any]:
        """A function like `do_bench` for the current device."""
        ...

    def get_active_torch_device(self) -> Any:
        """The current device as a torch device."""
        ...


class HostMemory:
    """An allocation of CPU memory."""

    def __init__(self, size: int) -> None:
        self._bytes: Bytes | None = np.empty(size + ALIGNMENT, np.uint8)
        self.address: int = -(-self._bytes.ctypes.data // ALIGNMENT) * ALIGNMENT

    def free(self) -> None:
        self._bytes = None
        self.address = 0


class SavedBytes:
    """A backup, in this process, of a range of a device's memory."""

    def __init__(self, driver: Any, index: int, address: int, size: int) -> None:
        self._driver, self._index, self._address = driver, index, address
        self._copy = np.empty(size, np.uint8)
        driver.read_memory(index, address, self._copy)

    def restore(self) -> None:
        self._driver.write_memory(self._index, self._address, self._copy)

    def free(self) -> None:
        self._copy = np.empty(0, np.uint8)

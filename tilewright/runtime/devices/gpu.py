"""GPUs as devices, for all vendors: copies, synchronisation, errors of kernels; and the devices of
a process.

A vendor's module derives `Gpu`, and names in its API's `common` the driver's functions that are
called here (`driver_api.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Generic, TypeVar

from tilewright.base.diagnostics import DeviceError
from tilewright.base.locks import Lock
from tilewright.runtime.devices.driver_api import DriverApi

_DEVICE_POINTER = 3  # of CUpointer_attribute, and of hipPointer_attribute


class Gpu:
    """One GPU, used through its driver.

    Attributes:
        index, name: 0 and ``"cuda:0"``.
        last_kernel: the name of the kernel launched last, "" before the first.
    """

    failures: ClassVar[Mapping[int, str]]
    """What has happened, by the statuses of errors that kernels cause. They are reported by
    whichever call follows the kernel."""

    advice: ClassVar[str]
    """The end of such an error's message: how to find the kernel."""

    flush_bytes: ClassVar[int]
    """More than the caches of any GPU of the vendor."""

    def __init__(self, api: DriverApi, kind: str, index: int) -> None:
        self.api: Any = api
        self.index = index
        self.name = f"{kind}:{index}"
        self._last = ""
        count = device_count(api)
        if not 0 <= index < count:
            raise DeviceError(f"there is no device {self.name}: the driver sees {count}")

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def last_kernel(self) -> str:
        return self._last

    @last_kernel.setter
    def last_kernel(self, name: str) -> None:
        self._last = name

    def current(self) -> AbstractContextManager[None]:
        """Make the device the calling thread's current one inside the block."""
        raise NotImplementedError

    def make_current(self) -> None:
        """Make the device the calling thread's current one."""
        raise NotImplementedError

    # -- memory ---------------------------------------------------------------------------------

    def allocate(self, size: int, stream: int) -> int:
        """The address of new device memory, which work on a stream may use."""
        raise NotImplementedError

    def release(self, address: int, stream: int) -> None:
        """Free memory of `allocate` once the work that precedes this call on its stream is
        complete."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until all work on the device is complete.

        Raises:
            DeviceError: a kernel failed; the message names the kernel launched last.
        """
        with self.current():
            self.check(self.api.synchronize(), f"waiting for {self.name}")

    def read(self, address: int, to: int, size: int) -> None:
        """Wait for all work on the device, then copy bytes from it to an address in host memory.

        Raises:
            DeviceError: not all of the bytes are in device memory, or an earlier kernel failed.
        """
        self.synchronize()
        with self.current():
            doing = f"reading {size} bytes at {address:#x} of {self.name}"
            self.check(self.api.copy_to_host(to, address, size), doing)

    def write(self, address: int, source: int, size: int) -> None:
        """Copy bytes from an address in host memory to the device.

        Raises:
            DeviceError: not all of the destination is in device memory.
        """
        with self.current():
            doing = f"writing {size} bytes at {address:#x} of {self.name}"
            self.check(self.api.copy_to_device(address, source, size), doing)

    def reaches(self, address: int) -> bool:
        """Whether kernels on the device may dereference a host address: the memory is pinned or
        managed, and has the same address on host and device."""
        found = ctypes.c_uint64()
        with self.current():
            status = self.api.pointer_attribute(ctypes.byref(found), _DEVICE_POINTER, address)
        return status == 0 and found.value == address

    def free_bytes(self) -> int:
        """Free memory, in bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.current():
            status = self.api.memory_info(ctypes.byref(free), ctypes.byref(total))
            self.check(status, f"asking for the free memory of {self.name}")
        return free.value

    # -- errors ---------------------------------------------------------------------------------

    def check(self, status: int, doing: str) -> None:
        """Raise DeviceError for the status of a failed call; see `error`."""
        if status != 0:
            raise self.error(status, doing)

    def error(self, status: int, doing: str, hint: str = "") -> DeviceError:
        """The error for a failed call.

        Launches are asynchronous: the failure of a kernel is reported by a later, unrelated call.
        The error then says so and names the kernel launched last.
        """
        failure = self.failures.get(status)
        if failure is None:
            return self.api.error(status, doing, hint)
        last = f"The last one launched was `{self.last_kernel}`. " if self.last_kernel else ""
        message = (
            f"{doing}: {failure} on {self.name} ({self.api.error_name(status)}). Kernels run after "
            f"their launch returns, so it was started earlier. {last}{self.advice}"
        )
        return DeviceError(message, self.api.error_name(status))


AnyGpu = TypeVar("AnyGpu", bound=Gpu)


class Devices(Generic[AnyGpu]):
    """The devices of a vendor in this process: ``device(0)``, always the same object.

    Args:
        make: the device with an index.
    """

    def __init__(self, make: Callable[[int], AnyGpu]) -> None:
        self._make = make
        self._lock = Lock()
        self.found: dict[int, AnyGpu] = {}

    def __call__(self, index: int) -> AnyGpu:
        """The device with an index.

        Raises:
            DeviceError: there is no driver, or no such device.
        """
        result = self.found.get(index)
        if result is None:
            with self._lock:
                result = self.found.get(index)
                if result is None:
                    result = self.found[index] = self._make(index)
        return result


def device_count(api: Any) -> int:
    """The number of devices that are visible to a driver."""
    count = ctypes.c_int()
    api.check(api.count_devices(ctypes.byref(count)), "counting the devices")
    return count.value

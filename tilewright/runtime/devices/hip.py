"""AMD GPUs as devices: properties, kernels, memory and timing, through the HIP runtime.

    gpu = device(0)
    gpu.name, gpu.arch, gpu.lanes              # "hip:0", "gfx942", 64
    add = gpu.load(hsaco, "add")
    gpu.launch(add, (64, 1, 1), 256, stream, parameters)

Device indices are HIP's (after HIP_VISIBLE_DEVICES), as in torch. HIP has a current device for each
thread, which every call here restores.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from tilewright.base.diagnostics import DeviceError
from tilewright.base.locks import Lock
from tilewright.runtime.devices.hip_api import HipApi, connect, hip_torch

# Offsets of fields of hipDeviceProp_tR0600 (hip_runtime_api.h), in bytes. The name of the processor
# stands at its end, which differs between releases: it is found by its prefix.
_PROPERTIES_BYTES = 4096  # more than any release writes
_NAME, _MEMORY, _SHARED, _LANES, _CLOCK, _MULTIPROCESSORS = 0, 288, 296, 308, 348, 388
_FIRST_TEXT_AFTER_NAME = 256

_DEVICE_POINTER = 3  # of hipPointer_attribute

_KERNEL_FAILURES: Final = {
    700: "a kernel read or wrote an illegal address",
    710: "an assertion in a kernel failed",
    719: "a kernel failed",
}


class Device:
    """One GPU. There is one object per index; get it from `device`.

    Attributes:
        index, name: 0 and ``"hip:0"``.
        arch: its processor: ``"gfx942"``.
        product, lanes, shared_bytes, multiprocessors, memory, clock: product name, lanes of a wave,
            LDS of a program, compute units, bytes of memory, kHz.
        last_kernel: the name of the kernel launched last.
    """

    def __init__(self, api: HipApi, index: int) -> None:
        self.api, self.index, self.name = api, index, f"hip:{index}"
        self.last_kernel = ""
        count = device_count()
        if not 0 <= index < count:
            raise DeviceError(f"there is no device {self.name}: HIP sees {count}")
        raw = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        status = api.hipGetDevicePropertiesR0600(raw, index)
        api.check(status, f"asking about {self.name}")

        def number(offset: int, size: int = 4) -> int:
            return int.from_bytes(raw.raw[offset : offset + size], "little")

        self.product = raw.raw[_NAME:].partition(b"\0")[0].decode(errors="replace")
        rest = raw.raw[_FIRST_TEXT_AFTER_NAME:]
        place = rest.find(b"gfx")
        self.arch = (
            rest[place:].partition(b"\0")[0].decode().partition(":")[0] if place >= 0 else ""
        )
        self.memory, self.shared_bytes = number(_MEMORY, 8), number(_SHARED, 8)
        self.lanes, self.clock = number(_LANES), number(_CLOCK)
        self.multiprocessors = number(_MULTIPROCESSORS)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @contextmanager
    def current(self) -> Generator[None]:
        """Make it the calling thread's current device inside the block."""
        before = current_index()
        if before == self.index:
            yield
            return
        self.make_current()
        try:
            yield
        finally:
            self.api.hipSetDevice(before)  # unchecked: an error would mask that of the block

    def make_current(self) -> None:
        """Make it the calling thread's current device."""
        self.check(self.api.hipSetDevice(self.index), f"switching to {self.name}")

    def synchronize(self) -> None:
        """Wait until all work on the device is complete.

        Raises:
            DeviceError: a kernel failed; the message names the kernel launched last.
        """
        with self.current():
            self.check(self.api.hipDeviceSynchronize(), f"waiting for {self.name}")

    def check(self, status: int, doing: str) -> None:
        """Raise DeviceError for the status of a failed call.

        Launches are asynchronous: the failure of a kernel is reported by a later, unrelated call.
        """
        if status == 0:
            return
        failure = _KERNEL_FAILURES.get(status)
        if failure is None:
            raise self.api.error(status, doing)
        last = f"The last one launched was `{self.last_kernel}`. " if self.last_kernel else ""
        raise DeviceError(
            f"{doing}: {failure} on {self.name} ({self.api.error_name(status)}). Kernels run after "
            f"their launch returns, so it was started earlier. {last}With HIP_LAUNCH_BLOCKING=1 "
            "the launch at fault itself fails.",
            self.api.error_name(status),
        )

    # -- kernels --------------------------------------------------------------------------------

    def load(self, image: bytes, name: str) -> Function:
        """Load a kernel of a code object.

        Raises:
            DeviceError: HIP rejects the code object, or it has no such kernel.
        """
        return Function(self, image, name)

    # -- memory ---------------------------------------------------------------------------------

    def read(self, address: int, to: int, size: int) -> None:
        """Wait for all work on the device, then copy bytes from it to an address of the host."""
        self.synchronize()
        with self.current():
            doing = f"reading {size} bytes at {address:#x} of {self.name}"
            self.check(self.api.hipMemcpyDtoH(to, address, size), doing)

    def write(self, address: int, source: int, size: int) -> None:
        """Copy bytes from an address of the host to the device."""
        with self.current():
            doing = f"writing {size} bytes at {address:#x} of {self.name}"
            self.check(self.api.hipMemcpyHtoD(address, source, size), doing)

    def reaches(self, address: int) -> bool:
        """Whether kernels on the device may dereference a host address: the memory is pinned or
        managed, and has the same address on host and device."""
        found = ctypes.c_uint64()
        with self.current():
            status = self.api.hipPointerGetAttribute(ctypes.byref(found), _DEVICE_POINTER, address)
        return status == 0 and found.value == address

    def free_bytes(self) -> int:
        """Free memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.current():
            status = self.api.hipMemGetInfo(ctypes.byref(free), ctypes.byref(total))
            self.check(status, f"asking for the free memory of {self.name}")
        return free.value


class Function:
    """A kernel loaded on a device; its module is unloaded with this object.

    Attributes:
        handle: hipFunction_t.
        module: hipModule_t.
    """

    def __init__(self, gpu: Device, image: bytes, name: str) -> None:
        self.device, self.name, self.module = gpu, name, 0
        api, module, handle = gpu.api, ctypes.c_void_p(), ctypes.c_void_p()
        with gpu.current():
            status = api.hipModuleLoadData(ctypes.byref(module), image)
            gpu.check(status, f"loading {name} on {gpu.name} ({gpu.arch})")
            self.module = module.value or 0
            status = api.hipModuleGetFunction(ctypes.byref(handle), self.module, name.encode())
            gpu.check(status, f"looking for {name} in its code object")
        self.handle = handle.value or 0

    def launch(
        self, grid: tuple[int, int, int], threads: int, stream: int, parameters: int
    ) -> None:
        """Enqueue the programs of a grid.

        Args:
            threads: of a program.
            stream: hipStream_t.
            parameters: the address of an array of pointers to the arguments.
        """
        if 0 in grid:
            return
        gpu = self.device
        with gpu.current():
            numbers = (*grid, threads, 1, 1)
            # The code object states the LDS that the kernel takes; none is added.
            status = gpu.api.hipModuleLaunchKernel(
                self.handle, *numbers, 0, stream, parameters, None
            )
            gpu.check(status, f"launching {self.name} on {gpu.name}")
        gpu.last_kernel = self.name

    def __del__(self) -> None:
        if getattr(self, "module", 0) and not sys.is_finalizing() and self.device.api.usable:
            self.device.api.hipModuleUnload(self.module)


# -- the devices of this process ------------------------------------------------------------------

_lock = Lock()
_devices: dict[int, Device] = {}
DEFAULT_STREAM = 0


def device_count() -> int:
    """The number of devices that are visible to HIP."""
    api, count = connect(), ctypes.c_int()
    api.check(api.hipGetDeviceCount(ctypes.byref(count)), "counting the devices")
    return count.value


def device(index: int) -> Device:
    """The device with an index; always the same object.

    Raises:
        DeviceError: there is no HIP runtime, or no such device.
    """
    found = _devices.get(index)
    if found is None:
        api = connect()
        with _lock:
            found = _devices.get(index)
            if found is None:
                found = _devices[index] = Device(api, index)
    return found


def current_index() -> int:
    """Index of the calling thread's current device."""
    api, index = connect(), ctypes.c_int()
    api.check(api.hipGetDevice(ctypes.byref(index)), "asking for the current device")
    return index.value


def current_stream(index: int) -> int:
    """The hipStream_t that launches on a device use: torch's if the program has loaded torch."""
    torch = hip_torch()
    return DEFAULT_STREAM if torch is None else torch.cuda.current_stream(index).cuda_stream


# -- memory and time ------------------------------------------------------------------------------


class DeviceMemory:
    """An allocation of device memory, until `free` or the end of this object.

    Attributes:
        address: of its first byte; 0 after `free`.
    """

    def __init__(self, gpu: Device, size: int) -> None:
        self._gpu = gpu
        found = ctypes.c_void_p()
        with gpu.current():
            status = gpu.api.hipMalloc(ctypes.byref(found), size)
            gpu.check(status, f"allocating {size} bytes on {gpu.name}")
        self.address: int = found.value or 0

    def free(self) -> None:
        """Free the memory; HIP waits for work that uses it."""
        if self.address and self._gpu.api.usable:
            with self._gpu.current():
                self._gpu.api.hipFree(self.address)
        self.address = 0

    def __del__(self) -> None:
        if not sys.is_finalizing() and getattr(self, "address", 0):
            self.free()


class SavedBytes:
    """A backup, in device memory, of a range of device memory."""

    def __init__(self, gpu: Device, address: int, size: int, stream_of: Callable[[], int]) -> None:
        self._gpu, self._address, self._size = gpu, address, size
        self._stream_of = stream_of
        self._copy = DeviceMemory(gpu, size)
        self._move(self._copy.address, address)

    def restore(self) -> None:
        """Copy the saved bytes back."""
        self._move(self._address, self._copy.address)

    def free(self) -> None:
        self._copy.free()

    def _move(self, to: int, source: int) -> None:
        gpu = self._gpu
        with gpu.current():
            status = gpu.api.hipMemcpyDtoDAsync(to, source, self._size, self._stream_of())
            gpu.check(status, f"copying {self._size} bytes on {gpu.name}")


FLUSH_BYTES: Final = 512 << 20
"""More than the caches of any GPU: the last one of an MI300 has 256 MiB."""


class HipClock:
    """A `Clock` (see `runtime/clocks.py`) that records events on a device's current stream."""

    is_devices_own = True

    def __init__(self, gpu: Device, stream_of: Callable[[], int]) -> None:
        self._gpu = gpu
        self._stream_of = stream_of
        self._events: list[int] = []
        self._flushed: DeviceMemory | None = None

    def __enter__(self) -> HipClock:
        return self

    def __exit__(self, *error: object) -> None:
        with self._gpu.current():
            for event in self._events:
                self._gpu.api.hipEventDestroy(event)
        self._events.clear()
        if self._flushed is not None:
            self._flushed.free()
            self._flushed = None

    def mark(self) -> int:
        gpu, event = self._gpu, ctypes.c_void_p()
        with gpu.current():
            gpu.check(gpu.api.hipEventCreate(ctypes.byref(event)), "making an event")
            handle = event.value or 0
            self._events.append(handle)
            gpu.check(gpu.api.hipEventRecord(handle, self._stream_of()), "recording an event")
        return handle

    def elapsed(self, start: int, end: int) -> float:
        gpu, milliseconds = self._gpu, ctypes.c_float()
        with gpu.current():
            gpu.check(gpu.api.hipEventSynchronize(end), f"waiting for {gpu.name}")
            status = gpu.api.hipEventElapsedTime(ctypes.byref(milliseconds), start, end)
            gpu.check(status, "comparing events")
        return milliseconds.value

    def synchronize(self) -> None:
        self._gpu.synchronize()

    def is_capturing(self) -> bool:
        gpu, status = self._gpu, ctypes.c_int()
        with gpu.current():
            found = gpu.api.hipStreamIsCapturing(self._stream_of(), ctypes.byref(status))
            gpu.check(found, "querying the state of the stream")
        return status.value != 0

    def flush(self) -> None:
        gpu = self._gpu
        if self._flushed is None:
            self._flushed = DeviceMemory(gpu, FLUSH_BYTES)
        with gpu.current():
            words = FLUSH_BYTES // 4
            status = gpu.api.hipMemsetD32Async(self._flushed.address, 0, words, self._stream_of())
            gpu.check(status, "clearing the cache")


def device_properties(gpu: Device) -> dict[str, Any]:
    """A device's properties by Triton's names; clock rates in kHz, what is unknown is 0."""
    return {
        "max_shared_mem": gpu.shared_bytes,
        "max_num_regs": 0,
        "multiprocessor_count": gpu.multiprocessors,
        "warpSize": gpu.lanes,
        "sm_clock_rate": gpu.clock,
        "mem_clock_rate": 0,
        "mem_bus_width": 0,
        "arch": gpu.arch,
    }

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
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from tilewright.runtime.devices.gpu import Devices, Gpu
from tilewright.runtime.devices.gpu import device_count as devices_of
from tilewright.runtime.devices.hip_api import HipApi, connect, hip_torch

# Offsets of fields of hipDeviceProp_tR0600 (hip_runtime_api.h), in bytes. The name of the processor
# stands at its end, which differs between releases: it is found by its prefix.
_PROPERTIES_BYTES = 4096  # more than any release writes
_NAME, _MEMORY, _SHARED, _LANES, _CLOCK, _MULTIPROCESSORS = 0, 288, 296, 308, 348, 388
_FIRST_TEXT_AFTER_NAME = 256

_KERNEL_FAILURES: Final = {
    700: "a kernel read or wrote an illegal address",
    710: "an assertion in a kernel failed",
    719: "a kernel failed",
}


class Device(Gpu):
    """One GPU. There is one object per index; get it from `device`.

    Attributes:
        arch: its processor: ``"gfx942"``.
        product, lanes, shared_bytes, multiprocessors, memory, clock: product name, lanes of a wave,
            LDS of a program, compute units, bytes of memory, kHz.
    """

    failures = _KERNEL_FAILURES
    advice = "With HIP_LAUNCH_BLOCKING=1 the launch at fault itself fails."
    flush_bytes = 512 << 20  # the last cache of an MI300 has 256 MiB

    def __init__(self, api: HipApi, index: int) -> None:
        super().__init__(api, "hip", index)
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

    def allocate(self, size: int, stream: int) -> int:
        found = ctypes.c_void_p()
        status = self.api.hipMalloc(ctypes.byref(found), size)
        self.check(status, f"allocating {size} bytes on {self.name}")
        return found.value or 0

    def release(self, address: int, stream: int) -> None:
        self.api.hipFree(address)  # waits for all work that uses the memory

    # -- kernels --------------------------------------------------------------------------------

    def load(self, image: bytes, name: str) -> Function:
        """Load a kernel of a code object.

        Raises:
            DeviceError: HIP rejects the code object, or it has no such kernel.
        """
        return Function(self, image, name)


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

DEFAULT_STREAM = 0
device = Devices(lambda index: Device(connect(), index))


def device_count() -> int:
    """The number of devices that are visible to HIP."""
    return devices_of(connect())


def current_index() -> int:
    """Index of the calling thread's current device."""
    api, index = connect(), ctypes.c_int()
    api.check(api.hipGetDevice(ctypes.byref(index)), "asking for the current device")
    return index.value


def current_stream(index: int) -> int:
    """The hipStream_t that launches on a device use: torch's if the program has loaded torch."""
    torch = hip_torch()
    return DEFAULT_STREAM if torch is None else torch.cuda.current_stream(index).cuda_stream


def device_properties(gpu: Device) -> dict[str, Any]:
    """A device's properties by Triton's names; clock rates in kHz, 0 for unknown ones."""
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

"""NVIDIA GPUs as devices: properties, primary context, synchronisation, copies, and errors.

    gpu = device(0)
    gpu.name, gpu.arch, gpu.properties.max_shared_mem   # "cuda:0", 90, 232448
    with gpu.current():
        ...                                             # driver calls that use this device

Device indices are the driver's (after CUDA_VISIBLE_DEVICES), as in torch. Each device is used
through its primary context, which the CUDA runtime and hence torch use, so that memory and streams
can be shared with them.

`cuda_api.py` binds the driver API, `cuda_function.py` loads and launches kernels, `cuda_torch.py`
uses torch's streams and allocator if the program has loaded torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.diagnostics import DeviceError
from tilewright.base.lazy import cached_property
from tilewright.runtime.devices.cuda_api import Api, connect
from tilewright.runtime.devices.gpu import Devices, Gpu
from tilewright.runtime.devices.gpu import device_count as devices_of

# Values of the driver's enum CUdevice_attribute.
_MAX_THREADS_PER_BLOCK = 1
_GRID_LIMITS = (5, 6, 7)
_CAPABILITY = (75, 76)

_DEVICE_ORDINAL = 9  # of the driver's enum CUpointer_attribute

# Sticky errors: the context is unusable afterwards.
_KERNEL_FAILURES: Final = {
    700: "a kernel read or wrote an illegal address",
    702: "a kernel ran for longer than the system allows",
    710: "an assertion in a kernel failed",
    714: "a kernel's stack overflowed",
    715: "a kernel ran an illegal instruction",
    716: "a kernel used a misaligned address",
    717: "a kernel used an address in the wrong memory space",
    718: "a kernel jumped to an illegal address",
    719: "a kernel failed",
}


@dataclass(frozen=True, slots=True)
class Properties:
    """A device's properties, as the driver reports them.

    Attributes:
        name: product name.
        capability: compute capability, ``(9, 0)``.
        total_memory: bytes.
        multiprocessor_count, warp_size: as named.
        max_threads: the most threads of a block.
        max_grid: the most blocks along x, y and z.
        max_shared_mem: the most bytes of shared memory of a block that opts in to more than 48 KiB.
        max_num_regs: 32-bit registers per block, and per multiprocessor.
        l2_cache_size: bytes.
        sm_clock_rate, mem_clock_rate: kHz.
        mem_bus_width: bits.
    """

    name: str
    capability: tuple[int, int]
    total_memory: int
    multiprocessor_count: int
    warp_size: int
    max_threads: int
    max_grid: tuple[int, int, int]
    max_shared_mem: int
    max_num_regs: int
    l2_cache_size: int
    sm_clock_rate: int
    mem_clock_rate: int
    mem_bus_width: int


class Device(Gpu):
    """One GPU and its primary context. There is one object per index; get it from `device`.

    Attributes:
        handle: CUdevice.
        context: CUcontext of the primary context.
        last_kernel_at: address of a `const char *` with the name of the kernel launched last.
            Native launchers store the result of `kept_name` there.
    """

    failures = _KERNEL_FAILURES
    advice = (
        "With CUDA_LAUNCH_BLOCKING=1 the launch at fault itself fails, and `compute-sanitizer` "
        "names the access. Nothing more runs on this device in this process."
    )
    flush_bytes = 256 << 20

    def __init__(self, api: Api, index: int) -> None:
        super().__init__(api, "cuda", index)
        self._last_kernel = ctypes.c_uint64()
        self._names: dict[str, Any] = {}
        self.last_kernel_at = ctypes.addressof(self._last_kernel)
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        api.check(api.cuDeviceGet(ctypes.byref(handle), index), f"opening {self.name}")
        self.handle = handle.value
        status = api.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.handle)
        api.check(status, f"opening {self.name}")
        self.context = context.value or 0

    @property
    def last_kernel(self) -> str:
        address = self._last_kernel.value
        return ctypes.string_at(address).decode() if address else ""

    @last_kernel.setter
    def last_kernel(self, name: str) -> None:
        self._last_kernel.value = self.kept_name(name)

    def kept_name(self, name: str) -> int:
        """Address of a kernel's name as a C string, valid for the lifetime of this object."""
        text = self._names.get(name)
        if text is None:
            text = self._names.setdefault(name, ctypes.create_string_buffer(name.encode()))
        return ctypes.addressof(text)

    # -- properties -----------------------------------------------------------------------------

    @cached_property
    def capability(self) -> tuple[int, int]:
        """Its compute capability: ``(9, 0)``."""
        major, minor = map(self._attribute, _CAPABILITY)
        return major, minor

    @property
    def arch(self) -> int:
        """The compute capability as one number: 90."""
        return 10 * self.capability[0] + self.capability[1]

    @cached_property
    def properties(self) -> Properties:
        """The device's properties, queried on first use."""
        api, text, memory = self.api, ctypes.create_string_buffer(256), ctypes.c_size_t()
        doing = f"asking about {self.name}"
        api.check(api.cuDeviceGetName(text, len(text), self.handle), doing)
        api.check(api.cuDeviceTotalMem_v2(ctypes.byref(memory), self.handle), doing)
        x, y, z = map(self._attribute, _GRID_LIMITS)
        return Properties(
            name=text.value.decode(errors="replace"),
            capability=self.capability,
            total_memory=memory.value,
            multiprocessor_count=self._attribute(16),
            warp_size=self._attribute(10),
            max_threads=self._attribute(_MAX_THREADS_PER_BLOCK),
            max_grid=(x, y, z),
            max_shared_mem=self._attribute(97),
            max_num_regs=self._attribute(12),
            l2_cache_size=self._attribute(38),
            sm_clock_rate=self._attribute(13),
            mem_clock_rate=self._attribute(36),
            mem_bus_width=self._attribute(37),
        )

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        status = self.api.cuDeviceGetAttribute(ctypes.byref(value), number, self.handle)
        self.api.check(status, f"asking {self.name} for attribute {number}")
        return value.value

    # -- context --------------------------------------------------------------------------------

    def make_current(self) -> None:
        """Make the primary context current in the calling thread."""
        self.check(self.api.cuCtxSetCurrent(self.context), f"switching to {self.name}")

    @contextmanager
    def current(self) -> Generator[None]:
        """Make the primary context current in the calling thread inside the block."""
        api = self.api
        self.check(api.cuCtxPushCurrent_v2(self.context), f"switching to {self.name}")
        try:
            yield
        finally:
            # Unchecked: an error here would mask the exception of a call inside the block.
            api.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def synchronize_stream(self, stream: int) -> None:
        """Wait until all work on a stream (a CUstream) of the device is complete."""
        with self.current():
            doing = f"waiting for stream {stream:#x} of {self.name}"
            self.check(self.api.cuStreamSynchronize(stream), doing)

    def allocate(self, size: int, stream: int) -> int:
        found = ctypes.c_void_p()
        status = self.api.cuMemAllocAsync(ctypes.byref(found), size, stream)
        self.check(status, f"allocating {size} bytes on {self.name}")
        return found.value or 0

    def release(self, address: int, stream: int) -> None:
        self.api.cuMemFreeAsync(address, stream)


# -- the devices of this process ------------------------------------------------------------------

device = Devices(lambda index: Device(connect(), index))


def device_count() -> int:
    """The number of devices that are visible to the driver."""
    return devices_of(connect())


def current_index() -> int:
    """Index of the device whose context is current in the calling thread; 0 if there is none."""
    api, handle = connect(), ctypes.c_int()
    # The call fails if no context is current. Device 0 is also the CUDA runtime's default.
    if api.cuCtxGetDevice(ctypes.byref(handle)) != 0:
        return 0
    indices = range(device_count())
    return next((i for i in indices if device(i).handle == handle.value), 0)


def index_of(address: int) -> int | None:
    """Index of the device that an address belongs to; None if it is unknown to the driver.

    For managed and pinned memory this is the device that was current at the allocation.
    """
    try:
        api = connect()
    except DeviceError:
        return None
    found = ctypes.c_int()
    status = api.cuPointerGetAttribute(ctypes.byref(found), _DEVICE_ORDINAL, address)
    return found.value if status == 0 and found.value >= 0 else None

"""The shared part of the runtime drivers of all vendors' GPUs; see `drivers/protocol.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tilewright.base.diagnostics import DeviceError
from tilewright.base.lazy_import import lazy_import
from tilewright.runtime.drivers.protocol import Bytes
from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime import measure
    from tilewright.runtime.devices import gpu_clock
    from tilewright.runtime.devices.gpu import Gpu
    from tilewright.runtime.devices.gpu_clock import DeviceMemory, EventClock, SavedBytes
else:
    gpu_clock = lazy_import("tilewright.runtime.devices.gpu_clock")
    measure = lazy_import("tilewright.runtime.measure")


class Devices(NamedTuple):
    """A vendor's part of `runtime/devices`. All members except `torch` raise `DeviceError` if the
    vendor's driver cannot be used."""

    device: Callable[[int], Gpu]
    """The device with an index; a `DeviceError` if there is none."""

    device_count: Callable[[], int]

    current_index: Callable[[], int]
    """Index of the calling thread's current device, according to the driver."""

    current_stream: Callable[[int], int]
    """The handle of the stream that launches on a device use."""

    torch: Callable[[], Any]
    """The torch module, if the program has loaded one that was built for these GPUs; else None."""


class GpuDriver:
    """The GPUs of a vendor. The current device and stream are torch's if the program has loaded a
    torch that was built for them."""

    device_type: ClassVar[str]
    devices: ClassVar[Devices]
    torch_built_for: ClassVar[str]
    """The platform that such a torch was built for, for messages."""

    def target_of(self, index: int) -> GPUTarget:
        """The compilation target of a device."""
        raise NotImplementedError

    # -- devices --------------------------------------------------------------------------------

    @classmethod
    def is_active(cls) -> bool:
        """Whether there is a GPU."""
        try:
            return cls.devices.device_count() > 0
        except DeviceError:
            return False

    def get_current_device(self) -> int:
        torch = self.devices.torch()
        return self.devices.current_index() if torch is None else torch.cuda.current_device()

    def set_current_device(self, index: int) -> None:
        """Make a device the calling thread's current one.

        Raises:
            DeviceError: there is no such device.
        """
        chosen, torch = self.devices.device(index), self.devices.torch()
        if torch is None:
            chosen.make_current()
        else:
            torch.cuda.set_device(index)

    def get_current_target(self) -> GPUTarget:
        return self.target_of(self.get_current_device())

    def get_current_stream(self, index: int | None = None) -> int:
        """The handle of the stream that launches on a device use."""
        return self.devices.current_stream(self.get_current_device() if index is None else index)

    # -- memory ---------------------------------------------------------------------------------

    def reaches(self, index: int, address: int) -> bool:
        """Whether kernels on a device can access a host address (pinned or managed memory)."""
        return self.is_active() and self.devices.device(index).reaches(address)

    def allocate(self, index: int, size: int) -> DeviceMemory:
        """Memory of a device, allocated in the order of its current stream."""
        return gpu_clock.DeviceMemory(
            self.devices.device(index), size, self.devices.current_stream(index)
        )

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        """Wait for all work on a device, then copy its memory at an address into an array."""
        self.devices.device(index).read(address, into.ctypes.data, into.nbytes)

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        """Copy an array to an address in a device's memory."""
        self.devices.device(index).write(address, data.ctypes.data, data.nbytes)

    def save_memory(self, index: int, address: int, size: int) -> SavedBytes:
        """A backup, in device memory, of a range of a device's memory."""
        stream_of = partial(self.devices.current_stream, index)
        return gpu_clock.SavedBytes(self.devices.device(index), address, size, stream_of)

    def free_memory(self, index: int) -> int:
        """Free memory of a device, in bytes."""
        return self.devices.device(index).free_bytes()

    # -- benchmarks -----------------------------------------------------------------------------

    def clock(self, index: int) -> EventClock:
        """A clock that records events on a device's current stream."""
        return gpu_clock.EventClock(
            self.devices.device(index), partial(self.devices.current_stream, index)
        )

    def get_benchmarker(self) -> Callable[..., Any]:
        """`do_bench` for the current device."""
        return partial(measure.bench_on, partial(self.clock, self.get_current_device()))

    def get_active_torch_device(self) -> Any:
        """The current device for torch, which calls the GPUs of ROCm ``cuda``, too."""
        torch = self._require_torch("get_active_torch_device")
        return torch.device("cuda", self.get_current_device())

    def get_device_interface(self) -> Any:
        """``torch.cuda``: its events, streams and synchronize."""
        return self._require_torch("get_device_interface").cuda

    def get_empty_cache_for_benchmark(self) -> Any:
        """A tensor that is larger than the device's caches; see `clear_cache`."""
        torch = self._require_torch("get_empty_cache_for_benchmark")
        words = self.devices.device(self.get_current_device()).flush_bytes // 4
        return torch.empty(words, dtype=torch.int32, device="cuda")

    def clear_cache(self, buffer: Any) -> None:
        """Evict the caches by clearing a buffer, so that the next measurement starts cold."""
        buffer.zero_()

    def _require_torch(self, caller: str) -> Any:
        torch = self.devices.torch()
        if torch is None:
            raise RuntimeError(
                f"{caller} is for programs that import torch, built for {self.torch_built_for}"
            )
        return torch

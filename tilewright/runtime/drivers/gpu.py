"""The shared part of the runtime drivers of all vendors' GPUs; see `drivers/protocol.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

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


class GpuDriver:
    """The GPUs of a vendor. The current device and stream are torch's if the program has loaded a
    torch that was built for them."""

    device_type: ClassVar[str]
    torch_built_for: ClassVar[str]
    """The platform that such a torch was built for, for messages."""

    # -- the vendor's part ----------------------------------------------------------------------

    def gpu(self, index: int) -> Gpu:
        """The device with an index.

        Raises:
            DeviceError: there is no such device.
        """
        raise NotImplementedError

    def torch(self) -> Any:
        """The torch module, if the program has loaded one that was built for these GPUs."""
        raise NotImplementedError

    def current_index(self) -> int:
        """Index of the calling thread's current device, according to the driver."""
        raise NotImplementedError

    def current_stream(self, index: int) -> int:
        """The handle of the stream that launches on a device use."""
        raise NotImplementedError

    @staticmethod
    def is_active() -> bool:
        """Whether there is a GPU."""
        raise NotImplementedError

    def target_of(self, index: int) -> GPUTarget:
        """The compilation target of a device."""
        raise NotImplementedError

    # -- devices --------------------------------------------------------------------------------

    def get_current_device(self) -> int:
        torch = self.torch()
        return self.current_index() if torch is None else torch.cuda.current_device()

    def set_current_device(self, index: int) -> None:
        """Make a device the calling thread's current one.

        Raises:
            DeviceError: there is no such device.
        """
        chosen, torch = self.gpu(index), self.torch()
        if torch is None:
            chosen.make_current()
        else:
            torch.cuda.set_device(index)

    def get_current_target(self) -> GPUTarget:
        return self.target_of(self.get_current_device())

    def get_current_stream(self, index: int | None = None) -> int:
        """The handle of the stream that launches on a device use."""
        return self.current_stream(self.get_current_device() if index is None else index)

    # -- memory ---------------------------------------------------------------------------------

    def reaches(self, index: int, address: int) -> bool:
        """Whether kernels on a device can access a host address (pinned or managed memory)."""
        return self.is_active() and self.gpu(index).reaches(address)

    def allocate(self, index: int, size: int) -> DeviceMemory:
        """Memory of a device, allocated in the order of its current stream."""
        return gpu_clock.DeviceMemory(self.gpu(index), size, self.current_stream(index))

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        """Wait for all work on a device, then copy its memory at an address into an array."""
        self.gpu(index).read(address, into.ctypes.data, into.nbytes)

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        """Copy an array to an address in a device's memory."""
        self.gpu(index).write(address, data.ctypes.data, data.nbytes)

    def save_memory(self, index: int, address: int, size: int) -> SavedBytes:
        """A backup, in device memory, of a range of a device's memory."""
        stream_of = partial(self.current_stream, index)
        return gpu_clock.SavedBytes(self.gpu(index), address, size, stream_of)

    def free_memory(self, index: int) -> int:
        """Free memory of a device, in bytes."""
        return self.gpu(index).free_bytes()

    # -- benchmarks -----------------------------------------------------------------------------

    def clock(self, index: int) -> EventClock:
        """A clock that records events on a device's current stream."""
        return gpu_clock.EventClock(self.gpu(index), partial(self.current_stream, index))

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
        words = self.gpu(self.get_current_device()).flush_bytes // 4
        return torch.empty(words, dtype=torch.int32, device="cuda")

    def clear_cache(self, buffer: Any) -> None:
        """Evict the caches by clearing a buffer, so that the next measurement starts cold."""
        buffer.zero_()

    def _require_torch(self, caller: str) -> Any:
        torch = self.torch()
        if torch is None:
            raise RuntimeError(
                f"{caller} is for programs that import torch, built for {self.torch_built_for}"
            )
        return torch

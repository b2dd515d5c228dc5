"""The runtime driver of AMD GPUs: ``tilewright.runtime.driver.active`` if a GPU is usable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.base.diagnostics import DeviceError
from tilewright.base.lazy_import import lazy_import
from tilewright.runtime.devices.hip import (
    DeviceMemory,
    Function,
    HipClock,
    SavedBytes,
    current_index,
    current_stream,
    device,
    device_count,
    device_properties,
)
from tilewright.runtime.devices.hip_api import hip_torch
from tilewright.runtime.drivers.protocol import Bytes
from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime import measure
    from tilewright.runtime.peaks import Peaks
else:
    measure = lazy_import("tilewright.runtime.measure")

_CACHE_FLUSH_BYTES = 512 << 20  # more than the caches of any GPU


class HipUtils:
    """Device properties and loading of code objects, with the names of Triton's `driver.utils`."""

    def get_device_properties(self, index: int) -> dict[str, Any]:
        """A device's properties by Triton's names."""
        return device_properties(device(index))

    def load_binary(
        self, name: str, image: bytes, shared: int, index: int
    ) -> tuple[Function, int, int, int, int]:
        """Load a code object: the loaded kernel (which owns the module), its hipFunction_t, and
        registers, spills and threads, which HIP does not report: 0."""
        loaded = device(index).load(image, name)
        return loaded, loaded.handle, 0, 0, 0


class HipDriver:
    """AMD GPUs. The current device and stream are torch's if the program has loaded torch."""

    device_type = "hip"
    utils = HipUtils()

    @staticmethod
    def is_active() -> bool:
        """Whether there is a GPU."""
        try:
            return device_count() > 0
        except DeviceError:
            return False

    def get_current_device(self) -> int:
        torch = hip_torch()
        return current_index() if torch is None else torch.cuda.current_device()

    def set_current_device(self, index: int) -> None:
        """Make a device the calling thread's current one.

        Raises:
            DeviceError: there is no such device.
        """
        chosen, torch = device(index), hip_torch()
        if torch is None:
            chosen.make_current()
        else:
            torch.cuda.set_device(index)

    def get_current_target(self) -> GPUTarget:
        return self.target_of(self.get_current_device())

    def target_of(self, index: int) -> GPUTarget:
        """The compilation target of a device."""
        gpu = device(index)
        return GPUTarget("hip", gpu.arch, gpu.lanes)

    def get_current_stream(self, index: int | None = None) -> int:
        """The hipStream_t that launches on a device use."""
        return current_stream(self.get_current_device() if index is None else index)

    def reaches(self, index: int, address: int) -> bool:
        """Whether kernels on a device can access a host address (pinned or managed memory)."""
        return self.is_active() and device(index).reaches(address)

    def allocate(self, index: int, size: int) -> DeviceMemory:
        """Memory of a device."""
        return DeviceMemory(device(index), size)

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        """Wait for all work on a device, then copy its memory at an address into an array."""
        device(index).read(address, into.ctypes.data, into.nbytes)

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        """Copy an array to an address in a device's memory."""
        device(index).write(address, data.ctypes.data, data.nbytes)

    def clock(self, index: int) -> HipClock:
        """A clock that records events on a device's current stream."""
        return HipClock(device(index), partial(current_stream, index))

    def save_memory(self, index: int, address: int, size: int) -> SavedBytes:
        """A backup, in device memory, of a range of a device's memory."""
        return SavedBytes(device(index), address, size, partial(current_stream, index))

    def free_memory(self, index: int) -> int:
        """Free memory of a device, in bytes."""
        return device(index).free_bytes()

    def describe(self, index: int) -> str:
        """A description of a device's model; tuning results are shared between devices for which
        it is equal."""
        gpu = device(index)
        return f"{gpu.product} {gpu.arch} {gpu.multiprocessors} compute units"

    def peak_gbps(self, index: int) -> float:
        """Unknown: 0."""
        return 0.0

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        """Not known."""
        raise ValueError("the peak rates of AMD GPUs are not known")

    def known_peaks(self, arch: int | str) -> Iterable[Peaks]:
        """None are known."""
        return ()

    def get_benchmarker(self) -> Callable[..., Any]:
        """`do_bench` for the current device."""
        return partial(measure.bench_on, partial(self.clock, self.get_current_device()))

    def get_active_torch_device(self) -> Any:
        """torch calls the GPUs of ROCm ``cuda``."""
        return self._torch("get_active_torch_device").device("cuda", self.get_current_device())

    def get_device_interface(self) -> Any:
        """``torch.cuda``: its events, streams and synchronize."""
        return self._torch("get_device_interface").cuda

    def get_empty_cache_for_benchmark(self) -> Any:
        """A tensor that is larger than the device's caches; see `clear_cache`."""
        torch = self._torch("get_empty_cache_for_benchmark")
        return torch.empty(_CACHE_FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")

    def clear_cache(self, buffer: Any) -> None:
        """Evict the caches by clearing a buffer, so that the next measurement starts cold."""
        buffer.zero_()

    @staticmethod
    def _torch(what: str) -> Any:
        torch = hip_torch()
        if torch is None:
            raise RuntimeError(f"{what} is for programs that import torch, built for ROCm")
        return torch

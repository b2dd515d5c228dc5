"""The runtime driver of NVIDIA GPUs: ``tilewright.runtime.driver.active`` if a GPU is usable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.base.diagnostics import DeviceError
from tilewright.base.lazy_import import lazy_import
from tilewright.runtime.devices.cuda import current_index, device, device_count
from tilewright.runtime.devices.cuda_api import was_forked
from tilewright.runtime.devices.cuda_function import Function, Shape
from tilewright.runtime.devices.cuda_torch import cuda_torch, current_stream
from tilewright.runtime.drivers.protocol import Bytes
from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime import measure, peaks
    from tilewright.runtime.devices import cuda_clock, cuda_peaks
    from tilewright.runtime.devices.cuda_clock import CudaClock, DeviceMemory, SavedBytes
    from tilewright.runtime.peaks import Peaks
else:
    cuda_clock = lazy_import("tilewright.runtime.devices.cuda_clock")
    cuda_peaks = lazy_import("tilewright.runtime.devices.cuda_peaks")
    measure = lazy_import("tilewright.runtime.measure")
    peaks = lazy_import("tilewright.runtime.peaks")

WARP_SIZE = 32
DEFAULT_ARCH = 90  # if no architecture is given
_CACHE_FLUSH_BYTES = 256 << 20  # more than the L2 cache of any GPU


class CudaUtils:
    """Device properties and loading of cubins, with the names of Triton's `driver.utils`."""

    def get_device_properties(self, index: int) -> dict[str, Any]:
        """A device's properties by Triton's names; see `Properties` for their units."""
        found = device(index).properties
        return {
            "max_shared_mem": found.max_shared_mem,
            "max_num_regs": found.max_num_regs,
            "multiprocessor_count": found.multiprocessor_count,
            "warpSize": found.warp_size,
            "sm_clock_rate": found.sm_clock_rate,
            "mem_clock_rate": found.mem_clock_rate,
            "mem_bus_width": found.mem_bus_width,
        }

    def load_binary(
        self, name: str, image: bytes, shared: int, index: int
    ) -> tuple[Function, int, int, int, int]:
        """Load a cubin.

        Args:
            shared: dynamic shared memory of its launches, in bytes.

        Returns:
            the loaded kernel (which owns the module), its CUfunction, n_regs, n_spills and
            n_max_threads.
        """
        loaded = Function(device(index), image, name, Shape(threads=1, shared=shared))
        return loaded, loaded.handle, loaded.n_regs, loaded.n_spills, loaded.n_max_threads


class CudaDriver:
    """NVIDIA GPUs. The current device and stream are torch's if the program has loaded torch."""

    device_type = "cuda"
    utils = CudaUtils()

    @staticmethod
    def is_active() -> bool:
        """Whether there is a GPU. In a child that was forked after the first use of the driver,
        kernels can be compiled for it, as torch's compile workers do, but not launched."""
        try:
            return device_count() > 0
        except DeviceError:
            return was_forked()

    def get_current_device(self) -> int:
        torch = cuda_torch()
        return current_index() if torch is None else torch.cuda.current_device()

    def set_current_device(self, index: int) -> None:
        """Make a device the calling thread's current one.

        Raises:
            DeviceError: there is no such device.
        """
        chosen = device(index)
        torch = cuda_torch()
        if torch is None:
            chosen.make_current()
        else:
            torch.cuda.set_device(index)

    def get_current_target(self) -> GPUTarget:
        return self.target_of(self.get_current_device())

    def target_of(self, index: int) -> GPUTarget:
        """The compilation target of a device."""
        return GPUTarget("cuda", device(index).arch, WARP_SIZE)

    def reaches(self, index: int, address: int) -> bool:
        """Whether kernels on a device can access a host address (pinned or managed memory)."""
        return self.is_active() and not was_forked() and device(index).reaches(address)

    def allocate(self, index: int, size: int) -> DeviceMemory:
        """Memory of a device, allocated in the order of its current stream."""
        return cuda_clock.DeviceMemory(device(index), size, current_stream(index))

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        """Wait for all work on a device, then copy its memory at an address into an array."""
        device(index).read(address, into.ctypes.data, into.nbytes)

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        """Copy an array to an address in a device's memory."""
        device(index).write(address, data.ctypes.data, data.nbytes)

    def clock(self, index: int) -> CudaClock:
        """A clock that records events on a device's current stream."""
        return cuda_clock.CudaClock(device(index), partial(current_stream, index))

    def save_memory(self, index: int, address: int, size: int) -> SavedBytes:
        """A backup, in device memory, of a range of a device's memory."""
        return cuda_clock.SavedBytes(device(index), address, size, partial(current_stream, index))

    def free_memory(self, index: int) -> int:
        """Free memory of a device, in bytes."""
        return cuda_clock.free_bytes(device(index))

    def describe(self, index: int) -> str:
        """A description of a device's model; tuning results are shared between devices for which
        it is equal."""
        found = device(index).properties
        return f"{found.name} sm_{device(index).arch} {found.multiprocessor_count} multiprocessors"

    def peak_gbps(self, index: int) -> float:
        """Memory bandwidth of a device, in GB/s."""
        return cuda_peaks.peak_gbps(device(index))

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        """Peak TFLOP/s of a device; see `cuda_peaks.peak_tflops`."""
        return cuda_peaks.peak_tflops(device(index), element, matrix, clock)

    def known_peaks(self, arch: int | str) -> Iterable[Peaks]:
        """The peak rates of known GPU models with an architecture."""
        digits = "".join(c for c in str(arch) if c.isdigit())
        for model in cuda_peaks.models_of(int(digits or DEFAULT_ARCH)):
            yield peaks.Peaks(model.name, model.gbps, partial(cuda_peaks.model_tflops, model))

    def get_benchmarker(self) -> Callable[..., Any]:
        """`do_bench` for the current device."""
        return partial(measure.bench_on, partial(self.clock, self.get_current_device()))

    def get_current_stream(self, index: int | None = None) -> int:
        """The CUstream that launches on a device use."""
        return current_stream(self._or_current(index))

    def get_device_capability(self, index: int | None = None) -> tuple[int, int]:
        """Compute capability: ``(9, 0)``."""
        return device(self._or_current(index)).capability

    def get_active_torch_device(self) -> Any:
        torch = self._torch("get_active_torch_device")
        return torch.device("cuda", self.get_current_device())

    def get_device_interface(self) -> Any:
        """``torch.cuda``: its events, streams and synchronize."""
        return self._torch("get_device_interface").cuda

    def get_empty_cache_for_benchmark(self) -> Any:
        """A tensor that is larger than the device's L2 cache; see `clear_cache`."""
        torch = self._torch("get_empty_cache_for_benchmark")
        return torch.empty(_CACHE_FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")

    def clear_cache(self, buffer: Any) -> None:
        """Evict the L2 cache by clearing a buffer, so that the next measurement starts cold."""
        buffer.zero_()

    def _or_current(self, index: int | None) -> int:
        return self.get_current_device() if index is None else index

    @staticmethod
    def _torch(what: str) -> Any:
        torch = cuda_torch()
        if torch is None:
            raise RuntimeError(f"{what} is for programs that import torch, built for CUDA")
        return torch

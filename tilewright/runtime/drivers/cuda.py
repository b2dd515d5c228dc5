"""The driver of NVIDIA GPUs: ``tilewright.runtime.driver.active`` when kernels run there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.base.diagnostics import DeviceError
from tilewright.base.lazy_import import lazy_import
from tilewright.runtime.bench import do_bench
from tilewright.runtime.devices.cuda import current_index, device, device_count
from tilewright.runtime.devices.cuda_function import Function, Shape
from tilewright.runtime.devices.cuda_torch import cuda_torch, current_stream
from tilewright.runtime.driver import Bytes
from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime import peaks
    from tilewright.runtime.devices import cuda_clock, cuda_peaks
    from tilewright.runtime.devices.cuda_clock import CudaClock, SavedBytes
    from tilewright.runtime.peaks import Peaks
else:
    cuda_clock = lazy_import("tilewright.runtime.devices.cuda_clock")
    cuda_peaks = lazy_import("tilewright.runtime.devices.cuda_peaks")
    peaks = lazy_import("tilewright.runtime.peaks")

# A launch needs none of this.

WARP_SIZE = 32
DEFAULT_ARCH = 90  # what is compiled for where no architecture is named
_CACHE_FLUSH_BYTES = 256 << 20  # more than the L2 cache of any GPU


class CudaUtils:
    """What programs ask of the device library itself."""

    def get_device_properties(self, index: int) -> dict[str, Any]:
        """What a device has, by the names that kernels' authors use; see `Properties`."""
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
        """Load a cubin: (the loaded kernel, which keeps the module, its handle, n_regs, n_spills,
        n_max_threads).

        Args:
            shared: bytes of dynamic shared memory that it will be launched with.
        """
        loaded = Function(device(index), image, name, Shape(threads=1, shared=shared))
        return loaded, loaded.handle, loaded.n_regs, loaded.n_spills, loaded.n_max_threads


class CudaDriver:
    """NVIDIA's GPUs. The current one, and its current stream, are torch's where it is loaded."""

    device_type = "cuda"
    utils = CudaUtils()

    @staticmethod
    def is_active() -> bool:
        """Whether there is a GPU that can be used."""
        try:
            return device_count() > 0
        except DeviceError:
            return False

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
        """What to compile for, for a device."""
        return GPUTarget("cuda", device(index).arch, WARP_SIZE)

    def reaches(self, index: int, address: int) -> bool:
        """Whether kernels on a device can use memory of the CPU: pinned and managed memory."""
        return self.is_active() and device(index).reaches(address)

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        """Copy a device's memory from an address on, when all that was started there is done."""
        device(index).read(address, into.ctypes.data, into.nbytes)

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        """Copy to a device's memory, from an address on."""
        device(index).write(address, data.ctypes.data, data.nbytes)

    def clock(self, index: int) -> CudaClock:
        """Measures time on a device, in the order of its current stream."""
        return cuda_clock.CudaClock(device(index), partial(current_stream, index))

    def save_memory(self, index: int, address: int, size: int) -> SavedBytes:
        """A copy of a part of a device's memory, on the device, that can be put back."""
        return cuda_clock.SavedBytes(device(index), address, size, partial(current_stream, index))

    def free_memory(self, index: int) -> int:
        """Bytes of a device's memory that nobody uses."""
        return cuda_clock.free_bytes(device(index))

    def describe(self, index: int) -> str:
        """What kind of device it is: kernels take as long on all of which this says the same."""
        found = device(index).properties
        return f"{found.name} sm_{device(index).arch} {found.multiprocessor_count} multiprocessors"

    def peak_gbps(self, index: int) -> float:
        """Gigabytes a second that a device's memory moves at most."""
        return cuda_peaks.peak_gbps(device(index))

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        """Tera-operations a second; see `cuda_peaks`."""
        return cuda_peaks.peak_tflops(device(index), element, matrix, clock)

    def known_peaks(self, arch: int | str) -> Iterable[Peaks]:
        """The limits of models with an architecture, which need not be here."""
        digits = "".join(c for c in str(arch) if c.isdigit())
        for model in cuda_peaks.models_of(int(digits or DEFAULT_ARCH)):
            yield peaks.Peaks(model.name, model.gbps, partial(cuda_peaks.model_tflops, model))

    def get_benchmarker(self) -> Callable[..., Any]:
        """What measures kernels on the current device; see `do_bench`."""
        return partial(do_bench, device=f"cuda:{self.get_current_device()}")

    def get_current_stream(self, index: int | None = None) -> int:
        """The driver's handle of the stream that launches on a device go to."""
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
        """A tensor that is larger than the device's cache; see `clear_cache`."""
        torch = self._torch("get_empty_cache_for_benchmark")
        return torch.empty(_CACHE_FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")

    def clear_cache(self, buffer: Any) -> None:
        """Fill the device's cache with a buffer, so that what is measured next finds it cold."""
        buffer.zero_()

    def _or_current(self, index: int | None) -> int:
        return self.get_current_device() if index is None else index

    @staticmethod
    def _torch(what: str) -> Any:
        torch = cuda_torch()
        if torch is None:
            raise RuntimeError(f"{what} is for programs that import torch, built for CUDA")
        return torch

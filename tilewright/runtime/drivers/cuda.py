"""The runtime driver of NVIDIA GPUs: ``tilewright.runtime.driver.active`` if a GPU is usable."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import
from tilewright.runtime.devices.cuda import current_index, device, device_count
from tilewright.runtime.devices.cuda_api import connect
from tilewright.runtime.devices.cuda_function import Function, Shape
from tilewright.runtime.devices.cuda_torch import cuda_torch, current_stream
from tilewright.runtime.drivers.gpu import Devices, GpuDriver
from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime import peaks
    from tilewright.runtime.devices import cuda_peaks
    from tilewright.runtime.peaks import Peaks
else:
    cuda_peaks = lazy_import("tilewright.runtime.devices.cuda_peaks")
    peaks = lazy_import("tilewright.runtime.peaks")

WARP_SIZE = 32
DEFAULT_ARCH = 90  # if no architecture is given


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


class CudaDriver(GpuDriver):
    """NVIDIA GPUs. The current device and stream are torch's if the program has loaded torch."""

    device_type = "cuda"
    devices = Devices(device, device_count, current_index, current_stream, cuda_torch)
    torch_built_for = "CUDA"
    utils = CudaUtils()

    @classmethod
    def is_active(cls) -> bool:
        """Whether there is a GPU. In a child that was forked after the first use of the driver,
        kernels can be compiled for it, as torch's compile workers do, but not launched."""
        return super().is_active() or connect.was_forked()

    def target_of(self, index: int) -> GPUTarget:
        return GPUTarget("cuda", device(index).arch, WARP_SIZE)

    def reaches(self, index: int, address: int) -> bool:
        return not connect.was_forked() and super().reaches(index, address)

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

    def get_device_capability(self, index: int | None = None) -> tuple[int, int]:
        """Compute capability: ``(9, 0)``."""
        return device(self.get_current_device() if index is None else index).capability

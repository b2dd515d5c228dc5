"""The runtime driver of AMD GPUs: ``tilewright.runtime.driver.active`` if a GPU is usable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tilewright.runtime.devices.hip import (
    Function,
    current_index,
    current_stream,
    device,
    device_count,
    device_properties,
)
from tilewright.runtime.devices.hip_api import hip_torch
from tilewright.runtime.drivers.gpu import Devices, GpuDriver
from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime.peaks import Peaks


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


class HipDriver(GpuDriver):
    """AMD GPUs. The current device and stream are torch's if the program has loaded torch."""

    device_type = "hip"
    devices = Devices(device, device_count, current_index, current_stream, hip_torch)
    torch_built_for = "ROCm"
    utils = HipUtils()

    def target_of(self, index: int) -> GPUTarget:
        gpu = device(index)
        return GPUTarget("hip", gpu.arch, gpu.lanes)

    def describe(self, index: int) -> str:
        """A description of a device's model; tuning results are shared between devices for which
        it is equal."""
        gpu = device(index)
        return f"{gpu.product} {gpu.arch} {gpu.multiprocessors} compute units"

    def peak_gbps(self, index: int) -> float:
        """Unknown: 0."""
        return 0.0

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        """Raises ValueError: they are not known."""
        raise ValueError("the peak rates of AMD GPUs are not known")

    def known_peaks(self, arch: int | str) -> Iterable[Peaks]:
        """None are known."""
        return ()

"""The device type `triton`: the devices of Triton's active driver, whose memory is torch's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tilewright.runtime.clocks import WallClock
from tilewright.runtime.drivers.protocol import SavedBytes
from tilewright.runtime.measure import bench_on
from tilewright.targets.protocol import GPUTarget
from tilewright_triton.upstream import upstream

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class _Memory:
    """Memory of a device, which lives as long as this object."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.address: int = tensor.data_ptr()

    def free(self) -> None:
        self.tensor = None


class TritonDriver:
    """See `tilewright.runtime.drivers.protocol.Driver`."""

    device_type = "triton"

    def __init__(self) -> None:
        self._allocated: WeakValueDictionary[int, _Memory] = WeakValueDictionary()

    @staticmethod
    def _active() -> Any:
        with upstream():
            driver = importlib.import_module("triton.runtime").driver.active
            driver.get_current_device()  # creates the driver
            return driver

    def is_active(self) -> bool:
        """Whether Triton can be imported in this process, and has a driver with a device."""
        try:
            with upstream():
                backends = importlib.import_module("triton.backends").backends
                return any(b.driver.is_active() for b in backends.values())
        except ImportError:
            return False

    def get_current_target(self) -> GPUTarget:
        with upstream():
            found = self._active().get_current_target()
        return GPUTarget("triton", f"{found.backend}/{found.arch}", found.warp_size)

    def target_of(self, index: int) -> GPUTarget:
        return self.get_current_target()

    def get_current_device(self) -> int:
        return self._active().get_current_device()

    def get_current_stream(self, index: int | None = None) -> int:
        driver = self._active()
        return driver.get_current_stream(driver.get_current_device() if index is None else index)

    def reaches(self, index: int, address: int) -> bool:
        return False

    # -- memory ---------------------------------------------------------------------------------

    def _device(self, index: int) -> Any:
        torch = importlib.import_module("torch")
        with upstream():
            kind = self._active().get_active_torch_device().type
        return torch.device(kind, index)

    def allocate(self, index: int, size: int) -> _Memory:
        torch = importlib.import_module("torch")
        tensor = torch.empty(size, dtype=torch.uint8, device=self._device(index))
        memory = _Memory(tensor)
        self._allocated[memory.address] = memory
        return memory

    def _view(self, address: int, size: int) -> Any:
        for start, memory in list(self._allocated.items()):
            if memory.tensor is None:
                continue
            if start <= address and address + size <= start + memory.tensor.numel():
                return memory.tensor[address - start : address - start + size]
        raise ValueError(f"{address:#x} is not in memory that this driver allocated")

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        into.reshape(-1).view(np.uint8)[:] = self._view(address, into.nbytes).cpu().numpy()

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        torch = importlib.import_module("torch")
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._view(address, data.nbytes).copy_(torch.from_numpy(flat.copy()))

    def save_memory(self, index: int, address: int, size: int) -> SavedBytes:
        return SavedBytes(self, index, address, size)

    def free_memory(self, index: int) -> int:
        return 1 << 30

    # -- measurement ----------------------------------------------------------------------------

    def clock(self, index: int) -> Any:
        return WallClock()

    def describe(self, index: int) -> str:
        target = self.get_current_target()
        return f"{target.arch} by Triton"

    def peak_gbps(self, index: int) -> float:
        raise ValueError("the peak bandwidth of devices of Triton is not known")

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        raise ValueError("the peak rates of devices of Triton are not known")

    def known_peaks(self, arch: int | str) -> Iterable[Any]:
        return ()

    def get_benchmarker(self) -> Callable[..., Any]:
        return partial(bench_on, WallClock)

    def get_active_torch_device(self) -> Any:
        with upstream():
            return self._active().get_active_torch_device()


class OnTriton:
    """A tensor of torch as an argument of kernels that Triton's back end compiles.

        kernel[grid](OnTriton(x), n)

    Args:
        tensor: on the device of Triton's active driver.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self.device = f"triton:{tensor.device.index or 0}"

    def data_ptr(self) -> int:
        return self._tensor.data_ptr()

    def untyped_storage(self) -> Any:
        return self._tensor.untyped_storage()

"""The driver of the NPU: one device, ``npu:0``, whose launches are complete when they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from tilewright.runtime.clocks import WallClock
from tilewright.runtime.drivers.protocol import SavedBytes
from tilewright.runtime.measure import bench_on
from tilewright.targets.protocol import GPUTarget
from tilewright_npu.device import MEMORY, Allocation, Bytes
from tilewright_npu.machine import CORES, DMA_BYTES

CLOCK_GHZ = 1.0


class NpuDriver:
    """See `tilewright.runtime.drivers.protocol.Driver`."""

    device_type = "npu"

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("npu")

    def target_of(self, index: int) -> GPUTarget:
        _require(index)
        return self.get_current_target()

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, index: int | None = None) -> int:
        return 0

    def reaches(self, index: int, address: int) -> bool:
        return False

    def allocate(self, index: int, size: int) -> Allocation:
        _require(index)
        return MEMORY.allocate(size)

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        data, start = MEMORY.find(address, address + into.nbytes)
        into[:] = data[start : start + into.nbytes]

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        found, start = MEMORY.find(address, address + data.nbytes)
        found[start : start + data.nbytes] = data.reshape(-1).view(np.uint8)

    def save_memory(self, index: int, address: int, size: int) -> SavedBytes:
        return SavedBytes(self, index, address, size)

    def clock(self, index: int) -> Any:
        return WallClock()

    def free_memory(self, index: int) -> int:
        return 1 << 30

    def describe(self, index: int) -> str:
        return f"reference NPU, {CORES} cores"

    def peak_gbps(self, index: int) -> float:
        return CORES * DMA_BYTES * CLOCK_GHZ

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        raise ValueError(f"the peak rate of the NPU for {element} is not known")

    def known_peaks(self, arch: int | str) -> Iterable[Any]:
        return ()

    def get_benchmarker(self) -> Callable[..., Any]:
        return partial(bench_on, WallClock)

    def get_active_torch_device(self) -> Any:
        raise RuntimeError("torch has no device for the NPU")


def _require(index: int) -> None:
    if index != 0:
        raise ValueError(f"there is one NPU, npu:0, not npu:{index}")

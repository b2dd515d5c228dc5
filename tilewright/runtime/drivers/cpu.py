"""The runtime driver of the CPU."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import
from tilewright.runtime.clocks import WallClock
from tilewright.runtime.devices import cpu
from tilewright.runtime.drivers.protocol import Bytes, HostMemory, SavedBytes
from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime import measure, peaks
    from tilewright.runtime.devices import cpu_peaks
    from tilewright.runtime.peaks import Peaks
else:
    cpu_peaks = lazy_import("tilewright.runtime.devices.cpu_peaks")
    measure = lazy_import("tilewright.runtime.measure")
    peaks = lazy_import("tilewright.runtime.peaks")


def available_memory() -> int:
    """Available memory of this machine in bytes, as reported by the system."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 30


class CpuUtils:
    """Device queries that programs make through `driver.active.utils`."""

    def get_device_properties(self, index: int) -> dict[str, Any]:
        """Device properties under the names that programs read: a multiprocessor is a thread,
        shared memory and registers do not limit a kernel, and rates, which are in kHz and bits, are
        unknown: 0."""
        return {
            "multiprocessor_count": cpu.thread_count(),
            "max_shared_mem": 1 << 30,
            "max_num_regs": 1 << 16,
            "warpSize": 1,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }


_CACHE_FLUSH_BYTES = 256 << 20


class CpuDriver:
    """The CPU as a single device with synchronous launches."""

    device_type = "cpu"
    utils = CpuUtils()

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cpu")

    def target_of(self, index: int) -> GPUTarget:
        return self.get_current_target()

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, index: int) -> None:
        if index != 0:
            raise ValueError(f"the CPU is one device, 0; there is no device {index}")

    def get_current_stream(self, index: int | None = None) -> int:
        return 0

    def reaches(self, index: int, address: int) -> bool:
        return True

    def allocate(self, index: int, size: int) -> HostMemory:
        return HostMemory(size)

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        ctypes.memmove(into.ctypes.data, address, into.nbytes)

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def clock(self, index: int) -> Any:
        return WallClock()

    def save_memory(self, index: int, address: int, size: int) -> SavedBytes:
        return SavedBytes(self, index, address, size)

    def free_memory(self, index: int) -> int:
        return available_memory()

    def describe(self, index: int) -> str:
        return f"{cpu.processor_name()}, {cpu.thread_count()} threads"

    def peak_gbps(self, index: int) -> float:
        return cpu_peaks.peak_gbps()

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        return cpu_peaks.peak_tflops(element, clock)

    def known_peaks(self, arch: int | str) -> Iterable[Peaks]:
        if arch:
            return  # the limits of other processors are not known
        name = f"{cpu.processor_name()}, {cpu.thread_count()} threads"
        yield peaks.Peaks(
            name,
            cpu_peaks.peak_gbps(),
            lambda element, matrix: cpu_peaks.peak_tflops(element, None),
        )

    def get_benchmarker(self) -> Callable[..., Any]:
        return partial(measure.bench_on, WallClock)

    def get_active_torch_device(self) -> Any:
        return self._torch("get_active_torch_device").device("cpu")

    def get_device_interface(self) -> Any:
        """``torch.cpu``: its streams and synchronize."""
        return self._torch("get_device_interface").cpu

    def get_empty_cache_for_benchmark(self) -> Any:
        """A tensor that is larger than the caches of most processors; see `clear_cache`."""
        torch = self._torch("get_empty_cache_for_benchmark")
        return torch.empty(_CACHE_FLUSH_BYTES // 4, dtype=torch.int32)

    def clear_cache(self, buffer: Any) -> None:
        """Evict the caches by clearing a buffer, so that the next measurement starts cold."""
        buffer.zero_()

    @staticmethod
    def _torch(what: str) -> Any:
        torch = sys.modules.get("torch")
        if torch is None:
            raise RuntimeError(f"{what} is for programs that import torch")
        return torch

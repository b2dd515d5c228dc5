"""Device drivers: ``tilewright.runtime.driver.active``, and look-up of devices by name.

A launch runs on the device that holds its tensors. The active driver provides the device for
launches without tensors, and the current device for programs that query it. By default it is that
of a GPU if there is one that can be used, else the CPU's; the setting `runtime.default_backend` and
`set_active` choose another. GPUs are looked for when the driver is first queried.

Devices are identified by names, as in tensor libraries: ``"cpu"``, ``"cuda:0"``.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tilewright.base import knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.base.plug_ins import DRIVERS as DRIVER_PLUG_INS
from tilewright.base.plug_ins import load_plug_in, plug_ins
from tilewright.language.target_info import install_host_target
from tilewright.targets.protocol import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime import bench, peaks
    from tilewright.runtime.devices import cpu, cpu_peaks
    from tilewright.runtime.drivers import cuda
    from tilewright.runtime.peaks import Peaks
else:
    bench = lazy_import("tilewright.runtime.bench")
    cpu = lazy_import("tilewright.runtime.devices.cpu")
    cuda = lazy_import("tilewright.runtime.drivers.cuda")
    cpu_peaks = lazy_import("tilewright.runtime.devices.cpu_peaks")
    peaks = lazy_import("tilewright.runtime.peaks")

Bytes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"
"""Contiguous bytes in this process."""


class Saved(Protocol):
    """A backup of a memory range."""

    def restore(self) -> None:
        """Copy the bytes back."""
        ...

    def free(self) -> None:
        """Release the backup."""
        ...


class Driver(Protocol):
    """The runtime interface of a backend."""

    @property
    def device_type(self) -> str:
        """The prefix of its device names, which is also that of tensors for its kernels."""
        ...

    def get_current_target(self) -> GPUTarget:
        """The target of the current device."""
        ...

    def target_of(self, index: int) -> GPUTarget:
        """The target of a device."""
        ...

    def get_current_device(self) -> int:
        """Index of the current device, to which launches go."""
        ...

    def get_current_stream(self, index: int | None = None) -> int:
        """Handle of the current stream of a device."""
        ...

    def reaches(self, index: int, address: int) -> bool:
        """Whether kernels on a device can access the CPU memory at an address."""
        ...

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        """Copy from the memory of a device, after all previously enqueued work."""
        ...

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        """Copy to the memory of a device."""
        ...

    def clock(self, index: int) -> Any:
        """A `Clock` (`runtime/bench.py`) of a device, as a context manager."""
        ...

    def save_memory(self, index: int, address: int, size: int) -> Saved:
        """Back up a range of a device's memory, on the device."""
        ...

    def free_memory(self, index: int) -> int:
        """Free bytes in the memory of a device."""
        ...

    def describe(self, index: int) -> str:
        """A description of the kind of device: equal for devices with the same performance."""
        ...

    def peak_gbps(self, index: int) -> float:
        """Peak memory bandwidth of a device in GB/s."""
        ...

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        """Peak throughput in TFLOP/s for an element type, with or without matrix units, at a clock
        in kHz or the maximum clock. ValueError if not applicable."""
        ...

    def known_peaks(self, arch: int | str) -> Iterable[Peaks]:
        """The known limits of devices of an architecture ("" for the default), the default device
        first. They need not be present."""
        ...

    def get_benchmarker(self) -> Callable[..., Any]:
        """A function like `do_bench` for the current device."""
        ...

    def get_active_torch_device(self) -> Any:
        """The current device as a torch device."""
        ...


class SavedBytes:
    """A backup, in this process, of a range of a device's memory."""

    def __init__(self, driver: Any, index: int, address: int, size: int) -> None:
        self._driver, self._index, self._address = driver, index, address
        self._copy = np.empty(size, np.uint8)
        driver.read_memory(index, address, self._copy)

    def restore(self) -> None:
        self._driver.write_memory(self._index, self._address, self._copy)

    def free(self) -> None:
        self._copy = np.empty(0, np.uint8)


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

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        ctypes.memmove(into.ctypes.data, address, into.nbytes)

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def clock(self, index: int) -> Any:
        return bench.WallClock()

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
        return partial(bench.do_bench, device="cpu")

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


DRIVERS: dict[str, Callable[[], Callable[[], Any]]] = {
    "cpu": lambda: CpuDriver,
    "cuda": lambda: cuda.CudaDriver,
}
"""Functions that return the class of the driver of a device type, which is loaded lazily."""


def _exists(device_type: str) -> bool:
    """Whether a driver is built in or a plug-in."""
    return device_type in DRIVERS or device_type in plug_ins(DRIVER_PLUG_INS)


def names() -> list[str]:
    """The device types that there are drivers for."""
    return sorted({*DRIVERS, *plug_ins(DRIVER_PLUG_INS)})


def driver_class(device_type: str) -> Callable[[], Any]:
    """The class of the drivers for a device type.

    Raises:
        ValueError: there is none.
        PlugInError: it is a plug-in that cannot be loaded.
    """
    if device_type in DRIVERS:
        return DRIVERS[device_type]()
    if not _exists(device_type):
        raise ValueError(
            f"there is no driver for devices of type {device_type!r}; there are drivers for "
            f"{', '.join(names())}"
        )
    return load_plug_in(DRIVER_PLUG_INS, device_type)


@cache
def _made(device_type: str) -> Any:
    return driver_class(device_type)()


# -- the active driver ----------------------------------------------------------------------------

default: Driver
"""The default driver."""
active: Driver
"""The active driver."""


def __getattr__(name: str) -> Any:
    """`default`; `active` until `set_active` binds it; and `driver`, an alias of this module, which
    programs import from it."""
    if name == "driver":
        return sys.modules[__name__]
    if name in ("active", "default"):
        return _default()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _default() -> Driver:
    name = knobs.runtime.default_backend or _preferred()
    if not _exists(name):
        raise RuntimeError(f"Unknown backend device {name!r}. Available backends: {names()}")
    if not _made(name).is_active():
        raise RuntimeError(f"Backend device {name!r} is not active.")
    return _made(name)


@cache
def _preferred() -> str:
    """The type of the device of programs that name none: a GPU that can be used, else the CPU."""
    return next((name for name in DRIVERS if name != "cpu" and _made(name).is_active()), "cpu")


def is_default() -> bool:
    """Whether no active driver has been set."""
    return "active" not in globals() and not knobs.runtime.default_backend


def set_active(driver: Driver) -> None:
    """Set the active driver."""
    global active
    active = driver


def reset_active() -> None:
    """Restore the default driver, and look for GPUs again."""
    globals().pop("active", None)
    _preferred.cache_clear()


def _active_target() -> GPUTarget | None:
    """The target of the active driver; None if it has no device."""
    try:
        return (globals().get("active") or __getattr__("active")).get_current_target()
    except RuntimeError:
        return None


install_host_target(_active_target)


# -- devices by name ------------------------------------------------------------------------------


def has_driver(device_type: str) -> bool:
    """Whether there is a driver for a device type."""
    return _is_chosen(device_type) or _exists(device_type)


def driver_of(device_type: str) -> Driver:
    """The driver for a device type, preferably the active one.

    Raises:
        ValueError: there is no driver for it.
    """
    return active if _is_chosen(device_type) else _made(device_type)


def _is_chosen(device_type: str) -> bool:
    chosen: Driver | None = globals().get("active")
    return chosen is not None and chosen.device_type == device_type


def name_of(driver: Driver) -> str:
    """The name of the current device of a driver: ``"cpu"``, ``"cuda:0"``."""
    kind = driver.device_type
    return kind if kind == "cpu" else f"{kind}:{driver.get_current_device()}"


def target_of(device: str) -> GPUTarget:
    """The target of a device, given its name."""
    device_type, _, index = device.partition(":")
    return driver_of(device_type).target_of(int(index or 0))

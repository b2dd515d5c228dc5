"""The devices of kernels: ``tilewright.runtime.driver.active``, and which device is meant by name.

A launch runs where its tensors are. The active driver decides for launches without tensors, and
says to programs that ask what the current device is. It is the CPU's, or the one that the setting
`runtime.default_backend` names, until `set_active` chooses another.

Devices have names, which are also how tensors tell where they are: ``"cpu"``, ``"cuda:0"``.
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
from tilewright.base.late import late
from tilewright.language.target_info import install_host_target
from tilewright.targets.protocol import GPUTarget

_wall_clock = late("tilewright.runtime.bench:WallClock")
_do_bench = late("tilewright.runtime.bench:do_bench")
_cpu_name = late("tilewright.runtime.devices.cpu:processor_name")
_cpu_gbps = late("tilewright.runtime.devices.cpu_peaks:peak_gbps")
_cpu_tflops = late("tilewright.runtime.devices.cpu_peaks:peak_tflops")
_peaks = late("tilewright.runtime.peaks:Peaks")
_cpu_threads = late("tilewright.runtime.devices.cpu:thread_count")

if TYPE_CHECKING:
    from tilewright.runtime.peaks import Peaks

Bytes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"
"""Adjoining bytes in this process."""


class Saved(Protocol):
    """A copy of some bytes."""

    def restore(self) -> None:
        """Put the bytes back where they were."""
        ...

    def free(self) -> None:
        """Give up the copy."""
        ...


class Driver(Protocol):
    """The run side of a backend: what programs ask of the device they run on."""

    @property
    def device_type(self) -> str:
        """What the names of its devices begin with: where tensors for its kernels are."""
        ...

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        ...

    def target_of(self, index: int) -> GPUTarget:
        """What to compile for, for a device."""
        ...

    def get_current_device(self) -> int:
        """Index of the device that launches go to."""
        ...

    def get_current_stream(self, index: int | None = None) -> int:
        """Handle of the queue that launches go to."""
        ...

    def reaches(self, index: int, address: int) -> bool:
        """Whether kernels on a device can use memory of the CPU, by an address in it."""
        ...

    def read_memory(self, index: int, address: int, into: Bytes) -> None:
        """Copy a device's memory from an address on, when all that was started there is done."""
        ...

    def write_memory(self, index: int, address: int, data: Bytes) -> None:
        """Copy to a device's memory, from an address on."""
        ...

    def clock(self, index: int) -> Any:
        """Measures time on a device: a `Clock` of `runtime/bench.py`, as a context manager."""
        ...

    def save_memory(self, index: int, address: int, size: int) -> Saved:
        """A copy of a part of a device's memory, on the device, that can be put back."""
        ...

    def free_memory(self, index: int) -> int:
        """Bytes of a device's memory that nobody uses."""
        ...

    def describe(self, index: int) -> str:
        """What kind of device it is: kernels take as long on all of which this says the same."""
        ...

    def peak_gbps(self, index: int) -> float:
        """Gigabytes a second that a device's memory moves at most."""
        ...

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        """Tera-operations a second on a type, of matrix units or others, at a clock in kHz or the
        highest. ValueError where there are none."""
        ...

    def known_peaks(self, arch: int | str) -> Iterable[Peaks]:
        """The limits of devices that run code for an architecture ("" for the default one), as
        far as they are known, the one to assume first. They need not be here."""
        ...

    def get_benchmarker(self) -> Callable[..., Any]:
        """What measures functions on the current device, as `do_bench` does."""
        ...

    def get_active_torch_device(self) -> Any:
        """The device as torch names it, for a program that makes its tensors there."""
        ...


class SavedBytes:
    """A copy, in this process, of a part of a device's memory."""

    def __init__(self, driver: Any, index: int, address: int, size: int) -> None:
        self._driver, self._index, self._address = driver, index, address
        self._copy = np.empty(size, np.uint8)
        driver.read_memory(index, address, self._copy)

    def restore(self) -> None:
        self._driver.write_memory(self._index, self._address, self._copy)

    def free(self) -> None:
        self._copy = np.empty(0, np.uint8)


def available_memory() -> int:
    """Bytes of this machine's memory that programs may still have, as far as the system says."""
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
    """What programs ask of the device library itself."""

    def get_device_properties(self, index: int) -> dict[str, Any]:
        """By the names that kernels' authors use: programs run on threads, one a processor, and
        nothing limits their working memory."""
        return {"multiprocessor_count": _cpu_threads(), "max_shared_mem": 1 << 30, "warpSize": 1}


class CpuDriver:
    """The processors of this machine: one device, whose launches are complete when they return."""

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
        return _wall_clock()

    def save_memory(self, index: int, address: int, size: int) -> SavedBytes:
        return SavedBytes(self, index, address, size)

    def free_memory(self, index: int) -> int:
        return available_memory()

    def describe(self, index: int) -> str:
        return f"{_cpu_name()}, {_cpu_threads()} threads"

    def peak_gbps(self, index: int) -> float:
        return _cpu_gbps()

    def peak_tflops(self, index: int, element: str, matrix: bool, clock: float | None) -> float:
        return _cpu_tflops(element, clock)

    def known_peaks(self, arch: int | str) -> Iterable[Peaks]:
        if arch:
            return  # of another processor than this one nothing is known
        name = f"{_cpu_name()}, {_cpu_threads()} threads"
        yield _peaks(name, _cpu_gbps(), lambda element, matrix: _cpu_tflops(element, None))

    def get_benchmarker(self) -> Callable[..., Any]:
        return partial(_do_bench, device="cpu")

    def get_active_torch_device(self) -> Any:
        torch = sys.modules.get("torch")
        if torch is None:
            raise RuntimeError("get_active_torch_device is for programs that import torch")
        return torch.device("cpu")


DRIVERS: dict[str, Callable[[], Any]] = {
    "cpu": CpuDriver,
    "cuda": late("tilewright.runtime.drivers.cuda:CudaDriver"),
}
"""What makes the driver of each type of device."""


@cache
def _made(device_type: str) -> Any:
    return DRIVERS[device_type]()


# -- the active one -------------------------------------------------------------------------------

default: Driver
"""The driver that is active until another is chosen."""
active: Driver
"""The driver that launches without tensors go to."""


def __getattr__(name: str) -> Any:
    """`default`, and `active` until `set_active` has bound it; `driver`, this module by the name
    of the object that programs import from it."""
    if name == "driver":
        return sys.modules[__name__]
    if name in ("active", "default"):
        return _default()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _default() -> Driver:
    name = knobs.runtime.default_backend or "cpu"
    if name not in DRIVERS:
        raise RuntimeError(
            f"Unknown backend device {name!r}. Available backends: {sorted(DRIVERS)}"
        )
    if not _made(name).is_active():
        raise RuntimeError(f"Backend device {name!r} is not active.")
    return _made(name)


def is_default() -> bool:
    """Whether nobody has chosen an active driver."""
    return "active" not in globals() and not knobs.runtime.default_backend


def set_active(driver: Driver) -> None:
    """Make another driver the active one."""
    global active
    active = driver


def reset_active() -> None:
    """Return to the default driver."""
    globals().pop("active", None)


def _active_target() -> GPUTarget | None:
    """The target of the active driver; None if it has no device."""
    try:
        return (globals().get("active") or __getattr__("active")).get_current_target()
    except RuntimeError:
        return None


install_host_target(_active_target)


# -- devices by name ------------------------------------------------------------------------------


def has_driver(device_type: str) -> bool:
    """Whether there is a driver for a type of device."""
    return device_type in DRIVERS or _is_chosen(device_type)


def driver_of(device_type: str) -> Driver:
    """The driver for a type of device: the active one, if it is for it.

    Raises:
        KeyError: there is none.
    """
    return active if _is_chosen(device_type) else _made(device_type)


def _is_chosen(device_type: str) -> bool:
    chosen: Driver | None = globals().get("active")
    return chosen is not None and chosen.device_type == device_type


def name_of(driver: Driver) -> str:
    """The name of a driver's current device: ``"cpu"``, ``"cuda:0"``."""
    kind = driver.device_type
    return kind if kind == "cpu" else f"{kind}:{driver.get_current_device()}"


def target_of(device: str) -> GPUTarget:
    """What to compile for, for a device by its name."""
    device_type, _, index = device.partition(":")
    return driver_of(device_type).target_of(int(index or 0))

"""What fakes of GPU drivers share: functions as C callbacks that record what they get.

A fake names the API of its driver and has a method `do_NAME` for each function: NAME is the common
name of those that all drivers have (`DriverApi.common`), else the driver's own. The callbacks have
the C types of the real functions, so that what is passed goes through the same conversions, and
arguments are read from the addresses given.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import pytest

from tilewright.runtime.devices.driver_api import Connection, DriverApi
from tilewright.runtime.devices.gpu import Devices

INVALID_VALUE, NOT_FOUND, ILLEGAL_ADDRESS = 1, 500, 700
CAPTURING = 900  # what calls that wait report during a capture
FAULT = 999


def store(address: int, kind: Any, value: float) -> None:
    """Store a result where the caller of a function expects it."""
    kind.from_address(address).value = value


def arguments_at(parameters: int, widths: list[int]) -> list[bytes]:
    """The bytes of a kernel's arguments, from an array of pointers to them."""
    pointers = (ctypes.c_void_p * len(widths)).from_address(parameters)
    pairs = zip(pointers, widths, strict=True)
    return [ctypes.string_at(pointer or 0, width) for pointer, width in pairs]


class FakeDriver:
    """A driver of some GPUs.

    Attributes:
        gpus: the devices.
        widths: bytes of each parameter of a kernel by its name; the launch reads that many.
        fail: status that a function returns instead of running, by its name.
        missing: functions that this driver does not have.
        calls: names of all functions called, in order.
        faults: what the methods raised.
        events: times of those that exist, in ms; `now`: the present; `tick`: what a record adds.
        capturing: whether streams capture a graph; waiting is an error then.
        free_memory: unused bytes.
        images, functions: of loaded modules and kernels, by handle.
    """

    module: ClassVar[ModuleType]  # that opens the library
    api: ClassVar[type[DriverApi]]
    connection: ClassVar[Connection[Any]]
    devices: ClassVar[Devices[Any]]
    total_memory: ClassVar[int]

    def __init__(self, gpus: list[Any]) -> None:
        self.gpus = gpus
        self.widths: dict[str, list[int]] = {}
        self.fail: dict[str, int] = {}
        self.missing: set[str] = set()
        self.calls: list[str] = []
        self.faults: list[BaseException] = []
        self.events: dict[int, float | None] = {}
        self.now, self.tick = 0.0, 0.5
        self.capturing = False
        self.free_memory = 100 << 30
        self.images: dict[int, bytes] = {}
        self.functions: dict[int, str] = {}
        self._handles = itertools.count(0x1000, 16)
        self._callbacks: dict[str, Any] = {}
        common = {own: name for name, own in self.api.common.items()}
        self._methods = {name: common.get(name, name) for name in self.api.prototypes}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the runtime find this driver until the test ends."""
        monkeypatch.setattr(self.module, "_open_library", lambda: self)
        monkeypatch.setattr(self.connection, "api", None)
        monkeypatch.setattr(self.devices, "found", {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._methods or name in self.missing:
            raise AttributeError(name)
        if name not in self._callbacks:
            kind = ctypes.CFUNCTYPE(ctypes.c_int, *self.api.prototypes[name])
            self._callbacks[name] = kind(partial(self._call, name))
        return self._callbacks[name]

    def _call(self, name: str, *args: Any) -> int:
        self.calls.append(name)
        if name in self.fail:
            return self.fail[name]
        method: Callable[..., int | None] = getattr(
            self, f"do_{self._methods[name].removesuffix('_v2')}"
        )
        try:
            return method(*args) or 0
        except BaseException as error:
            self.faults.append(error)
            return FAULT

    def new_handle(self, out: int) -> int:
        """Store a new handle as the result of a function; the handle."""
        handle = next(self._handles)
        store(out, ctypes.c_uint64, handle)
        return handle

    def find_function(self, out: int, module: int, name: bytes, mark: bytes) -> int:
        """Store the handle of a kernel, if the image of its module contains a mark."""
        if mark not in self.images[module]:
            return NOT_FOUND
        self.functions[self.new_handle(out)] = name.decode()
        return 0

    # -- what all drivers have ---------------------------------------------------------------------

    def do_count_devices(self, out: int) -> None:
        store(out, ctypes.c_int, len(self.gpus))

    def do_synchronize(self) -> int:
        return CAPTURING if self.capturing else 0

    def host_address(self, address: int, size: int) -> int | None:
        """Where bytes of the device are in this process; None if there are none."""
        raise NotImplementedError

    def do_copy_to_host(self, to: int, address: int, size: int) -> int:
        source = self.host_address(address, size)
        if source is None:
            return INVALID_VALUE
        ctypes.memmove(to, source, size)
        return 0

    def do_copy_to_device(self, address: int, source: int, size: int) -> int:
        to = self.host_address(address, size)
        if to is None:
            return INVALID_VALUE
        ctypes.memmove(to, source, size)
        return 0

    def do_copy_on_device(self, to: int, source: int, size: int, stream: int | None) -> None:
        target, origin = self.host_address(to, size), self.host_address(source, size)
        assert target, f"no memory at {to:#x}"
        assert origin, f"no memory at {source:#x}"
        ctypes.memmove(target, origin, size)

    def do_memory_info(self, free: int, total: int) -> None:
        store(free, ctypes.c_uint64, self.free_memory)
        store(total, ctypes.c_uint64, self.total_memory)

    def do_pointer_attribute(self, out: int, number: int, address: int | None) -> int:
        return INVALID_VALUE

    def do_is_capturing(self, stream: int | None, out: int) -> None:
        store(out, ctypes.c_int, int(self.capturing))

    # Each event has the time at which it was recorded.

    def do_create_event(self, out: int, flags: int) -> None:
        self.events[self.new_handle(out)] = None

    def do_record_event(self, event: int, stream: int | None) -> None:
        self.events[event] = self.now = self.now + self.tick

    def do_wait_for_event(self, event: int) -> int:
        assert self.events[event] is not None
        return CAPTURING if self.capturing else 0

    def do_elapsed_time(self, out: int, start: int, end: int) -> None:
        first, last = self.events[start], self.events[end]
        assert first is not None
        assert last is not None
        store(out, ctypes.c_float, last - first)

    def do_destroy_event(self, event: int) -> None:
        del self.events[event]

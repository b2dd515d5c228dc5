"""A HIP runtime without a GPU: its functions as C callbacks that record what they get.

fake = FakeHip([Gpu("gfx942", 64)])
fake.install(monkeypatch)
...                                 # any user of devices/hip.py
fake.launches[0].arguments          # the bytes that the device would have seen

Memory of the device is memory of this process, so that addresses can be read.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from tilewright.runtime.devices import hip, hip_api
from tilewright.runtime.devices.hip_api import PROTOTYPES

INVALID_VALUE, INVALID_IMAGE, INVALID_DEVICE, NOT_FOUND, ILLEGAL_ADDRESS = 1, 200, 101, 500, 700
NAMES = {
    1: (b"hipErrorInvalidValue", b"invalid argument"),
    100: (b"hipErrorNoDevice", b"no ROCm-capable device is detected"),
    200: (b"hipErrorInvalidImage", b"device kernel image is invalid"),
    500: (b"hipErrorNotFound", b"named symbol not found"),
    700: (b"hipErrorIllegalAddress", b"an illegal memory access was encountered"),
}


class Gpu(NamedTuple):
    """A device."""

    arch: str = "gfx942:sramecc+:xnack-"
    lanes: int = 64
    product: str = "AMD Instinct MI300X"


class Launch(NamedTuple):
    """A launch: its grid and block, the stream, and the bytes of each argument."""

    function: str
    device: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    arguments: list[bytes]


class FakeHip:
    """The runtime of some GPUs.

    Attributes:
        widths: bytes of each parameter of a kernel by its name.
        fail: status that a function returns instead of running, by its name.
        missing: functions that this runtime does not have.
        launches, calls: what was launched; names of all functions called.
    """

    def __init__(self, gpus: list[Gpu] | None = None) -> None:
        self.gpus = gpus if gpus is not None else [Gpu()]
        self.widths: dict[str, list[int]] = {}
        self.fail: dict[str, int] = {}
        self.missing: set[str] = set()
        self.launches: list[Launch] = []
        self.calls: list[str] = []
        self.images: dict[int, bytes] = {}
        self.functions: dict[int, str] = {}
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self.faults: list[BaseException] = []
        self.current = 0
        self.now = 0.0
        self.events: dict[int, float] = {}
        self._handles = itertools.count(0x1000, 16)
        self._functions: dict[str, Any] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the package find this runtime until the test ends."""
        monkeypatch.setattr(hip_api, "_open_library", lambda: self)
        monkeypatch.setattr(hip_api.connect, "api", None)
        monkeypatch.setattr(hip.device, "found", {})

    def __getattr__(self, name: str) -> Any:
        if name in ("hipGetErrorName", "hipGetErrorString"):
            which = int(name == "hipGetErrorString")
            # No callback: the text of one is never freed.
            return partial(lambda status: NAMES.get(status, (b"", b""))[which])
        if name not in PROTOTYPES or name in self.missing:
            raise AttributeError(name)
        if name not in self._functions:
            kind = ctypes.CFUNCTYPE(ctypes.c_int, *PROTOTYPES[name])
            self._functions[name] = kind(partial(self._call, name))
        return self._functions[name]

    def _call(self, name: str, *args: Any) -> int:
        self.calls.append(name)
        if name in self.fail:
            return self.fail[name]
        method: Callable[..., int | None] = getattr(self, f"do_{name}")
        try:
            return method(*args) or 0
        except BaseException as error:
            self.faults.append(error)
            return 999

    # -- devices ---------------------------------------------------------------------------------

    def do_hipInit(self, flags: int) -> None: ...

    def do_hipDriverGetVersion(self, out: int) -> None:
        ctypes.c_int.from_address(out).value = 60_342_131

    def do_hipGetDeviceCount(self, out: int) -> None:
        ctypes.c_int.from_address(out).value = len(self.gpus)

    def do_hipGetDevice(self, out: int) -> None:
        ctypes.c_int.from_address(out).value = self.current

    def do_hipSetDevice(self, index: int) -> int:
        if index >= len(self.gpus):
            return INVALID_DEVICE
        self.current = index
        return 0

    def do_hipGetDevicePropertiesR0600(self, out: int, index: int) -> None:
        """hipDeviceProp_tR0600: the fields that are read, at their offsets."""
        raw, gpu = bytearray(1472), self.gpus[index]
        raw[: len(gpu.product)] = gpu.product.encode()
        for offset, size, value in (
            *((288, 8, 192 << 30), (296, 8, 65536), (308, 4, gpu.lanes)),
            *((348, 4, 2_100_000), (388, 4, 304)),
        ):
            raw[offset : offset + size] = value.to_bytes(size, "little")
        raw[1160 : 1160 + len(gpu.arch)] = gpu.arch.encode()
        ctypes.memmove(out, bytes(raw), len(raw))

    def do_hipDeviceSynchronize(self) -> None: ...

    # -- code ------------------------------------------------------------------------------------

    def do_hipModuleLoadData(self, out: int, image: int) -> int:
        head = ctypes.string_at(image, 64)
        if head[:4] != b"\x7fELF":
            return INVALID_IMAGE
        handle = next(self._handles)
        sections = int.from_bytes(head[40:48], "little")
        self.images[handle] = ctypes.string_at(image, sections)
        ctypes.c_uint64.from_address(out).value = handle
        return 0

    def do_hipModuleUnload(self, module: int) -> None:
        del self.images[module]

    def do_hipModuleGetFunction(self, out: int, module: int, name: bytes) -> int:
        if name + b".kd\0" not in self.images[module]:
            return NOT_FOUND
        handle = next(self._handles)
        self.functions[handle] = name.decode()
        ctypes.c_uint64.from_address(out).value = handle
        return 0

    def do_hipModuleLaunchKernel(self, function: int, *rest: Any) -> None:
        *numbers, shared, stream, parameters, extra = rest
        assert extra is None
        name = self.functions[function]
        widths = self.widths.get(name, [])
        pointers = (ctypes.c_void_p * len(widths)).from_address(parameters)
        pairs = zip(pointers, widths, strict=True)
        found = [ctypes.string_at(pointer or 0, width) for pointer, width in pairs]
        grid, block = tuple(numbers[:3]), tuple(numbers[3:])
        self.launches.append(Launch(name, self.current, grid, block, shared, stream or 0, found))

    # -- memory ----------------------------------------------------------------------------------

    def do_hipMalloc(self, out: int, size: int) -> None:
        made = np.zeros(size if size < 1 << 20 else 1, np.uint8)
        self.memory[made.ctypes.data] = made
        ctypes.c_uint64.from_address(out).value = made.ctypes.data

    def do_hipFree(self, address: int) -> None:
        del self.memory[address]

    def do_hipMemcpyDtoH(self, to: int, address: int, size: int) -> None:
        ctypes.memmove(to, address, size)

    do_hipMemcpyHtoD = do_hipMemcpyDtoH

    def do_hipMemcpyDtoDAsync(self, to: int, address: int, size: int, stream: int | None) -> None:
        ctypes.memmove(to, address, size)

    def do_hipMemsetD32Async(self, to: int, value: int, count: int, stream: int | None) -> None:
        assert to in self.memory

    def do_hipMemGetInfo(self, free: int, total: int) -> None:
        ctypes.c_uint64.from_address(free).value = 100 << 30
        ctypes.c_uint64.from_address(total).value = 192 << 30

    def do_hipPointerGetAttribute(self, out: int, number: int, address: int | None) -> int:
        return INVALID_VALUE

    # -- events ----------------------------------------------------------------------------------

    def do_hipStreamIsCapturing(self, stream: int | None, out: int) -> None:
        ctypes.c_int.from_address(out).value = 0

    def do_hipEventCreateWithFlags(self, out: int, flags: int) -> None:
        handle = next(self._handles)
        self.events[handle] = -1.0
        ctypes.c_uint64.from_address(out).value = handle

    def do_hipEventRecord(self, event: int, stream: int | None) -> None:
        self.now += 0.5
        self.events[event] = self.now

    def do_hipEventSynchronize(self, event: int) -> None:
        assert self.events[event] > 0

    def do_hipEventElapsedTime(self, out: int, start: int, end: int) -> None:
        ctypes.c_float.from_address(out).value = self.events[end] - self.events[start]

    def do_hipEventDestroy(self, event: int) -> None:
        del self.events[event]

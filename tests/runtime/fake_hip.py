"""A HIP runtime without a GPU: its functions as C callbacks that record what they get.

fake = FakeHip([Gpu("gfx942", 64)])
fake.install(monkeypatch)
...                                 # any user of devices/hip.py
fake.launches[0].arguments          # the bytes that the device would have seen

Memory of the device is memory of this process, so that addresses can be read.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tests.runtime.fake_driver import (
    ILLEGAL_ADDRESS,
    FakeDriver,
    arguments_at,
    store,
)
from tilewright.runtime.devices import hip, hip_api

__all__ = ["ILLEGAL_ADDRESS"]

INVALID_IMAGE, INVALID_DEVICE = 200, 101
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


class FakeHip(FakeDriver):
    """The runtime of some GPUs.

    Attributes:
        launches: what was launched.
        memory: allocations by address.
    """

    module, api = hip_api, hip_api.HipApi
    connection, devices = hip_api.connect, hip.device
    total_memory = 192 << 30

    def __init__(self, gpus: list[Gpu] | None = None) -> None:
        super().__init__(gpus if gpus is not None else [Gpu()])
        self.launches: list[Launch] = []
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self.current = 0

    def __getattr__(self, name: str) -> Any:
        if name in ("hipGetErrorName", "hipGetErrorString"):
            which = int(name == "hipGetErrorString")
            # No callback: the text of one is never freed.
            return partial(lambda status: NAMES.get(status, (b"", b""))[which])
        return super().__getattr__(name)

    # -- devices ---------------------------------------------------------------------------------

    def do_hipInit(self, flags: int) -> None: ...

    def do_hipDriverGetVersion(self, out: int) -> None:
        store(out, ctypes.c_int, 60_342_131)

    def do_hipGetDevice(self, out: int) -> None:
        store(out, ctypes.c_int, self.current)

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

    # -- code ------------------------------------------------------------------------------------

    def do_hipModuleLoadData(self, out: int, image: int) -> int:
        head = ctypes.string_at(image, 64)
        if head[:4] != b"\x7fELF":
            return INVALID_IMAGE
        sections = int.from_bytes(head[40:48], "little")
        self.images[self.new_handle(out)] = ctypes.string_at(image, sections)
        return 0

    def do_hipModuleUnload(self, module: int) -> None:
        del self.images[module]

    def do_hipModuleGetFunction(self, out: int, module: int, name: bytes) -> int:
        return self.find_function(out, module, name, name + b".kd\0")

    def do_hipModuleLaunchKernel(self, function: int, *rest: Any) -> None:
        *numbers, shared, stream, parameters, extra = rest
        assert extra is None
        name = self.functions[function]
        found = arguments_at(parameters, self.widths.get(name, []))
        grid, block = tuple(numbers[:3]), tuple(numbers[3:])
        self.launches.append(Launch(name, self.current, grid, block, shared, stream or 0, found))

    # -- memory ----------------------------------------------------------------------------------

    def do_hipMalloc(self, out: int, size: int) -> None:
        made = np.zeros(size if size < 1 << 20 else 1, np.uint8)
        self.memory[made.ctypes.data] = made
        store(out, ctypes.c_uint64, made.ctypes.data)

    def do_hipFree(self, address: int) -> None:
        del self.memory[address]

    def host_address(self, address: int, size: int) -> int:
        return address

    def do_fill_words(self, to: int, value: int, count: int, stream: int | None) -> None:
        assert to in self.memory

"""A CUDA driver without a GPU: the driver's functions as C callbacks that record what they get.

fake = FakeCuda([Gpu(), Gpu()])
fake.install(monkeypatch)
…                                   # any user of devices/cuda_api.py
fake.launches[0].arguments          # the bytes that the device would have seen
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.runtime.fake_driver import (
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    FakeDriver,
    arguments_at,
    store,
)
from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime.devices import cuda, cuda_api, cuda_torch
from tilewright.targets.protocol import GPUTarget

__all__ = ["ILLEGAL_ADDRESS", "INVALID_VALUE"]

NOT_INITIALIZED, INVALID_CONTEXT = 3, 201
NAMES = {
    1: (b"CUDA_ERROR_INVALID_VALUE", b"invalid argument"),
    100: (b"CUDA_ERROR_NO_DEVICE", b"no CUDA-capable device is detected"),
    209: (b"CUDA_ERROR_NO_BINARY_FOR_GPU", b"no kernel image is available"),
    218: (b"CUDA_ERROR_INVALID_PTX", b"a PTX JIT compilation failed"),
    222: (b"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", b"the provided PTX was compiled"),
    500: (b"CUDA_ERROR_NOT_FOUND", b"named symbol not found"),
    700: (b"CUDA_ERROR_ILLEGAL_ADDRESS", b"an illegal memory access was encountered"),
}
# CUfunction_attribute and CUdevice_attribute by number, of an H200.
FUNCTION = {0: 1024, 1: 0, 3: 0, 4: 32}
DEVICE = {
    1: 1024,
    5: 2**31 - 1,
    6: 65535,
    7: 65535,
    10: 32,
    12: 65536,
    13: 1980000,
    16: 132,
    36: 3201000,
    37: 6144,
    38: 62914560,
    75: 9,
    76: 0,
    81: 233472,
    97: 232448,
}
PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry {name}() {{ ret; }}
"""


def ptx(name: str) -> str:
    return PTX.format(name=name)


def compiled(
    arguments: list[tuple[tuple[int, ...], str]], device: str = "", **metadata: Any
) -> CompiledKernel:
    """A kernel `k` as a compiler would give it."""
    values = {
        "name": "k",
        "hash": "0",
        "target": GPUTarget("cuda", 90, 32),
        "num_warps": 4,
        "num_ctas": 1,
        "shared": 0,
        "arguments": arguments,
        "signature": {f"a{i}": kind for i, (_, kind) in enumerate(arguments)},
        **metadata,
    }
    kernel = CompiledKernel({"ptx": ptx("k")}, values)
    kernel.device = device
    return kernel


@dataclass
class Gpu:
    """A device: its name and attributes by number."""

    name: bytes = b"NVIDIA H200"
    attributes: dict[int, int] = field(default_factory=lambda: dict(DEVICE))


@dataclass
class Launch:
    """A launch that the driver was called for.

    `arguments` holds the bytes of each, `attributes` the numbers and first words of the launch's
    attributes, `context` the one that was current.
    """

    function: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    arguments: list[bytes]
    context: int
    attributes: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)


class FakeCuda(FakeDriver):
    """The driver of some GPUs.

    Attributes:
        function_attributes: of every kernel, by number.
        pinned: addresses on the CPU that GPUs reach, and what GPUs call them.
        owners: the device of addresses on a GPU.
        memory: the contents of addresses on a GPU.
        load_status, log: what loading code gives, and writes into the caller's log.
        launches: what was launched.
        version: of CUDA.
        modules: takes the place of `sys.modules` where torch is looked for.
    """

    module, api = cuda_api, cuda_api.Api
    connection, devices = cuda_api.connect, cuda.device
    total_memory = 140 << 30

    def __init__(self, gpus: list[Gpu] | None = None) -> None:
        super().__init__(gpus if gpus is not None else [Gpu()])
        self.function_attributes = dict(FUNCTION)
        self.pinned: dict[int, int] = {}
        self.owners: dict[int, int] = {}
        self.memory: dict[int, Any] = {}
        self.load_status = 0
        self.log = b""
        self.version = 13000
        self.modules: dict[str, Any] = {}
        self.launches: list[Launch] = []
        self.set_attributes: list[tuple[str, int, int]] = []
        self.allocated: dict[int, int] = {}
        self.freed: list[int] = []
        self._state = threading.local()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the runtime find this driver, and no torch, until the test ends."""
        super().install(monkeypatch)
        monkeypatch.setattr(cuda_torch, "_stream_of", None)
        monkeypatch.setattr(cuda_torch, "sys", SimpleNamespace(modules=self.modules))

    # -- contexts: device N has context 0x100 + N ------------------------------------------------

    @property
    def stack(self) -> list[int]:
        """The contexts of the calling thread, the current one last."""
        if not hasattr(self._state, "stack"):
            self._state.stack = []
        return self._state.stack

    def do_cuCtxGetCurrent(self, out: int) -> None:
        store(out, ctypes.c_uint64, self.stack[-1] if self.stack else 0)

    def do_cuCtxSetCurrent(self, context: int) -> None:
        self.stack[-1:] = [context]

    def do_cuCtxPushCurrent(self, context: int) -> None:
        self.stack.append(context)

    def do_cuCtxPopCurrent(self, out: int) -> None:
        store(out, ctypes.c_uint64, self.stack.pop())

    def do_cuCtxGetDevice(self, out: int) -> int:
        if not self.stack:
            return INVALID_CONTEXT
        store(out, ctypes.c_int, self.stack[-1] - 0x100)
        return 0

    def do_cuStreamSynchronize(self, stream: int | None) -> None: ...

    def do_cuThreadExchangeStreamCaptureMode(self, mode: int) -> None: ...

    # -- devices ---------------------------------------------------------------------------------

    def do_cuInit(self, flags: int) -> None: ...

    def do_cuDriverGetVersion(self, out: int) -> None:
        store(out, ctypes.c_int, self.version)

    def do_cuGetErrorName(self, status: int, out: int) -> int:
        return self._name(status, out, 0)

    def do_cuGetErrorString(self, status: int, out: int) -> int:
        return self._name(status, out, 1)

    def _name(self, status: int, out: int, which: int) -> int:
        if status not in NAMES:
            return INVALID_VALUE
        ctypes.c_char_p.from_address(out).value = NAMES[status][which]
        return 0

    def do_cuDeviceGet(self, out: int, index: int) -> None:
        store(out, ctypes.c_int, index)

    def do_cuDeviceGetName(self, out: int, size: int, device: int) -> None:
        ctypes.memmove(out, self.gpus[device].name, len(self.gpus[device].name) + 1)

    def do_cuDeviceTotalMem(self, out: int, device: int) -> None:
        store(out, ctypes.c_uint64, 140 << 30)

    def do_cuDeviceGetAttribute(self, out: int, number: int, device: int) -> None:
        store(out, ctypes.c_int, self.gpus[device].attributes[number])

    def do_cuDevicePrimaryCtxRetain(self, out: int, device: int) -> None:
        store(out, ctypes.c_uint64, 0x100 + device)

    # -- code ------------------------------------------------------------------------------------

    def do_cuModuleLoadDataEx(
        self, out: int, image: int, count: int, options: int, values: int
    ) -> int:
        assert self.stack, "loading needs a context"
        kinds = (ctypes.c_int * count).from_address(options)
        words = (ctypes.c_uint64 * count).from_address(values)
        given = dict(zip(kinds, words, strict=True))
        assert given[6] > len(self.log)
        ctypes.memmove(given[5], self.log, len(self.log))
        if self.load_status == 0:
            self.images[self.new_handle(out)] = ctypes.string_at(image)
        return self.load_status

    def do_cuModuleUnload(self, module: int) -> None:
        del self.images[module]

    def do_cuModuleGetFunction(self, out: int, module: int, name: bytes) -> int:
        return self.find_function(out, module, name, name)

    def do_cuFuncGetAttribute(self, out: int, number: int, function: int) -> None:
        store(out, ctypes.c_int, self.function_attributes[number])

    def do_cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, out: int, function: int, threads: int, shared: int
    ) -> None:
        """Limited by shared memory, 32 blocks and 64 warps."""
        store(out, ctypes.c_int, min(DEVICE[81] // (shared + 1024), 32, 2048 // threads))

    def do_cuFuncSetAttribute(self, function: int, number: int, value: int) -> None:
        self.set_attributes.append((self.functions[function], number, value))

    def do_cuLaunchKernel(self, function: int, *rest: Any) -> None:
        *numbers, shared, stream, parameters, extra = rest
        assert extra is None
        grid, block = tuple(numbers[:3]), tuple(numbers[3:])
        self._launch(Launch("", grid, block, shared, stream or 0, [], 0), function, parameters)

    def do_cuLaunchKernelEx(self, config: int, function: int, parameters: int, extra: Any) -> None:
        # The layout of CUlaunchConfig and CUlaunchAttribute on a 64-bit machine, by hand.
        words = (ctypes.c_uint * 7).from_address(config)
        stream = ctypes.c_uint64.from_address(config + 32).value
        attributes = ctypes.c_uint64.from_address(config + 40).value
        count = ctypes.c_uint.from_address(config + 48).value
        found: list[tuple[int, tuple[int, ...]]] = []
        for at in range(attributes, attributes + 72 * count, 72):
            values = tuple((ctypes.c_uint * 3).from_address(at + 8))
            found.append((ctypes.c_uint.from_address(at).value, values))
        launch = Launch("", tuple(words[:3]), tuple(words[3:6]), words[6], stream, [], 0, found)
        self._launch(launch, function, parameters)

    def _launch(self, launch: Launch, function: int, parameters: int) -> None:
        launch.function = self.functions[function]
        launch.context = self.stack[-1]
        widths = self.widths.get(launch.function, [])
        launch.arguments = arguments_at(parameters, widths)
        self.launches.append(launch)

    def do_cuTensorMapEncodeTiled(
        self, to: int, kind: int, rank: int, base: int, extents: int, strides: int, box: int,
        steps: int, interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> int:  # fmt: skip
        """The numbers one after the other, in place of the hardware's form."""
        long, short = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
        sizes = list(long.from_address(extents))
        gaps = list((ctypes.c_uint64 * (rank - 1)).from_address(strides))
        boxes, ones = list(short.from_address(box)), list(short.from_address(steps))
        if to % 64 or (base or 0) % 16 or ones != [1] * rank or any(g % 16 for g in gaps):
            return INVALID_VALUE
        if not all(0 < n <= 1 << 32 for n in sizes) or any(not 0 < n <= 256 for n in boxes):
            return INVALID_VALUE
        words = [kind, rank, base or 0, *sizes, *gaps, *boxes, interleave, swizzle, promotion, fill]
        ctypes.memmove(to, (ctypes.c_uint64 * 16)(*words), 128)
        return 0

    # -- memory ----------------------------------------------------------------------------------

    def do_cuMemAllocAsync(self, out: int, size: int, stream: int | None) -> None:
        address = next(self._handles) << 12 | 16
        self.allocated[address] = size
        store(out, ctypes.c_uint64, address)

    def do_cuMemFreeAsync(self, address: int, stream: int | None) -> None:
        self.freed.append(address)

    def host_address(self, address: int, size: int) -> int | None:
        """In `memory`, or in what is made for an allocation."""
        assert self.stack, "copying needs a context"
        if address in self.allocated and address not in self.memory:
            assert size <= self.allocated[address]
            self.memory[address] = np.zeros(self.allocated[address], np.uint8)
        for start, array in self.memory.items():
            if start <= address and address + size <= start + array.nbytes:
                return array.ctypes.data + address - start
        return None

    def do_fill_words(self, to: int, value: int, count: int, stream: int | None) -> None:
        assert 4 * count <= self.allocated[to]

    def do_pointer_attribute(self, out: int, number: int, address: int | None) -> int:
        if number == 3 and address in self.pinned:
            store(out, ctypes.c_uint64, self.pinned[address])
            return 0
        if number == 9 and address in self.owners:
            store(out, ctypes.c_int, self.owners[address or 0])
            return 0
        return INVALID_VALUE


class Tensor:
    """Looks like a torch tensor on some device."""

    def __init__(self, address: int, device: str, dtype: str = "float32", nbytes: int = 64) -> None:
        self.address = address
        self.device = device
        self.dtype = dtype
        self.shape = (4, 4)
        self.nbytes = nbytes

    def data_ptr(self) -> int:
        return self.address

    def untyped_storage(self) -> Any:
        return SimpleNamespace(data_ptr=self.data_ptr, nbytes=lambda: self.nbytes)

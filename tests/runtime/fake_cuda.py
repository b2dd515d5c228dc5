"""A CUDA driver without a GPU: the driver's functions as C callbacks that record what they get.

    fake = FakeCuda([Gpu(), Gpu()])
    fake.install(monkeypatch)
    …                                   # any user of devices/cuda_api.py
    fake.launches[0].arguments          # the bytes that the device would have seen

The callbacks have the C types that the real functions have, so that what is passed goes through the
same conversions, and arguments are read from the addresses given.
"""

import ctypes
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime.devices import cuda, cuda_api, cuda_torch
from tilewright.runtime.devices.cuda_api import PROTOTYPES
from tilewright.targets.protocol import GPUTarget

INVALID_VALUE, NOT_INITIALIZED, INVALID_CONTEXT, NOT_FOUND = 1, 3, 201, 500
ILLEGAL_ADDRESS = 700
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


def _set(address: int, kind: Any, value: float) -> None:
    kind.from_address(address).value = value


class FakeCuda:
    """The driver of some GPUs.

    Attributes:
        widths: bytes of each parameter of a kernel by its name; the launch reads that many.
        function_attributes: of every kernel, by number.
        fail: status that a function returns instead of running, by its name.
        missing: functions that this driver does not have.
        pinned: addresses on the CPU that GPUs reach, and what GPUs call them.
        owners: the device of addresses on a GPU.
        memory: the contents of addresses on a GPU.
        load_status, log: what loading code gives, and writes into the caller's log.
        events: times of those that exist, in ms; `now`: the present; `tick`: what a record adds.
        capturing: whether streams capture a graph; waiting for the device is an error then.
        free_memory: unused bytes.
        launches, calls: what was launched; names of all functions called, in order.
        version: of CUDA.
        modules: takes the place of `sys.modules` where torch is looked for.
    """

    def __init__(self, gpus: list[Gpu] | None = None) -> None:
        self.gpus = gpus if gpus is not None else [Gpu()]
        self.widths: dict[str, list[int]] = {}
        self.function_attributes = dict(FUNCTION)
        self.fail: dict[str, int] = {}
        self.missing: set[str] = set()
        self.pinned: dict[int, int] = {}
        self.owners: dict[int, int] = {}
        self.memory: dict[int, Any] = {}
        self.load_status = 0
        self.log = b""
        self.version = 13000
        self.modules: dict[str, Any] = {}
        self.launches: list[Launch] = []
        self.calls: list[str] = []
        self.set_attributes: list[tuple[str, int, int]] = []
        self.images: dict[int, bytes] = {}
        self.functions: dict[int, str] = {}
        self.allocated: dict[int, int] = {}
        self.events: dict[int, float | None] = {}
        self.now, self.tick = 0.0, 0.5
        self.capturing = False
        self.free_memory = 100 << 30
        self.freed: list[int] = []
        self.faults: list[BaseException] = []
        self._handles = itertools.count(0x1000, 16)
        self._state = threading.local()
        self._functions: dict[str, Any] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the runtime find this driver, and no torch, until the test ends."""
        monkeypatch.setattr(cuda_api, "_open_library", lambda: self)
        monkeypatch.setattr(cuda_api.connect, "api", None)
        monkeypatch.setattr(cuda.device, "found", {})
        monkeypatch.setattr(cuda_torch, "_stream_of", None)
        monkeypatch.setattr(cuda_torch, "sys", SimpleNamespace(modules=self.modules))

    def __getattr__(self, name: str) -> Any:
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
        method: Callable[..., int | None] = getattr(self, f"do_{name.removesuffix('_v2')}")
        try:
            return method(*args) or 0
        except BaseException as error:
            self.faults.append(error)
            return 999

    # -- contexts: device N has context 0x100 + N ------------------------------------------------

    @property
    def stack(self) -> list[int]:
        """The contexts of the calling thread, the current one last."""
        if not hasattr(self._state, "stack"):
            self._state.stack = []
        return self._state.stack

    def do_cuCtxGetCurrent(self, out: int) -> None:
        _set(out, ctypes.c_uint64, self.stack[-1] if self.stack else 0)

    def do_cuCtxSetCurrent(self, context: int) -> None:
        self.stack[-1:] = [context]

    def do_cuCtxPushCurrent(self, context: int) -> None:
        self.stack.append(context)

    def do_cuCtxPopCurrent(self, out: int) -> None:
        _set(out, ctypes.c_uint64, self.stack.pop())

    def do_cuCtxGetDevice(self, out: int) -> int:
        if not self.stack:
            return INVALID_CONTEXT
        _set(out, ctypes.c_int, self.stack[-1] - 0x100)
        return 0

    def do_cuCtxSynchronize(self) -> int:
        return 900 if self.capturing else 0  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

    def do_cuStreamSynchronize(self, stream: int | None) -> None: ...
    def do_cuStreamIsCapturing(self, stream: int | None, out: int) -> None:
        _set(out, ctypes.c_int, int(self.capturing))

    def do_cuThreadExchangeStreamCaptureMode(self, mode: int) -> None: ...

    # -- devices ---------------------------------------------------------------------------------

    def do_cuInit(self, flags: int) -> None: ...

    def do_cuDriverGetVersion(self, out: int) -> None:
        _set(out, ctypes.c_int, self.version)

    def do_cuGetErrorName(self, status: int, out: int) -> int:
        return self._name(status, out, 0)

    def do_cuGetErrorString(self, status: int, out: int) -> int:
        return self._name(status, out, 1)

    def _name(self, status: int, out: int, which: int) -> int:
        if status not in NAMES:
            return INVALID_VALUE
        ctypes.c_char_p.from_address(out).value = NAMES[status][which]
        return 0

    def do_cuDeviceGetCount(self, out: int) -> None:
        _set(out, ctypes.c_int, len(self.gpus))

    def do_cuDeviceGet(self, out: int, index: int) -> None:
        _set(out, ctypes.c_int, index)

    def do_cuDeviceGetName(self, out: int, size: int, device: int) -> None:
        ctypes.memmove(out, self.gpus[device].name, len(self.gpus[device].name) + 1)

    def do_cuDeviceTotalMem(self, out: int, device: int) -> None:
        _set(out, ctypes.c_uint64, 140 << 30)

    def do_cuDeviceGetAttribute(self, out: int, number: int, device: int) -> None:
        _set(out, ctypes.c_int, self.gpus[device].attributes[number])

    def do_cuDevicePrimaryCtxRetain(self, out: int, device: int) -> None:
        _set(out, ctypes.c_uint64, 0x100 + device)

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
            handle = next(self._handles)
            self.images[handle] = ctypes.string_at(image)
            _set(out, ctypes.c_uint64, handle)
        return self.load_status

    def do_cuModuleUnload(self, module: int) -> None:
        del self.images[module]

    def do_cuModuleGetFunction(self, out: int, module: int, name: bytes) -> int:
        if name not in self.images[module]:
            return NOT_FOUND
        handle = next(self._handles)
        self.functions[handle] = name.decode()
        _set(out, ctypes.c_uint64, handle)
        return 0

    def do_cuFuncGetAttribute(self, out: int, number: int, function: int) -> None:
        _set(out, ctypes.c_int, self.function_attributes[number])

    def do_cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, out: int, function: int, threads: int, shared: int
    ) -> None:
        """Limited by shared memory, 32 blocks and 64 warps."""
        _set(out, ctypes.c_int, min(DEVICE[81] // (shared + 1024), 32, 2048 // threads))

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
        pointers = (ctypes.c_void_p * len(widths)).from_address(parameters)
        pairs = zip(pointers, widths, strict=True)
        launch.arguments = [ctypes.string_at(pointer or 0, width) for pointer, width in pairs]
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
        _set(out, ctypes.c_uint64, address)

    def do_cuMemFreeAsync(self, address: int, stream: int | None) -> None:
        self.freed.append(address)

    def do_cuMemcpyDtoH(self, to: int, address: int, size: int) -> int:
        return self._copy(address, size, lambda memory: ctypes.memmove(to, memory, size))

    def do_cuMemcpyHtoD(self, address: int, source: int, size: int) -> int:
        return self._copy(address, size, lambda memory: ctypes.memmove(memory, source, size))

    def _copy(self, address: int, size: int, copy: Callable[[int], Any]) -> int:
        assert self.stack, "copying needs a context"
        if address in self.allocated:
            self._bytes_at(address, size)
        for start, array in self.memory.items():
            if start <= address and address + size <= start + array.nbytes:
                copy(array.ctypes.data + address - start)
                return 0
        return INVALID_VALUE

    def do_cuMemcpyDtoDAsync(self, to: int, address: int, size: int, stream: int | None) -> None:
        assert self.stack, "copying needs a context"
        ctypes.memmove(self._bytes_at(to, size), self._bytes_at(address, size), size)

    def _bytes_at(self, address: int, size: int) -> int:
        """Where bytes of the device really are: in `memory`, or made for an allocation."""
        if address in self.allocated and address not in self.memory:
            assert size <= self.allocated[address]
            self.memory[address] = np.zeros(self.allocated[address], np.uint8)
        for start, array in self.memory.items():
            if start <= address and address + size <= start + array.nbytes:
                return array.ctypes.data + address - start
        raise AssertionError(f"no memory at {address:#x}")

    def do_cuMemsetD32Async(self, to: int, value: int, count: int, stream: int | None) -> None:
        assert 4 * count <= self.allocated[to]

    def do_cuMemGetInfo(self, free: int, total: int) -> None:
        _set(free, ctypes.c_uint64, self.free_memory)
        _set(total, ctypes.c_uint64, 140 << 30)

    # -- events: each has the time at which it was recorded ----------------------------------------

    def do_cuEventCreate(self, out: int, flags: int) -> None:
        handle = next(self._handles)
        self.events[handle] = None
        _set(out, ctypes.c_uint64, handle)

    def do_cuEventRecord(self, event: int, stream: int | None) -> None:
        self.events[event] = self.now = self.now + self.tick

    def do_cuEventSynchronize(self, event: int) -> int:
        return 900 if self.capturing else 0

    def do_cuEventElapsedTime(self, out: int, start: int, end: int) -> None:
        first, last = self.events[start], self.events[end]
        assert first is not None
        assert last is not None
        _set(out, ctypes.c_float, last - first)

    def do_cuEventDestroy(self, event: int) -> None:
        del self.events[event]

    def do_cuPointerGetAttribute(self, out: int, number: int, address: int | None) -> int:
        if number == 3 and address in self.pinned:
            _set(out, ctypes.c_uint64, self.pinned[address])
            return 0
        if number == 9 and address in self.owners:
            _set(out, ctypes.c_int, self.owners[address or 0])
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

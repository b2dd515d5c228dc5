"""Compiled kernels that XLA's custom calls run: loading, and the table that native code reads.

    register = handler("cpu", (0, 3))   # the address that XLA calls
    name = offer(kernel)                # a kernel may be called by this name from now on

A program of XLA names a kernel by the hash of its code. The kernel is loaded by the first call that
runs it: from those that were offered, or from the disk cache if another process has compiled the
program. Loaded kernels stay loaded, since programs of XLA may refer to them for as long as the
process lives.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tilewright.base import knobs
from tilewright.base.diagnostics import DeviceError
from tilewright.base.fact_cache import cached_bytes
from tilewright.base.lazy_import import lazy_import
from tilewright.base.llvm_version import library_state
from tilewright.base.locks import Lock
from tilewright.base.machine_code import address_of
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.version import compiler_key
from tilewright.interop.xla_handlers import (
    AGAIN,
    ALIGNED,
    COUNT,
    DONE,
    GRID,
    IS_WORD,
    PLACES,
    RUNTIME,
    UNALIGNED,
    handler_text,
)
from tilewright.ir.types import numpy_of, scalar_type
from tilewright.runtime.cache import disk_cache
from tilewright.runtime.devices import cpu
from tilewright.runtime.devices.code import LoadedCode
from tilewright.runtime.launchers.packing import make_packer
from tilewright.runtime.native.layout import FIELDS, MAX_SLOTS
from tilewright.runtime.native.structure import Structure

if TYPE_CHECKING:
    from tilewright.runtime.devices import cuda, cuda_api, llvm
else:
    cuda = lazy_import("tilewright.runtime.devices.cuda")
    cuda_api = lazy_import("tilewright.runtime.devices.cuda_api")
    llvm = lazy_import("tilewright.runtime.devices.llvm")

KNOWN_MAJOR = 0
"""The version of XLA's foreign function interface whose structures are known. Minor versions of it
only add fields at the end of structures."""

ATTRIBUTES = ("kernel", "site")
_FIRST_SIZE = 256  # of the table
_MESSAGES = 64  # error messages that stay allocated until XLA has copied them

Prepare: Any = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
ErrorMessage: Any = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


Compile: TypeAlias = Callable[[], CompiledKernel]


class UnsupportedXla(RuntimeError):
    """The installed version of XLA calls handlers in another way than the known ones."""


def handler(backend: str, version: tuple[int, int]) -> int:
    """The address of the handler for kernels of a target.

    Args:
        backend: "cpu" or "cuda".
        version: the version of XLA's foreign function interface, as in `xla/ffi/api/c_api.h`.

    Raises:
        UnsupportedXla: this version is not known.
        RuntimeError: the machine has no thread pool for the CPU's handler.
    """
    if version[0] != KNOWN_MAJOR:
        raise UnsupportedXla(
            f"the installed jaxlib has version {version[0]}.{version[1]} of XLA's foreign function "
            f"interface; this version of tilewright knows {KNOWN_MAJOR}.x. Update tilewright, or "
            "install an older jax"
        )
    return _KERNELS.handler(backend, version)


def offer(kernel: CompiledKernel, compile_unaligned: Compile | None = None) -> str:
    """Make a kernel callable; returns the name by which programs refer to it.

    Args:
        compile_unaligned: compiles the kernel for arrays at any address. It is called by the first
            call with an array that is not aligned as the kernel was compiled for.
    """
    return _KERNELS.offer(kernel, compile_unaligned)


def site_words(
    kernel: CompiledKernel, grid: Sequence[int], slots: Any, places: dict[int, int]
) -> np.ndarray[Any, Any]:
    """The attribute "site" of a call; see `xla_handlers`.

    Args:
        grid: three extents.
        slots: values of the compiled kernel's arguments, those of arrays being 0.
        places: for each argument of the compiled kernel that is an array, its place.

    Raises:
        ValueError: the kernel has too many parameters.
    """
    arguments = kernel.metadata.arguments
    if len(arguments) > MAX_SLOTS:
        raise ValueError(f"{kernel.name} has {len(arguments)} arguments; at most {MAX_SLOTS}")
    flat = [((i,), type) for i, (_, type) in enumerate(arguments)]
    words = np.frombuffer(make_packer(flat)(slots), np.int64)
    pairs = [(places.get(i, IS_WORD), int(word)) for i, word in enumerate(words)]
    numbers = [number for pair in pairs for number in pair]
    return np.array([_key(kernel.hash), *grid, len(arguments), *numbers], np.int64)


def _key(hash: str) -> int:
    """A number for a hash: the first 63 bits, without UNALIGNED, and not 0."""
    return int(hash[:16], 16) >> 1 & ~UNALIGNED | 2


def table_key(name: str, context: int, unaligned: bool) -> int:
    """The key in the table of a kernel's code for a context of CUDA, 0 for the CPU."""
    return _key(name) ^ context ^ (UNALIGNED if unaligned else 0)


# -- the call frame -------------------------------------------------------------------------------


class Buffer(NamedTuple):
    """An operand or result of a call: its address, and its shape."""

    address: int
    shape: tuple[int, ...]


class Frame:
    """Python's view of a call frame.

    Attributes:
        name: of the kernel.
        site: the words of the attribute "site".
    """

    def __init__(self, address: int) -> None:
        self._address = address
        attributes = _words(self._field("attributes"), 2)
        text = _words(attributes[0], 2)
        self.name = ctypes.string_at(text[0], text[1]).decode()
        count, data = _words(attributes[1] + FIELDS["XlaArray"]["count"].offset, 2)
        self.site = _words(data, count)

    def _field(self, name: str) -> int:
        return ctypes.c_int64.from_address(self._address + FIELDS["XlaFrame"][name].offset).value

    @property
    def grid(self) -> tuple[int, int, int]:
        x, y, z = self.site[GRID:COUNT]
        return x, y, z

    def buffers(self) -> list[Buffer]:
        """The operands, then the results."""
        found = _words(self._field("arguments"), self._field("argument_count"))
        found += _words(self._field("results"), self._field("result_count"))
        return list(map(_buffer, found))

    @property
    def is_unaligned(self) -> bool:
        """Whether a buffer is not at an address that the kernel is compiled for."""
        places = self.site[PLACES::2]
        checked = [p & 0xFFFFFFFF for p in places if p != IS_WORD and p & ALIGNED]
        buffers = self.buffers()
        return any(buffers[i].address % 16 for i in checked)

    def arguments(self) -> Iterator[tuple[int, Buffer | None]]:
        """For each parameter its word, and its buffer if it is an array."""
        buffers = self.buffers()
        pairs = self.site[PLACES:]
        for place, word in zip(pairs[::2], pairs[1::2], strict=True):
            yield word, None if place == IS_WORD else buffers[place & 0xFFFFFFFF]


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address)) if count else []


def _buffer(address: int) -> Buffer:
    fields = FIELDS["XlaBuffer"]
    data, rank, dims = (
        ctypes.c_int64.from_address(address + fields[name].offset).value
        for name in ("data", "rank", "dims")
    )
    return Buffer(data, tuple(_words(dims, rank)))


# -- kernels --------------------------------------------------------------------------------------


class _Table:
    """The hash table of `xla_handlers._lookup`; native code reads it without a lock."""

    def __init__(self, runtime: Structure) -> None:
        self._runtime = runtime
        self._entries: dict[int, int] = {}
        self._tables: list[Any] = []  # all of them: a call may still read an older one
        self._grow(_FIRST_SIZE)

    def _grow(self, size: int) -> None:
        self._size = size
        self._words = (ctypes.c_int64 * (1 + 2 * size))()
        self._words[0] = size - 1
        for key, value in self._entries.items():
            self._put(key, value)
        self._tables.append(self._words)
        self._runtime.put("table", ctypes.addressof(self._words))

    def _put(self, key: int, value: int) -> None:
        at = key & (self._size - 1)
        while self._words[1 + 2 * at]:
            at = (at + 1) & (self._size - 1)
        # A key without its value counts as a miss, so the order of these stores is not essential.
        self._words[2 + 2 * at] = value
        self._words[1 + 2 * at] = key

    def add(self, key: int, value: int) -> None:
        if key in self._entries:
            return
        self._entries[key] = value
        if 2 * len(self._entries) > self._size:
            self._grow(2 * self._size)
        else:
            self._put(key, value)


class _Kernels:
    """The kernels of this process that XLA may call."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._offered: dict[str, CompiledKernel] = {}
        self._unaligned: dict[str, Compile] = {}
        self._loaded: dict[int, CompiledKernel] = {}  # by the key in the table
        self._records: list[Structure] = []
        self._handlers: dict[str, LoadedCode] = {}
        self._runtime = Structure("XlaRuntime")
        self._table = _Table(self._runtime)
        self._messages: deque[Any] = deque(maxlen=_MESSAGES)
        self._callbacks = Prepare(self._prepare), ErrorMessage(self._error_message)
        for name, function in zip(("prepare", "error_message"), self._callbacks, strict=True):
            self._runtime.put(name, address_of(function))

    def offer(self, kernel: CompiledKernel, compile_unaligned: Compile | None = None) -> str:
        self._offered.setdefault(kernel.hash, kernel)
        if compile_unaligned is not None:
            self._unaligned.setdefault(kernel.hash, compile_unaligned)
        return kernel.hash

    def handler(self, backend: str, version: tuple[int, int]) -> int:
        with self._lock:
            if backend not in self._handlers:
                self._runtime.put("major", version[0])
                self._runtime.put("minor", version[1])
                _CONNECT[backend](self._runtime)
                self._handlers[backend] = _load_handler(backend, self._runtime.address)
        return self._handlers[backend][f"execute_{backend}"]

    # -- called by native code ------------------------------------------------------------------

    def _prepare(self, address: int) -> int:
        """See `XlaRuntime.prepare`."""
        try:
            return self._prepared(Frame(address))
        except BaseException as error:
            return self._message(f"{type(error).__name__}: {error}")

    def _prepared(self, frame: Frame) -> int:
        unaligned = frame.is_unaligned
        offered = self._offered.get(frame.name) or self._from_disk(frame.name)
        of_gpu = offered.metadata.target.backend == "cuda"
        context = cuda.device(cuda.current_index()).context if of_gpu else 0
        key = table_key(frame.name, context, unaligned)
        with self._lock:
            kernel = self._loaded.get(key)
            if kernel is None:
                kernel = self._compiled_unaligned(offered) if unaligned else offered
                if of_gpu:
                    kernel = copy(kernel)
                    kernel.device, kernel.loaded = f"cuda:{cuda.current_index()}", None
                _ = kernel.run
                self._loaded[key] = kernel
            record = _record(kernel)
            if record is not None:
                self._records.append(record)
                self._table.add(key, record.address)
        if record is not None:
            return AGAIN
        if 0 not in frame.grid:
            _start(kernel, frame)
        return DONE

    def _compiled_unaligned(self, kernel: CompiledKernel) -> CompiledKernel:
        compile = self._unaligned.get(kernel.hash)
        if compile is None:
            raise DeviceError(
                f"an array that is passed to {kernel.name} is at an address that is not divisible "
                "by 16, as the kernel was compiled for in another process: trace the function "
                "again in this process"
            )
        return compile()

    def _from_disk(self, name: str) -> CompiledKernel:
        files = disk_cache().get(name)
        if files is None:
            raise DeviceError(
                f"the kernel {name[:12]}…, which a compiled or exported program of JAX calls, is "
                "not in tilewright's cache: trace the function again in this process"
            )
        return self._offered.setdefault(name, CompiledKernel.from_files(files))

    def _error_message(self, address: int, status: int) -> int:
        """The message for a status of the CUDA driver."""
        try:
            frame = Frame(address)
            name = self._offered[frame.name].name
            doing = f"launching {name} with grid {frame.grid}"
            return self._message(str(cuda_api.connect().error(status, doing)))
        except BaseException as error:
            return self._message(f"{type(error).__name__}: {error}")

    def _message(self, text: str) -> int:
        """The address of a C string, which XLA copies at once."""
        kept = ctypes.create_string_buffer(text.encode())
        self._messages.append(kept)
        return ctypes.addressof(kept)


def _record(kernel: CompiledKernel) -> Structure | None:
    """The structure XlaKernel of a loaded kernel; None if only Python can run it."""
    describe = getattr(kernel.loaded, "native_fields", None)
    fields: dict[str, int] | None = describe() if describe else None
    if fields is None:
        return None
    record = Structure("XlaKernel")
    for name in fields.keys() & FIELDS["XlaKernel"].keys():
        record.put(name, fields[name])
    if kernel.metadata.target.backend == "cuda":
        record.put("scratch", kernel.metadata.get("global_scratch_size", 0))
        record.put("scratch_align", kernel.metadata.get("global_scratch_align", 1))
        return record
    pool = cpu.native_pool()
    assert pool is not None
    threads = fields["threads"] or knobs.runtime.cpu_threads or fields["cores"]
    record.put("workers", pool.grow(threads - 1))
    return record


def _start(kernel: CompiledKernel, frame: Frame) -> None:
    """Launch a kernel from Python: one that prints, or that the interpreter executes."""
    values: dict[int, Any] = {}
    slots: dict[int, Any] = {}
    for (path, type), (word, buffer) in zip(
        kernel.metadata.arguments, frame.arguments(), strict=True
    ):
        if buffer is None:
            value = slot = _number(word, type)
        else:
            value, slot = _array(buffer, type), buffer.address
        _put(values, path, value)
        _put(slots, path, slot)
    assert kernel.loaded is not None
    kernel.loaded.start(frame.grid, values, slots)  # pyright: ignore[reportArgumentType]


def _put(tree: dict[int, Any], path: Sequence[int], value: Any) -> None:
    for index in path[:-1]:
        tree = tree.setdefault(index, {})
    tree[path[-1]] = value


def _number(word: int, type: str) -> Any:
    dtype = numpy_of(scalar_type(type))
    return np.array([word], np.int64).view(np.uint8)[: dtype.itemsize].view(dtype)[0].item()


def _array(buffer: Buffer, type: str) -> np.ndarray[Any, Any]:
    dtype = numpy_of(scalar_type(type.lstrip("*k")))
    count = int(np.prod(buffer.shape, dtype=np.int64))
    if not count:
        return np.empty(buffer.shape, dtype)
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(buffer.address)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(buffer.shape)


# -- the runtime ----------------------------------------------------------------------------------


def _load_handler(backend: str, runtime: int) -> LoadedCode:
    depends_on = compiler_key(), sys.platform, platform.machine(), library_state()
    code = cached_bytes(
        f"XLA handler for {backend}", depends_on, lambda: llvm.assemble(handler_text(backend), 1)
    )
    return LoadedCode(code, [f"execute_{backend}"], {RUNTIME: runtime})


def _connect_cpu(runtime: Structure) -> None:
    pool = cpu.native_pool()
    if pool is None:
        raise RuntimeError("kernels are called by XLA on systems with POSIX threads only")
    runtime.put("pool", pool.state)
    runtime.put("slice", cpu.SLICE_NS)
    for name in ("pool_launch", "pool_help"):
        runtime.put(name, pool.address_of(name))


def _connect_cuda(runtime: Structure) -> None:
    runtime.put("get_current", address_of(cuda_api.connect().cuCtxGetCurrent))


_CONNECT = {"cpu": _connect_cpu, "cuda": _connect_cuda}
_KERNELS = _Kernels()

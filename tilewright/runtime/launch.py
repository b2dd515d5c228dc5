"""Loaded kernels: how each backend runs the programs of a grid on bound arguments.

A binder gives the arguments of a call in two forms (`runtime/specialize.py`): the `values` that the
caller passed, and the `slots`, in which tensors are addresses. A loaded kernel takes both, with
those of compile-time parameters among them, and picks what it needs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any

import numpy as np

from tilewright.base import knobs
from tilewright.compiler.artifact import CompiledKernel, Launch, install_launcher
from tilewright.compiler.driver import install_store
from tilewright.ir.interpret import Buffer, Checks, interpret
from tilewright.ir.parser import parse_module
from tilewright.ir.types import numpy_of, scalar_type
from tilewright.runtime.cache import disk_cache
from tilewright.runtime.tensors import CPU, UNKNOWN, find_reader

Path = tuple[int, ...]
Grid = tuple[int, int, int]


def extents_of(grid: Any) -> Grid:
    """The three extents of a launch grid.

    Raises:
        TypeError: it is no tuple or list of whole numbers.
        ValueError: it has not one to three of them, or a negative one.
    """
    # What nearly every launch passes takes no loop.
    if type(grid) is tuple and 1 <= len(grid) <= 3:
        x, y, z = grid if len(grid) == 3 else (*grid, 1) if len(grid) == 2 else (grid[0], 1, 1)
        if type(x) is int and type(y) is int and type(z) is int and x >= 0 and y >= 0 and z >= 0:
            return x, y, z
    return _checked_extents(grid)


def _checked_extents(grid: Any) -> Grid:
    try:
        axes = [int(n) if isinstance(n, np.integer) else n for n in grid]
    except TypeError:
        raise TypeError(
            f"a grid is a tuple of one to three ints, or a function that gives one, not {grid!r}"
        ) from None
    if not 1 <= len(axes) <= 3:
        raise ValueError(f"a grid has one to three axes, not {len(axes)}: {grid!r}")
    for axis, n in zip("xyz", axes, strict=False):
        if not isinstance(n, int):
            raise TypeError(f"axis {axis} of the grid is {n!r}, a {type(n).__name__}, not an int")
        if n < 0:
            raise ValueError(f"axis {axis} of the grid is {n}, which is negative")
    x, y, z = (*axes, 1, 1)[:3]
    return int(x), int(y), int(z)


def describe_tensor(value: Any, device: str) -> str:
    """What a tensor is and where it lives, in words."""
    kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    shape = getattr(value, "shape", None)
    return f"a {kind}{f' of shape {tuple(shape)}' if shape is not None else ''} on {device!r}"


def require_cpu(value: Any, index: int, name: str = "") -> None:
    """Raise ValueError if the value is a tensor that is not in the CPU's memory."""
    reader = find_reader(value)
    device = reader(value)[2] if reader is not None else CPU
    if device != CPU:
        what = f" `{name}`" if name else ""
        raise ValueError(
            f"Pointer argument (at {index}) cannot be accessed from the CPU ({device} tensor?): "
            f"argument{what} is {describe_tensor(value, device)}, and the kernel runs on the CPU. "
            "Pass a tensor in the CPU's memory, such as `.cpu()` of it gives."
        )


def slot_of(value: Any, index: int) -> Any:
    """What a binder would put in the place of an argument: the address of a tensor."""
    if isinstance(value, tuple):
        return tuple(slot_of(item, index) for item in value)
    reader = find_reader(value)
    if reader is None:
        return value
    require_cpu(value, index)
    return reader(value)[0]


# -- packing ------------------------------------------------------------------------------------

# How `struct` writes a scalar into an 8-byte slot. Integers are extended to its width.
_FORMATS = {
    **{f"i{bits}": "q" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": "Q" for bits in (8, 16, 32, 64)},
    "i1": "?7x",
    "u1": "?7x",
    "fp16": "e6x",
    "fp32": "f4x",
    "fp64": "d",
}


def _bits_of(short: str) -> Callable[[Any], int]:
    """A function that gives a number's bits in a floating-point type."""
    dtype = numpy_of(scalar_type(short))
    unsigned = np.dtype(f"u{dtype.itemsize}")

    def bits(value: Any) -> int:
        with np.errstate(over="ignore"):
            return int(np.asarray(value, np.float64).astype(dtype).view(unsigned))

    return bits


def make_packer(arguments: Sequence[tuple[Sequence[int], str]]) -> Callable[[Any], bytes]:
    """A function from slots to the array of 8-byte slots that a compiled kernel reads.

    Args:
        arguments: path and type string of each argument passed at run time.

    A fresh bytes object for each call costs less than filling a kept buffer (measured for five
    arguments: 0.16 µs; a ctypes array 0.67, a NumPy record 0.66), and no two threads share it.
    """
    names: dict[str, Any] = {}
    usual: list[tuple[str, str]] = []  # format and expression of each slot
    wide: list[tuple[str, str]] = []  # the same for numbers beyond the range of their type
    for path, type in arguments:
        item = "slots" + "".join(f"[{index}]" for index in path)
        bits = item
        if type.startswith(("fp", "bf")):
            names[f"bits_{type}"] = _bits_of(type)
            bits = f"bits_{type}({item})"
        format = "Q" if type.startswith("*") else _FORMATS.get(type)
        usual.append((format, item) if format else ("Q", bits))
        wide.append(("Q", bits) if bits is not item else usual[-1])
    names["pack"] = struct.Struct("=" + "".join(f for f, _ in usual)).pack
    names["pack_wide"] = struct.Struct("=" + "".join(f for f, _ in wide)).pack
    # struct refuses a number beyond a type's range, where a kernel sees an infinity.
    source = (
        "def packer(slots):\n"
        "    try:\n"
        f"        return pack({', '.join(e for _, e in usual)})\n"
        "    except OverflowError:\n"
        f"        return pack_wide({', '.join(e for _, e in wide)})\n"
    )
    exec(compile(source, "<packer>", "exec"), names)
    return names["packer"]


# -- loaded kernels -----------------------------------------------------------------------------


class CpuLaunch:
    """Machine code in this process, run by the thread pool."""

    def __init__(self, kernel: CompiledKernel) -> None:
        # By name, as this loads LLVM, which importing the package must not.
        device = resolve_name("tilewright.runtime.devices.cpu")
        metadata = kernel.metadata
        self._code = device.LoadedCode(kernel.kernel, [kernel.name])
        self._function: int = self._code[kernel.name]
        self._pack = make_packer(metadata.arguments)
        self._run = device.launch
        self._scratch_bytes: int = metadata.get("scratch_bytes", 0)
        self._threads: int = metadata.get("num_cpu_threads", 0)
        # Asking the system costs as much as a launch, and the answer hardly ever changes.
        self._all_threads: int = device.thread_count()

    @property
    def handle(self) -> int:
        return self._function

    def start(self, grid: Grid, values: Sequence[Any], slots: Sequence[Any]) -> None:
        threads = self._threads or knobs.runtime.cpu_threads or self._all_threads
        # ctypes passes a bytes object as the address of its contents.
        self._run(self._function, self._pack(slots), grid, self._scratch_bytes, threads)


class InterpreterLaunch:
    """Tile IR, run on NumPy."""

    def __init__(self, kernel: CompiledKernel) -> None:
        metadata = kernel.metadata
        self._module = parse_module(str(kernel.kernel), kernel.name)
        self._module.entry.arg_names = list(metadata.arg_names)
        self._arguments = [(tuple(path), type) for path, type in metadata.arguments]
        self._seed: int | None = metadata.seed
        self._checks = Checks(
            races=metadata.check_races, uninitialised=metadata.check_uninitialised
        )

    @property
    def handle(self) -> Any:
        """The module."""
        return self._module

    def start(self, grid: Grid, values: Sequence[Any], slots: Sequence[Any]) -> None:
        # A number beyond the range of its type is an infinity, which is no reason for a warning.
        with np.errstate(over="ignore"):
            args = [self._argument(values, slots, *argument) for argument in self._arguments]
        interpret(self._module, grid, args, checks=self._checks, seed=self._seed)

    def _argument(self, values: Sequence[Any], slots: Sequence[Any], path: Path, type: str) -> Any:
        value = at_path(values, path)
        if not type.startswith("*"):
            dtype = numpy_of(scalar_type(type))
            return dtype.type(value) if dtype.kind not in "iub" else value
        reader = find_reader(value)
        if reader is None:
            return at_path(slots, path) or 0
        address, _, _, low, high, writable = reader(value)
        extent = (low, high) if low != UNKNOWN else None
        return Buffer(address, extent, writable, owner=value)


def at_path(values: Any, path: Sequence[int]) -> Any:
    """The value at a path: index of the parameter, index in the tuple, …"""
    for index in path:
        values = values[index]
    return values


LOADERS: dict[str, Callable[[CompiledKernel], Launch]] = {
    "cpu": CpuLaunch,
    "interpreter": InterpreterLaunch,
}


def load(kernel: CompiledKernel) -> Launch:
    """Make a compiled kernel ready to run.

    Raises:
        RuntimeError: there is no launcher for its target.
    """
    backend = kernel.metadata.target.backend
    loader = LOADERS.get(backend)
    if loader is None:
        raise RuntimeError(
            f"{kernel.name} is compiled for {backend!r}, whose kernels cannot be launched here; "
            f"those for {', '.join(sorted(LOADERS))} can"
        )
    return loader(kernel)


class _Launcher:
    """What `CompiledKernel` asks of the runtime."""

    def load(self, kernel: CompiledKernel) -> Launch:
        return load(kernel)

    def launch(self, kernel: CompiledKernel, grid: Any, args: Sequence[Any]) -> None:
        extents = extents_of(grid)
        slots = [slot_of(value, i) for i, value in enumerate(args)]
        if 0 not in extents:
            kernel.run.start(extents, args, slots)


install_launcher(_Launcher())
install_store(disk_cache)

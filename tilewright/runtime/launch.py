"""Loading compiled kernels, and launching them on bound arguments.

A binder provides the arguments of a call in two forms (`runtime/specialize.py`): the `values` that
the caller passed, and the `slots`, in which tensors are replaced by addresses. A loaded kernel
takes both, including those of compile-time parameters, and picks what it needs.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base import knobs
from tilewright.base.fact_cache import install_fact_store
from tilewright.base.lazy_import import lazy_import
from tilewright.base.plug_ins import LAUNCHERS, load_plug_in, plug_ins
from tilewright.compiler.artifact import CompiledKernel, Launch, Run, install_launcher
from tilewright.compiler.driver import install_store
from tilewright.runtime import driver
from tilewright.runtime.cache import disk_cache
from tilewright.runtime.descriptors import is_descriptor, parts_of
from tilewright.runtime.placement import device_of, devices_of, require_cpu
from tilewright.runtime.tensors import CPU, find_reader

if TYPE_CHECKING:
    from tilewright.runtime.launchers import cpu, cuda, interpreter
    from tilewright.runtime.native import compiled
else:
    compiled = lazy_import("tilewright.runtime.native.compiled")
    cpu = lazy_import("tilewright.runtime.launchers.cpu")
    cuda = lazy_import("tilewright.runtime.launchers.cuda")
    interpreter = lazy_import("tilewright.runtime.launchers.interpreter")

Path = tuple[int, ...]
Grid = tuple[int, int, int]


def extents_of(grid: Any) -> Grid:
    """The three extents of a launch grid.

    Raises:
        TypeError: it is not a tuple or list of ints.
        ValueError: it does not have one to three extents, or has a negative one.
    """
    # Fast path for the common case.
    if type(grid) is tuple and 1 <= len(grid) <= 3:
        x, y, z = grid if len(grid) == 3 else (*grid, 1) if len(grid) == 2 else (grid[0], 1, 1)
        if type(x) is int and type(y) is int and type(z) is int and x >= 0 and y >= 0 and z >= 0:
            return x, y, z
    return _checked_extents(grid)


def _checked_extents(grid: Any) -> Grid:
    if type(grid) not in (tuple, list) and not _is_sequence(grid):
        raise TypeError(
            f"a grid is a tuple of one to three ints, or a function that gives one, not {grid!r}"
        )
    if not 1 <= len(grid) <= 3:  # before iterating, as it may be a range of a million
        raise ValueError(f"a grid has one to three axes, not {len(grid)}: {grid!r}")
    axes = [_extent(axis, n) for axis, n in zip("xyz", grid, strict=False)]
    x, y, z = (*axes, 1, 1)[:3]
    return x, y, z


def _extent(axis: str, value: Any) -> int:
    """An extent from anything that Python takes as an index, such as a NumPy integer or an integer
    tensor of one element."""
    try:
        extent = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        message = f"axis {axis} of the grid is {value!r}, a {kind}, not an int"
        raise TypeError(message) from None
    if extent < 0:
        raise ValueError(f"axis {axis} of the grid is {extent}, which is negative")
    return extent


def _is_sequence(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def slot_of(value: Any) -> Any:
    """The slot of an argument: the address of a tensor, or the parts of a descriptor."""
    if isinstance(value, tuple):
        return tuple(map(slot_of, value))
    if is_descriptor(value):
        return tuple(map(slot_of, parts_of(value)))
    reader = find_reader(value)
    return value if reader is None else reader(value)[0]


def at_path(values: Any, path: Sequence[int]) -> Any:
    """The value at a path: parameter index, then index in the tuple or descriptor, …"""
    for index in path:
        values = (parts_of(values) if is_descriptor(values) else values)[index]
    return values


# -- launch hooks ---------------------------------------------------------------------------------


def _current_stream(kernel: CompiledKernel) -> int:
    """The current stream for launches of a kernel; 0 if it has none."""
    kind, _, index = kernel.device.partition(":")
    return driver.driver_of(kind).get_current_stream(int(index or 0)) if kind else 0


class LaunchMetadata:
    """The argument of launch hooks, computed lazily."""

    def __init__(
        self, kernel: CompiledKernel, grid: Grid, values: Sequence[Any], stream: Any = None
    ) -> None:
        self._kernel = kernel
        self._stream = stream
        self._grid = grid
        self._values = values

    @property
    def kernel_name(self) -> str:
        """The symbol name of the kernel."""
        return self._kernel.name

    @property
    def device(self) -> str:
        """The device of the launch, such as ``cuda:0``, or ``cpu``."""
        backend = self._kernel.metadata.target.backend
        if backend == CPU or not driver.has_driver(backend):
            return CPU
        return self._kernel.device or f"{backend}:{driver.driver_of(backend).get_current_device()}"

    @property
    def stream(self) -> int:
        """The handle of the stream of the launch; 0 if its device has none."""
        return _current_stream(self._kernel) if self._stream is None else int(self._stream)

    def get(self) -> dict[str, Any]:
        """name, function and stream, and the result of the kernel's `launch_metadata` for the grid,
        the kernel's metadata and the arguments by name."""
        kernel = self._kernel
        found = {"name": kernel.name, "function": kernel.function, "stream": self.stream}
        more = getattr(getattr(kernel.src, "fn", None), "launch_metadata", None)
        if more is not None:
            named = dict(zip(kernel.metadata.signature, self._values, strict=True))
            found.update(more(self._grid, kernel.metadata, named))
        return found


def start_with_hooks(
    kernel: CompiledKernel, grid: Grid, values: Sequence[Any], slots: Sequence[Any]
) -> None:
    """Launch, calling the enter and exit hooks."""
    metadata = LaunchMetadata(kernel, grid, values)
    knobs.runtime.launch_enter_hook(metadata)
    kernel.load().start(grid, values, slots)
    knobs.runtime.launch_exit_hook(metadata)


# -- loaded kernels -----------------------------------------------------------------------------


LOADERS: dict[str, Callable[[CompiledKernel], Launch]] = {
    "cpu": lambda kernel: cpu.CpuLaunch(kernel),
    "cuda": lambda kernel: cuda.CudaLaunch(kernel),
    "interpreter": lambda kernel: interpreter.InterpreterLaunch(kernel),
}

COPYING = frozenset({"interpreter"})
"""Backends that run in this process and mirror tensors of other devices."""


def load(kernel: CompiledKernel) -> Launch:
    """Load a compiled kernel.

    Raises:
        RuntimeError: its target has no launcher.
    """
    backend = kernel.metadata.target.backend
    loader = LOADERS.get(backend)
    if loader is None and backend in plug_ins(LAUNCHERS):
        loader = LOADERS[backend] = load_plug_in(LAUNCHERS, backend)
    if loader is None:
        raise RuntimeError(
            f"{kernel.name} is compiled for {backend!r}, whose kernels cannot be launched here; "
            f"those for {', '.join(sorted(LOADERS))} can"
        )
    start, end = knobs.runtime.kernel_load_start_hook, knobs.runtime.kernel_load_end_hook
    gone = knobs.runtime.kernel_unload_hook
    if not (start.calls or end.calls or gone.calls):
        return loader(kernel)
    about = kernel.name, kernel.metadata_group, kernel.hash
    start(None, None, *about)
    loaded = loader(kernel)
    end(None, loaded.handle, *about)
    if gone.calls:
        weakref.finalize(loaded, gone, None, loaded.handle, *about).atexit = False
    return loaded


def _settle(kernel: CompiledKernel, args: Sequence[Any]) -> None:
    """Set the device of a kernel to that of its arguments.

    Raises:
        ValueError: the kernel cannot run there, or is loaded on another device.
    """
    backend = kernel.metadata.target.backend
    names = list(kernel.metadata.signature)
    copies = backend in COPYING
    if not copies and (backend == CPU or not driver.has_driver(backend)):
        require_cpu(args, names)
        return
    devices = devices_of(args, names)
    if not devices:
        return
    device = device_of(devices, args, names)
    if copies:
        return
    if device.partition(":")[0] != backend:
        raise ValueError(f"{kernel.name} is compiled for {backend!r}; its tensors are on {device}")
    if kernel.settle(device) != device:
        raise ValueError(
            f"{kernel.name} is loaded on {kernel.device}; its tensors are on {device}. Compile it "
            "again for that device, or launch the kernel that it was compiled from."
        )


def _require_current(kernel: CompiledKernel, stream: int) -> None:
    """Raise ValueError unless the stream is the current one."""
    current = _current_stream(kernel)
    if stream != current:
        raise ValueError(
            f"{kernel.name} is launched on the current stream, {current}, not on {stream}: make "
            "that current, as `with torch.cuda.stream(…)` does"
        )


class _Launcher:
    """The implementation of `Launcher` for `CompiledKernel`."""

    def load(self, kernel: CompiledKernel) -> Launch:
        return load(kernel)

    def launch(
        self,
        kernel: CompiledKernel,
        grid: Any,
        args: Sequence[Any],
        stream: int | None,
        hooks: bool = True,
    ) -> None:
        extents = extents_of(grid)
        _settle(kernel, args)
        slots = [slot_of(value) for value in args]
        loaded = kernel.load()
        if stream is not None:
            _require_current(kernel, stream)
        if 0 in extents:
            return
        if hooks:
            start_with_hooks(kernel, extents, args, slots)
        else:
            loaded.start(extents, args, slots)

    def runner(self, kernel: CompiledKernel, python: Run) -> Run:
        return compiled.native_run(kernel, python) or python

    def launch_metadata(
        self, kernel: CompiledKernel, grid: Any, stream: Any, args: Sequence[Any]
    ) -> LaunchMetadata | None:
        if not knobs.launch_hooks:
            return None
        return LaunchMetadata(kernel, extents_of(grid), args, stream)


install_launcher(_Launcher())
install_store(disk_cache)
install_fact_store(disk_cache)

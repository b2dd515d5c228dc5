"""Loading compiled kernels, and launching them on bound arguments.

A binder provides the arguments of a call in two forms (`runtime/specialize.py`): the `values` that
the caller passed, and the `slots`, in which tensors are replaced by addresses. A loaded kernel
takes both, including those of compile-time parameters, and selects from them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.base import knobs
from tilewright.base.fact_cache import install_fact_store
from tilewright.base.lazy_import import lazy_import
from tilewright.base.plug_ins import (
    LAUNCHERS,
    PlugInError,
    faults_of,
    load_plug_in,
    plug_ins,
    provider_of,
)
from tilewright.compiler.artifact import CompiledKernel, Launch, Run, install_launcher
from tilewright.compiler.driver import install_store
from tilewright.runtime import driver
from tilewright.runtime.cache import disk_cache
from tilewright.runtime.grid import Grid, extents_of
from tilewright.runtime.placement import device_of, devices_of, require_cpu
from tilewright.runtime.slots import slot_of
from tilewright.runtime.tensors import CPU

if TYPE_CHECKING:
    from tilewright.runtime.launchers import cpu, cuda, hip, interpreter
    from tilewright.runtime.native import compiled
else:
    compiled = lazy_import("tilewright.runtime.native.compiled")
    cpu = lazy_import("tilewright.runtime.launchers.cpu")
    cuda = lazy_import("tilewright.runtime.launchers.cuda")
    hip = lazy_import("tilewright.runtime.launchers.hip")
    interpreter = lazy_import("tilewright.runtime.launchers.interpreter")

# -- launch hooks ---------------------------------------------------------------------------------


def _current_stream(kernel: CompiledKernel) -> int:
    """The current stream for launches of a kernel; 0 if it has none."""
    return driver.current_stream(kernel.device) if kernel.device else 0


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
        return self._kernel.device or driver.name_of(driver.driver_of(backend))

    @property
    def stream(self) -> int:
        """The handle of the stream of the launch; 0 if its device has none."""
        return _current_stream(self._kernel) if self._stream is None else int(self._stream)

    def get(self) -> dict[str, Any]:
        """name, function and stream, and the result of the kernel's `launch_metadata` for the grid,
        the kernel's metadata and the arguments by name."""
        kernel = self._kernel
        result = {"name": kernel.name, "function": kernel.function, "stream": self.stream}
        more = getattr(getattr(kernel.src, "fn", None), "launch_metadata", None)
        if more is not None:
            named = dict(zip(kernel.metadata.signature, self._values, strict=True))
            result.update(more(self._grid, kernel.metadata, named))
        return result


def start_with_hooks(
    kernel: CompiledKernel, grid: Grid, values: Sequence[Any], slots: Sequence[Any]
) -> None:
    """Launch, calling the enter and exit hooks. The kernel is loaded before: a profiler takes the
    time between them as that of the kernel."""
    loaded = kernel.load()
    metadata = LaunchMetadata(kernel, grid, values)
    knobs.runtime.launch_enter_hook(metadata)
    loaded.start(grid, values, slots)
    knobs.runtime.launch_exit_hook(metadata)


# -- loaded kernels -----------------------------------------------------------------------------


LOADERS: dict[str, Callable[[CompiledKernel], Launch]] = {
    "cpu": lambda kernel: cpu.CpuLaunch(kernel),
    "cuda": lambda kernel: cuda.CudaLaunch(kernel),
    "hip": lambda kernel: hip.HipLaunch(kernel),
    "interpreter": lambda kernel: interpreter.InterpreterLaunch(kernel),
}

COPYING = frozenset({"interpreter"})
"""Backends that run in this process and mirror tensors of other devices."""


def has_launcher(backend: str) -> bool:
    """Whether kernels that are compiled for a target can be loaded in this process."""
    return backend in LOADERS or backend in plug_ins(LAUNCHERS)


def _loaded(
    backend: str, launcher: Callable[[CompiledKernel], Any], kernel: CompiledKernel
) -> Launch:
    """A kernel that the launcher of a plug-in loads."""
    provider = provider_of(LAUNCHERS, backend)
    with faults_of(provider):
        loaded = launcher(kernel)
    missing = [name for name in ("start", "handle") if not hasattr(loaded, name)]
    if missing:
        raise PlugInError(
            f"{provider} is not a launcher: it returns {loaded!r}, which has no "
            f"{', '.join(missing)}"
        )
    return loaded


def load(kernel: CompiledKernel) -> Launch:
    """Load a compiled kernel.

    Raises:
        RuntimeError: its target has no launcher.
        PlugInError: it is one of a plug-in that cannot be used.
    """
    backend = kernel.metadata.target.backend
    loader = LOADERS.get(backend)
    if loader is None and backend in plug_ins(LAUNCHERS):
        loader = LOADERS[backend] = partial(_loaded, backend, load_plug_in(LAUNCHERS, backend))
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

"""Launches by the driver of a back end of Triton."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tilewright.compiler.artifact import CompiledKernel
from tilewright.ir.types import scalar_type
from tilewright.runtime.errors import OutOfResources
from tilewright.runtime.slots import at_path
from tilewright_triton.upstream import upstream


class TritonLaunch:
    """A kernel loaded by Triton's active driver, on its current device.

    Attributes:
        handle: the function, as the driver's `load_binary` returns it.
        n_regs, n_spills, n_max_threads: as it reports them.
    """

    def __init__(self, kernel: CompiledKernel) -> None:
        metadata = dict(kernel.metadata.vendor)
        self._arguments = [(tuple(path), type) for path, type in kernel.metadata.arguments]
        with upstream():
            compilers = importlib.import_module("triton.backends.compiler")
            driver = importlib.import_module("triton.runtime").driver.active
            target = compilers.GPUTarget(**metadata["target"])
            about = SimpleNamespace(**{**metadata, "target": target, "hash": kernel.hash})
            about.name = kernel.name
            self._device = driver.get_current_device()
            limit = driver.utils.get_device_properties(self._device)["max_shared_mem"]
            if about.shared > limit:
                raise OutOfResources(about.shared, limit, "shared memory")
            backends = importlib.import_module("triton.backends").backends
            compiler = next(
                b.compiler for b in backends.values() if b.compiler.supports_target(target)
            )
            self._packed = compiler(target).pack_metadata(about)
            self._run = driver.launcher_cls(_source(self._arguments), about)
            found = driver.utils.load_binary(kernel.name, kernel.kernel, about.shared, self._device)
            self._module, self.handle, self.n_regs, self.n_spills, self.n_max_threads = found
            self._stream_of = driver.get_current_stream

    def start(
        self, grid: tuple[int, int, int], values: Sequence[Any], slots: Sequence[Any]
    ) -> None:
        args = [_plain(at_path(slots, path), type) for path, type in self._arguments]
        with upstream():
            stream = self._stream_of(self._device)
            self._run(*grid, stream, self.handle, self._packed, None, None, None, *args)


def _plain(value: Any, type: str) -> int | float:
    """An argument as launchers take it: a Python number, an integer modulo its range."""
    if type.startswith("*"):
        return int(value or 0)
    element = scalar_type(type)
    if element.is_floating():
        return float(value)
    if element.is_bool():
        return int(value != 0)
    low = element.get_int_min_value()
    return (int(value) - low) % (1 << element.primitive_bitwidth) + low


def _source(arguments: Sequence[tuple[Any, str]]) -> SimpleNamespace:
    """The attributes of a kernel's source that a launcher reads: all arguments are passed at run
    time."""
    names = [f"arg{i}" for i in range(len(arguments))]
    signature = dict(zip(names, (type for _, type in arguments), strict=True))
    return SimpleNamespace(
        signature=signature, constants={}, attrs={}, fn=SimpleNamespace(arg_names=names)
    )

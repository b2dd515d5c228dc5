"""Loaded kernels: how each backend runs the programs of a grid on bound arguments.

A binder gives the arguments of a call in two forms (`runtime/specialize.py`): the `values` that the
caller passed, and the `slots`, in which tensors are addresses. A loaded kernel takes both, with
those of compile-time parameters among them, and picks what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.late import late
from tilewright.compiler.artifact import CompiledKernel, Launch, install_launcher
from tilewright.compiler.driver import install_store
from tilewright.runtime.cache import disk_cache
from tilewright.runtime.tensors import CPU, find_reader

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


def at_path(values: Any, path: Sequence[int]) -> Any:
    """The value at a path: index of the parameter, index in the tuple, …"""
    for index in path:
        values = values[index]
    return values


# -- loaded kernels -----------------------------------------------------------------------------


LOADERS: dict[str, Callable[[CompiledKernel], Launch]] = {
    "cpu": late("tilewright.runtime.launchers.cpu:CpuLaunch"),
    "interpreter": late("tilewright.runtime.launchers.interpreter:InterpreterLaunch"),
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

"""The launcher of the NPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.compiler.artifact import CompiledKernel
from tilewright.ir.types import numpy_of, scalar_type
from tilewright.runtime.slots import at_path
from tilewright_npu.device import MEMORY
from tilewright_npu.instructions import Image
from tilewright_npu.simulator import Grid, Simulator


class NpuLaunch:
    """A loaded kernel.

    Attributes:
        handle: the simulator that has it loaded.
        cycles: of the last launch.
    """

    def __init__(self, kernel: CompiledKernel) -> None:
        self.handle = Simulator(Image.decode(kernel.kernel), MEMORY)
        self._arguments = [(tuple(path), type) for path, type in kernel.metadata.arguments]
        self.cycles = 0

    def start(self, grid: Grid, values: Sequence[Any], slots: Sequence[Any]) -> None:
        args = [_register(at_path(slots, path), type) for path, type in self._arguments]
        self.cycles = MEMORY.cycles = self.handle.launch(grid, args)


def _register(value: Any, type: str) -> Any:
    if type.startswith("*"):
        return np.uint64(value or 0)
    dtype = numpy_of(scalar_type(type))
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(dtype)[()]

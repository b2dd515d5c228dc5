"""Launching for the target `hip`, through the HIP runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime.devices.hip import current_index, current_stream, device
from tilewright.runtime.grid import Grid
from tilewright.runtime.launchers.argument_block import ArgumentBlocks
from tilewright.runtime.launchers.packing import make_packer


class HipLaunch:
    """A kernel loaded on the device `kernel.device`, or on the current device if that is empty."""

    def __init__(self, kernel: CompiledKernel) -> None:
        metadata = kernel.metadata
        _, _, index = kernel.device.partition(":")
        gpu = device(int(index) if index else current_index())
        kernel.device = gpu.name
        self._index = gpu.index
        self._function = gpu.load(kernel.kernel, kernel.name)
        self._threads: int = metadata.num_warps * metadata.warp_size
        self._pack = make_packer(metadata.arguments)
        self._blocks = ArgumentBlocks(len(metadata.arguments))

    @property
    def handle(self) -> int:
        """hipFunction_t of the kernel."""
        return self._function.handle

    @property
    def module(self) -> int:
        """hipModule_t that contains the kernel."""
        return self._function.module

    def start(self, grid: Grid, values: Sequence[Any], slots: Sequence[Any]) -> None:
        block = self._blocks.take()
        block.slots[:] = self._pack(slots)
        stream = current_stream(self._index)
        self._function.launch(grid, self._threads, stream, block.parameters)
        self._blocks.give_back(block)

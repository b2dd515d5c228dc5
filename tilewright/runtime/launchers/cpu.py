"""Launching for the target `cpu`. Loads LLVM, whose JIT holds the code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base import knobs
from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime.devices import cpu as device
from tilewright.runtime.launch import Grid
from tilewright.runtime.launchers.packing import make_packer


class CpuLaunch:
    """Machine code in this process, run by the thread pool."""

    def __init__(self, kernel: CompiledKernel) -> None:
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

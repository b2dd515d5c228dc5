"""Launching for the target `cpu`.

`CpuLaunch` loads a kernel's object code into this process, packs the arguments of a launch into
8-byte slots, and runs the grid on the thread pool (`devices/cpu.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base import knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime.devices import cooperative
from tilewright.runtime.devices import cpu as device
from tilewright.runtime.grid import Grid
from tilewright.runtime.launchers.packing import make_packer
from tilewright.runtime.native.layout import CPU

if TYPE_CHECKING:
    from tilewright.runtime.launchers import host_calls
    from tilewright.runtime.native import records  # not for the first launch of a process
    from tilewright.runtime.native.records import Start
    from tilewright.runtime.native.runtime import Runtime
else:
    records = lazy_import("tilewright.runtime.native.records")
    host_calls = lazy_import("tilewright.runtime.launchers.host_calls")

PRINT = "tilewright_print"  # the function that kernels call for device_print


class CpuLaunch:
    """A kernel loaded into this process."""

    def __init__(self, kernel: CompiledKernel) -> None:
        metadata = kernel.metadata
        called: list[str] = metadata.get("host_calls", [])
        self._host: Any = host_calls.HostCalls() if called else None
        imports = self._host.imports if called else {}
        self._code = device.LoadedCode(kernel.kernel, [kernel.name], imports)
        self._function: int = self._code[kernel.name]
        device.native_pool()  # created here, as the time of a launch may be measured
        self._arguments = metadata.arguments
        self._types = list(metadata.signature.values())
        self._pack = make_packer(metadata.arguments)
        self._name = kernel.name
        self._cooperative: bool = metadata.get("launch_cooperative_grid", False)
        self._run = self._run_cooperatively if self._cooperative else device.launch
        device.name_function(self._function, kernel.name)
        self._scratch_bytes: int = metadata.get("scratch_bytes", 0)
        # A kernel that prints runs on one thread, so that its output is in program order.
        alone = PRINT in called or metadata.get("single_threaded", False)
        self._threads: int = 1 if alone else metadata.get("num_cpu_threads", 0)
        # Cached: the system call costs as much as a launch, and affinity rarely changes.
        self._cores: int = device.core_count()

    @property
    def handle(self) -> int:
        return self._function

    def start(self, grid: Grid, values: Sequence[Any], slots: Sequence[Any]) -> None:
        threads = self._threads or knobs.runtime.cpu_threads or device.torch_threads()
        threads = threads or self._cores
        # ctypes passes a bytes object as the address of its contents.
        if self._host is None:
            self._run(self._function, self._pack(slots), grid, self._scratch_bytes, threads)
            return
        with self._host.one_launch():
            self._run(self._function, self._pack(slots), grid, self._scratch_bytes, threads)

    def _run_cooperatively(
        self, function: int, args: int | bytes, grid: Grid, scratch_bytes: int, threads: int
    ) -> None:
        cooperative.launch(self._name, function, args, grid, scratch_bytes)

    def native_fields(self) -> dict[str, int] | None:
        """The fields of a native launch record (`native/layout.py`); None if launches need Python:
        they call Python functions, or wait for one another."""
        return None if self._host is not None or self._cooperative else self._fields()

    def _fields(self) -> dict[str, int]:
        return {
            "kind": CPU,
            "function": self._function,
            "threads": self._threads,
            "cores": self._cores,
            "scratch": self._scratch_bytes,
        }

    def native_start(self, runtime: Runtime) -> Start | None:
        """The record with which native code performs `start`; None if it cannot."""
        if self._cooperative:
            return None
        pool, slots = device.native_pool(), records.slots_of(self._arguments, self._types)
        if pool is None or slots is None:
            return None
        runtime.use_pool(pool, device.SLICE_NS)
        fields, objects = self._fields(), {}
        if self._host is not None:
            fields["owners"] = self._host.owners_address
            objects = {"failures": self._host.failures, "raise_first": self._host.raise_first}
        return records.Start(fields, objects, slots)

"""Launching for the target `cuda`, through the driver API.

`CudaLaunch.start` is the complete host side of a launch: it gets the current stream, writes the
arguments into a block of memory, and calls the driver. Native code performs the same steps with
the record that `native_start` returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import prod
from typing import TYPE_CHECKING, Any

from tilewright.base.diagnostics import DeviceError
from tilewright.base.lazy_import import lazy_import
from tilewright.compiler.artifact import CompiledKernel, Metadata
from tilewright.compiler.driver import compile as compile_kernel
from tilewright.compiler.driver import find_target
from tilewright.runtime._allocation import current_allocator
from tilewright.runtime.devices.cuda import current_index, device
from tilewright.runtime.devices.cuda_function import Function, Shape
from tilewright.runtime.devices.cuda_torch import (
    checked_stream_function,
    chosen,
    current_stream,
    scratch,
    stream_function,
)
from tilewright.runtime.grid import Grid
from tilewright.runtime.launchers.argument_block import ArgumentBlock, ArgumentBlocks
from tilewright.runtime.launchers.packing import make_packer
from tilewright.runtime.launchers.tensor_maps import TensorMaps
from tilewright.runtime.native.layout import CUDA, MAX_LOOPED, MAX_SLOTS
from tilewright.runtime.slots import at_path

if TYPE_CHECKING:
    from tilewright.runtime.native import records  # not for the first launch of a process
    from tilewright.runtime.native.records import Start
    from tilewright.runtime.native.runtime import Runtime
else:
    records = lazy_import("tilewright.runtime.native.records")


class CudaLaunch:
    """A kernel loaded on the device `kernel.device`, or on the current device if that is empty.

    Attributes:
        n_regs, n_spills, n_max_threads: resource usage of the loaded code; see `Function`.
    """

    def __init__(self, kernel: CompiledKernel) -> None:
        metadata = kernel.metadata
        _, _, index = kernel.device.partition(":")
        gpu = device(int(index) if index else current_index())
        kernel.device = gpu.name
        self._kernel = kernel
        self._function = Function(gpu, kernel.kernel, kernel.name, _shape(metadata))
        self.n_regs = self._function.n_regs
        self.n_spills = self._function.n_spills
        self.n_max_threads = self._function.n_max_threads
        self._index = gpu.index
        self._arguments = metadata.arguments
        self._types = list(metadata.signature.values())
        self._pack = make_packer(metadata.arguments)
        self._scratch_bytes: int = metadata.get("global_scratch_size", 0)
        self._scratch_align: int = metadata.get("global_scratch_align", 1)
        maps = metadata.get("tensor_maps")
        self._maps = TensorMaps(gpu, maps) if maps else None
        self._map_count = len(maps or ())
        self._loops: bool = self._function.shape.looped_axes > 0
        self._without_maps: CudaLaunch | None = None
        count = len(metadata.arguments)
        self._blocks = ArgumentBlocks(count, self._map_count, extents=self._loops)

    @property
    def handle(self) -> int:
        """CUfunction of the kernel."""
        return self._function.handle

    @property
    def module(self) -> int:
        """CUmodule that contains the kernel."""
        return self._function.module

    def start(self, grid: Grid, values: Sequence[Any], slots: Sequence[Any]) -> None:
        maps: Sequence[int] | None = ()
        if self._maps is not None:
            maps = self._maps.addresses([at_path(slots, path) for path, _ in self._arguments])
        if maps is None or (self._loops and prod(grid) > MAX_LOOPED):
            self._plain().start(grid, values, slots)
            return
        stream = current_stream(self._index)
        block = self._blocks.take()
        block.slots[:] = self._pack(slots)
        if maps:
            block.put_maps(maps)
        if self._loops:
            block.extents[:] = grid
        if self._scratch_bytes:
            self._start_with_scratch(grid, stream, block)
        else:
            self._function.launch(grid, stream, block.parameters)
        self._blocks.give_back(block)

    def _plain(self) -> CudaLaunch:
        """The kernel compiled without tensor copies, for tensors that these can't describe: with
        strides of 0 or less, or more than 2**32 elements along an axis; and for grids of more
        programs than 32 bits can number."""
        if self._without_maps is None:
            kernel = self._kernel
            if kernel.src is None:
                raise DeviceError(
                    f"{kernel.name} copies blocks of tensors, which these arguments do not allow "
                    "(strides must be positive multiples of 16 bytes), and was unpickled without "
                    "its source: compile it with tensor_copies=False"
                )
            target = kernel.metadata.target
            known = fields(find_target(target).parse_options({}))
            options = {f.name: kernel.metadata[f.name] for f in known}
            plain = compile_kernel(kernel.src, target, options | {"tensor_copies": False})
            plain.device = kernel.device
            self._without_maps = CudaLaunch(plain)
        return self._without_maps

    def _start_with_scratch(self, grid: Grid, stream: int, block: ArgumentBlock) -> None:
        x, y, z = grid
        size = x * y * z * self._scratch_bytes
        allocator = current_allocator()
        if allocator is not None:
            with chosen(self._function.device):
                memory = allocator(size, self._scratch_align, stream or None)
            block.scratch.value = memory.data_ptr()
            self._function.launch(grid, stream, block.parameters)
            return
        with scratch(self._function.device, size, self._scratch_align, stream) as address:
            block.scratch.value = address
            self._function.launch(grid, stream, block.parameters)

    def native_fields(self) -> dict[str, int]:
        """The fields of a native launch record (`native/layout.py`) that describe the loaded code.
        They are valid as long as this object exists."""
        return self._function.native_fields()

    def native_start(self, runtime: Runtime) -> Start | None:
        """The record with which native code performs `start`; None if it cannot."""
        slots = records.slots_of(self._arguments, self._types)
        maps = self._maps.native_fields() if self._maps is not None else {}
        if slots is None or self._scratch_bytes or maps is None:
            return None
        if len(slots) + self._map_count + self._loops > MAX_SLOTS:
            return None
        runtime.use_cuda()
        function = self._function
        objects = {
            "stream_of": stream_function(),
            "device_index": self._index,
            "raise_error": function.raise_error,
        }
        fields = {
            "kind": CUDA,
            "device_number": self._index,
            "work_stream": checked_stream_function(runtime.torch_stream, self._index),
            **self.native_fields(),
            **maps,
        }
        return records.Start(fields, objects, slots)


def _shape(metadata: Metadata) -> Shape:
    return Shape(
        threads=metadata.get("launch_warps", metadata.num_warps)
        * metadata.get("warp_size", metadata.target.warp_size),
        shared=metadata.shared,
        spare=metadata.get("spare_shared", 0),
        ctas=metadata.num_ctas,
        looped_axes=metadata.get("looped_axes", 0),
        packed=metadata.get("packed_programs", 1),
        cooperative=metadata.get("launch_cooperative_grid", False),
        dependent=metadata.get("begins_early", False),
    )

"""Native launches for backends outside of this package, by C functions."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any

from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime.native.layout import FUNCTION
from tilewright.runtime.native.records import Start, slots_of
from tilewright.runtime.tensors import NATIVE_READERS


def read_by_function(kind: type, function: int, device: str) -> None:
    """Read tensors of a class by a C function in native launches, which takes 0.1 µs instead of 0.4
    by Python.

        read_by_function(npu.Tensor, npu.read_address, "npu")

    Args:
        kind: the exact class. It also has one of the protocols of `runtime/tensors.py`, by which
            its tensors are read where native code is not used.
        function: address of ``int read(PyObject *tensor, Reading *result)``, which is called with
            the GIL. It returns 0 for success; otherwise the tensor is read by its protocol.
            `Reading` is

                struct {
                    uint64_t address;    // of the first element
                    int64_t low, high;   // address range of the storage; -1 if unknown
                    DLDataType dtype;    // of dlpack.h, with 1 lane
                    int32_t read_only;
                }
        device: the name of the device that has the tensors.
    """
    name = sys.intern(device)
    _names.append(name)
    NATIVE_READERS[kind] = struct.pack("=2Q", function, id(name))


_names: list[str] = []
"""The names of devices in `NATIVE_READERS`, which has their addresses."""


def start_by_function(
    kernel: CompiledKernel,
    function: int,
    handle: int,
    raise_error: Callable[[int, tuple[int, int, int]], Any],
    stream_of: Callable[[int], int] | None = None,
    index: int = 0,
) -> Start | None:
    """The result of a loaded kernel's `native_start`, for a driver with a C launch function.

        def native_start(self, runtime):
            return start_by_function(self.kernel, npu.start_address, self.handle, self.raise_error)

    Args:
        kernel: the kernel.
        function: address of ``int start(void *kernel, const uint64_t *words,
            const int64_t grid[3], void *stream)``, which is called without the GIL and returns
            0 for success. `words` has the arguments of ``kernel.metadata`` in order, 8 bytes each.
        handle: passed to the function as `kernel`.
        raise_error: called with a status other than 0 and the grid; must raise an exception.
        stream_of: returns the handle of a device's current stream; None: streams are null.
        index: of the device.

    Returns:
        the launch record; None if an argument has a type that only Python can pack.
    """
    slots = slots_of(kernel.metadata.arguments, list(kernel.metadata.signature.values()))
    if slots is None:
        return None
    objects: dict[str, Any] = {"raise_error": raise_error, "device_index": index}
    if stream_of is not None:
        objects["stream_of"] = stream_of
    fields = {"kind": FUNCTION, "launch": function, "function": handle}
    return Start(fields, objects, slots)

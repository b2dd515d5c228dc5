"""Native launches on devices of other packages, by a C function that their driver gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime.native.launcher import Start, slots_of
from tilewright.runtime.native.layout import FUNCTION


def start_by_function(
    kernel: CompiledKernel,
    function: int,
    handle: int,
    refuse: Callable[[int, tuple[int, int, int]], Any],
    stream_of: Callable[[int], int] | None = None,
    index: int = 0,
) -> Start | None:
    """What a loaded kernel's `native_start` gives; None where only Python can pack the arguments.

        def native_start(self, runtime):
            return start_by_function(self.kernel, npu.start_address, self.handle, self.refuse)

    Args:
        kernel: the kernel.
        function: address of ``int start(void *kernel, const uint64_t *words,
            const int64_t grid[3], void *stream)``, which is called without the GIL. Words are
            the arguments of ``kernel.metadata``, in their order, eight bytes each.
        handle: what the function gets as `kernel`.
        refuse: raises an error for a status other than 0, of that and the grid.
        stream_of: gives the handle of a device's current stream; without it there is none.
        index: of the device.
    """
    slots = slots_of(kernel.metadata.arguments, list(kernel.metadata.signature.values()))
    if slots is None:
        return None
    objects: dict[str, Any] = {"refuse": refuse, "device_index": index}
    if stream_of is not None:
        objects["stream_of"] = stream_of
    fields = {"kind": FUNCTION, "launch": function, "function": handle}
    return Start(fields, objects, slots)

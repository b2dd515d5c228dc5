"""Native launches for backends outside of this package, by a C function of their driver."""

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
    """The result of a loaded kernel's `native_start`, for a driver with a C launch function.

        def native_start(self, runtime):
            return start_by_function(self.kernel, npu.start_address, self.handle, self.refuse)

    Args:
        kernel: the kernel.
        function: address of ``int start(void *kernel, const uint64_t *words,
            const int64_t grid[3], void *stream)``, which is called without the GIL and returns
            0 for success. `words` has the arguments of ``kernel.metadata`` in order, 8 bytes each.
        handle: passed to the function as `kernel`.
        refuse: called with a status other than 0 and the grid; must raise an exception.
        stream_of: returns the handle of a device's current stream; None: streams are null.
        index: of the device.

    Returns:
        the launch record; None if an argument has a type that only Python can pack.
    """
    slots = slots_of(kernel.metadata.arguments, list(kernel.metadata.signature.values()))
    if slots is None:
        return None
    objects: dict[str, Any] = {"refuse": refuse, "device_index": index}
    if stream_of is not None:
        objects["stream_of"] = stream_of
    fields = {"kind": FUNCTION, "launch": function, "function": handle}
    return Start(fields, objects, slots)

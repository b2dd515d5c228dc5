"""Arrays in the memory of a device that no tensor library supports."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.types import SCALARS
from tilewright.runtime import driver

Array = np.ndarray[Any, Any]

SHORT = {t.numpy: t.short for t in reversed(SCALARS)}
"""Element types in short form by NumPy's types."""


class _Storage:
    """The memory that kernels may access through an array."""

    def __init__(self, address: int, nbytes: int) -> None:
        self._address, self._nbytes = address, nbytes

    def data_ptr(self) -> int:
        return self._address

    def nbytes(self) -> int:
        return self._nbytes


class DeviceArray:
    """A copy of a NumPy array in the memory of a device, which kernels take as an argument.

        x = DeviceArray("npu:0", np.arange(8, dtype=np.float32))
        kernel[(1,)](x, 8)
        x.numpy()

    The memory comes from the driver of the device, so that it works for any device. Elements are in
    row-major order.

    Args:
        device: the name of the device, such as ``"cpu"`` or ``"npu:0"``.
        array: the initial contents.
        margin: bytes in front of and behind the elements, which are not part of the storage.

    Attributes:
        device, shape: the device, and the shape of the array.
        dtype: the element type in short form, such as ``"fp32"``.

    Raises:
        ValueError: there is no driver for the device.
    """

    def __init__(self, device: str, array: Array, *, margin: int = 0) -> None:
        kind, _, index = device.partition(":")
        self.device, self.shape = device, array.shape
        self.dtype = SHORT[array.dtype]
        self._numpy_type, self._margin = array.dtype, margin
        self._driver, self._index = driver.driver_of(kind), int(index or 0)
        self._size = array.nbytes
        self._memory = driver.allocate(device, max(1, self._size + 2 * margin))
        if self._size:
            self.write(0, np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8))

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._memory.address + self._margin

    def untyped_storage(self) -> _Storage:
        """The memory of the elements."""
        return _Storage(self.data_ptr(), self._size)

    def numpy(self) -> Array:
        """A copy of the elements, after all work that was enqueued on the device."""
        content = self.read(0, self._size).tobytes()
        return np.frombuffer(content, self._numpy_type).reshape(self.shape).copy()

    def read(self, start: int, size: int) -> Array:
        """Copy bytes of the memory, from an offset in bytes from the first element, which may be
        in the margin."""
        into = np.empty(size, np.uint8)
        if size:
            self._driver.read_memory(self._index, self.data_ptr() + start, into)
        return into

    def write(self, start: int, data: Array) -> None:
        """Copy bytes to the memory, from an offset in bytes from the first element."""
        self._driver.write_memory(self._index, self.data_ptr() + start, np.ascontiguousarray(data))

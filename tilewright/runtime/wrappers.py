"""Substitutes for tensors: one without memory, and one that reinterprets the element type."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np


class MockTensor:
    """A tensor for `warmup`, with an element type and an aligned address, but no memory.

        kernel.warmup(MockTensor(tl.float32), 1000, BLOCK=128, grid=(8,))

    Args:
        dtype: the element type, from the language, torch or NumPy.
        shape: the extents, if the kernel's wrapper reads them; (1,) by default.
    """

    device = ""  # none: kernels are compiled for the active driver's device

    def __init__(self, dtype: Any, shape: Sequence[int] | None = None) -> None:
        self.dtype = dtype
        self.shape = list(shape) if shape is not None else [1]

    @staticmethod
    def wrap_dtype(arg: Any) -> Any:
        """A mock tensor for an element type of torch or NumPy; else `arg` itself. An element type
        of the language is a compile-time value.
        """
        kind = type(arg)
        is_torch = kind.__name__ == "dtype" and kind.__module__ == "torch"
        is_class = isinstance(arg, type) and issubclass(arg, np.generic)  # such as np.float32
        is_dtype = isinstance(arg, np.dtype) or is_torch or is_class
        return MockTensor(arg) if is_dtype else arg

    @staticmethod
    def data_ptr() -> int:
        return 0  # divisible by any alignment

    @staticmethod
    def ptr_range() -> int:
        return 0

    def untyped_storage(self) -> MockTensor:
        """Itself: the memory has no bytes."""
        return self

    @staticmethod
    def nbytes() -> int:
        return 0

    def stride(self) -> tuple[int, ...]:
        """The strides of a contiguous tensor of the shape, in elements."""
        return tuple(prod(self.shape[i + 1 :]) for i in range(len(self.shape)))


class TensorWrapper:
    """A tensor's memory reinterpreted with an element type that its library may not have.

        tilewright.reinterpret(torch.zeros(64, dtype=torch.int8), tl.float8e5)

    Attributes:
        base: the tensor.
        dtype: the language's element type.
    """

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base = base
        self.dtype = dtype
        self.data = base
        self.device = getattr(base, "device", "cpu")
        self.shape = base.shape
        self.is_cuda = bool(getattr(base, "is_cuda", False))

    def data_ptr(self) -> int:
        if hasattr(self.base, "data_ptr"):
            return self.base.data_ptr()
        return self.base.__array_interface__["data"][0]

    def stride(self, *args: Any) -> Any:
        """The tensor's strides, in elements."""
        return self.base.stride(*args)

    def element_size(self) -> int:
        """Bytes per element."""
        return self.base.element_size()

    def untyped_storage(self) -> Any:
        return self.base.untyped_storage()

    def cpu(self) -> TensorWrapper:
        return TensorWrapper(self.base.cpu(), self.dtype)

    def copy_(self, other: TensorWrapper) -> None:
        self.base.copy_(other.base)

    def clone(self) -> TensorWrapper:
        return TensorWrapper(self.base.clone(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        return TensorWrapper(self.base.to(device), self.dtype)

    def new_empty(self, sizes: Sequence[int]) -> TensorWrapper:
        return TensorWrapper(self.base.new_empty(sizes), self.dtype)

    def __repr__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """Reinterpret a tensor's memory with another element type of the same size.

    Reinterpreting a wrapped tensor with its original type returns the tensor itself.

    Raises:
        TypeError: the object is not a tensor.
    """
    if isinstance(tensor, TensorWrapper):
        if dtype == tensor.base.dtype:
            return tensor.base
        return TensorWrapper(tensor.base, dtype)
    if hasattr(tensor, "data_ptr") or hasattr(tensor, "__array_interface__"):
        return TensorWrapper(tensor, dtype)
    raise TypeError(f"Cannot reinterpret a {type(tensor)}.")

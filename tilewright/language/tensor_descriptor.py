"""Tensor descriptors: arrays in memory with known bounds, which are accessed by blocks."""

from __future__ import annotations

from typing import Any, TypeVar

from tilewright.language import semantic
from tilewright.language.block_values import tensor_descriptor
from tilewright.language.values import builtin, tensor

__all__ = [
    "load_tensor_descriptor", "make_tensor_descriptor", "store_tensor_descriptor",
    "tensor_descriptor",
]  # fmt: skip

Function = TypeVar("Function", bound=Any)


@builtin
def make_tensor_descriptor(
    base: Any,
    shape: Any,
    strides: Any,
    block_shape: Any,
    padding_option: Any = "zero",
    *,
    _semantic: Any = None,
) -> tensor_descriptor:
    """Describe an array in memory, to be accessed by blocks. Bounds are always checked.

        desc = tl.make_tensor_descriptor(x, (M, N), (N, 1), (32, 64))
        tile = desc.load([row, column])
        desc.store([row, column], tile * 2)

    Args:
        base: scalar pointer to the array's first element, aligned to 16 bytes.
        shape: 1 to 5 extents, run-time integers.
        strides: the stride along each axis in elements: run-time integers, multiples of 16 bytes,
            or compile-time integers; the last one is 1.
        block_shape: the extents of a block, compile-time powers of two; a row has at least 16
            bytes.
        padding_option: the value of out-of-bounds elements: "zero", or "nan" for floats.

    Raises:
        ValueError: an argument violates these rules.
    """
    return semantic.tensor_descriptor.make_tensor_descriptor(
        _semantic, base, shape, strides, block_shape, padding_option
    )


@builtin
def load_tensor_descriptor(desc: Any, offsets: Any, *, _semantic: Any = None) -> tensor:
    """Load the block at `offsets`: ``desc.load(offsets)``."""
    return semantic.tensor_descriptor.load(_semantic, desc, offsets)


@builtin
def store_tensor_descriptor(desc: Any, offsets: Any, value: Any, *, _semantic: Any = None) -> None:
    """Store the block at `offsets`: ``desc.store(offsets, value)``."""
    semantic.tensor_descriptor.store(_semantic, desc, offsets, value)


# -- methods ---------------------------------------------------------------------------------------


def _method(fn: Function) -> Function:
    setattr(tensor_descriptor, fn.__name__, fn)
    return fn


@_method
@builtin
def load(self: tensor_descriptor, offsets: Any, *, _semantic: Any = None) -> tensor:
    """Load the block at `offsets`, 32-bit integers; out-of-bounds elements are the padding."""
    return semantic.tensor_descriptor.load(_semantic, self, offsets)


@_method
@builtin
def store(self: tensor_descriptor, offsets: Any, value: Any, *, _semantic: Any = None) -> None:
    """Store the block at `offsets`, cast to the element type; out-of-bounds elements are not
    written."""
    semantic.tensor_descriptor.store(_semantic, self, offsets, value)


@_method
@builtin
def gather(
    self: tensor_descriptor, x_offsets: tensor, y_offset: Any, *, _semantic: Any = None
) -> tensor:
    """Load the rows `x_offsets` of the array, starting at column `y_offset`.

    For a descriptor of rank 2 with blocks [1, N]; the result is [number of rows, N].
    """
    return semantic.tensor_descriptor.gather(_semantic, self, x_offsets, y_offset)


@_method
@builtin
def scatter(
    self: tensor_descriptor, value: tensor, x_offsets: tensor, y_offset: Any, *,
    _semantic: Any = None,
) -> None:  # fmt: skip
    """Store the rows `x_offsets` of the array, starting at column `y_offset`; see `gather`."""
    semantic.tensor_descriptor.scatter(_semantic, self, value, x_offsets, y_offset)


def _atomic(kind: str) -> Any:
    @builtin
    def function(
        self: tensor_descriptor, offsets: Any, value: tensor, *, _semantic: Any = None
    ) -> None:
        semantic.tensor_descriptor.atomic(_semantic, self, kind, offsets, value)

    function.__name__ = function.__qualname__ = f"atomic_{kind}"
    function.__doc__ = (
        f"Atomically combine (`{kind}`) the block at `offsets` with `value`; without a result, and "
        "with relaxed memory order."
    )
    return _method(function)


for _kind in ("add", "min", "max", "and", "or", "xor"):
    _atomic(_kind)

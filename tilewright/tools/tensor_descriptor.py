"""Tensor descriptors created on the host and passed to kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.types import scalar_type
from tilewright.runtime.descriptors import ALIGNMENT
from tilewright.runtime.tensors import read

MAX_RANK = 5


@dataclass
class TensorDescriptor:
    """An array that a kernel accesses by blocks, with bounds checks.

        desc = TensorDescriptor.from_tensor(x, [32, 64])
        kernel[grid](desc)          # in the kernel: tile = desc.load([row, column])

    Args:
        base: a tensor with the address of the first element, aligned to 16 bytes.
        shape: 1 to 5 extents.
        strides: in elements; the last is 1, the others are multiples of 16 bytes.
        block_shape: extents of the blocks; may be changed before each launch.
        padding: value of elements out of bounds: "zero", or "nan" for floats.
        round_f32_to_tf32: loads of an fp32 tensor round it to tf32, to nearest even.

    Raises:
        AssertionError: invalid arguments.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        rank = len(self.shape)
        _require(len(self.strides) == rank, f"rank mismatch: {self._lengths()}")
        _require(len(self.block_shape) == rank, f"rank mismatch: {self._lengths()}")
        _require(rank > 0, "rank must not be zero")
        _require(rank <= MAX_RANK, f"rank cannot be more than {MAX_RANK}")
        address, short, *_ = read(self.base)
        element = scalar_type(short)
        _require(address % ALIGNMENT == 0, "base must be 16-byte aligned")
        aligned = all(n * element.nbytes_in_memory % ALIGNMENT == 0 for n in self.strides[:-1])
        _require(aligned, f"strides must be 16-byte aligned: {list(self.strides)} of {element}")
        _require(self.strides[-1] == 1, "Last dimension must be contiguous")
        _require(self.padding in ("zero", "nan"), f"Illegal value for padding: {self.padding!r}")
        _require(
            self.padding == "zero" or element.is_floating(),
            "Padding option `nan` is only supported for floating point tensors",
        )
        _require(
            not self.round_f32_to_tf32 or short == "fp32",
            f"round_f32_to_tf32 is for fp32 tensors, not {element}",
        )

    def _lengths(self) -> str:
        return (
            f"shape {list(self.shape)}, strides {list(self.strides)}, block_shape "
            f"{list(self.block_shape)}"
        )

    @staticmethod
    def from_tensor(
        tensor: Any,
        block_shape: Sequence[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> TensorDescriptor:
        """A descriptor of a whole tensor.

        Raises:
            TypeError: the block's shape is not a list of extents.
        """
        if not isinstance(block_shape, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"block_shape is a list with an extent for each axis, such as "
                f"{[block_shape] * len(tensor.shape)}, not {block_shape!r}"
            )
        strides = _strides_of(tensor)
        return TensorDescriptor(
            tensor, tensor.shape, strides, block_shape, padding, round_f32_to_tf32
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _strides_of(tensor: Any) -> Sequence[int]:
    """A tensor's strides in elements."""
    if hasattr(tensor, "stride"):
        return tensor.stride()
    return [n // tensor.itemsize for n in tensor.strides]

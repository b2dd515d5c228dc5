"""Block access through a tensor descriptor to slices of an array (ragged tensors), whose offsets
and lengths are run-time values of the kernel.

    TMA = create_ragged_descriptor(x, [32, 64])        # on the host: rows are grouped in slices

    tile = load_ragged(TMA, begin, length, [i, j])     # in the kernel: zero after the slice
    store_ragged(TMA, begin, length, [i, j], tile)     # not stored after the slice

Elements of a block after the end of its slice must be out of bounds, although the next slice is
stored there. Therefore the descriptor has an axis of `END` elements, in which a slice is shifted so
that it ends at the end of the axis; two more axes compensate the shift. For row r of a slice with l
rows that starts at row b, and a row stride of s elements, the address in elements is

    1 * (-END * s)  +  (b + l) * s  +  (END - l + r) * s  =  (b + r) * s

and the third index is in bounds if and only if r < l.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tilewright.language as tl
from tilewright.runtime.jit import jit
from tilewright.tools.tensor_descriptor import TensorDescriptor

__all__ = ["atomic_add_ragged", "create_ragged_descriptor", "load_ragged", "store_ragged"]

END: tl.constexpr = tl.constexpr(1 << 30)
"""Longer than any slice; 2 * END still fits in a 32-bit index."""


def create_ragged_descriptor(
    T: Any, block_shape: Sequence[int], ragged_dim: int = 0
) -> TensorDescriptor:
    """A descriptor of all slices of a tensor.

    Args:
        T: a tensor of rank 2 or 3, whose last axis is contiguous.
        block_shape: extents of the blocks.
        ragged_dim: the axis that is divided into slices; not the last one.

    Raises:
        ValueError: invalid rank or `ragged_dim`.
    """
    whole = TensorDescriptor.from_tensor(T, block_shape)
    rank = len(whole.shape)
    axis = ragged_dim + rank if ragged_dim < 0 else ragged_dim
    if not 2 <= rank <= 3:
        raise ValueError(f"ragged descriptors require a tensor of rank 2 or 3, not {rank}")
    if not 0 <= axis < rank - 1:
        raise ValueError(f"ragged_dim must be an axis before the last, not {ragged_dim}")
    end = int(END)
    stride = whole.strides[axis]
    shape = [2, end, *whole.shape]
    shape[2 + axis] = end
    strides = [-end * stride, stride, *whole.strides]
    return TensorDescriptor(T, shape, strides, [1, 1, *block_shape])


@jit
def _indices(slice_off: Any, slice_size: Any, coords: Any, ragged_dim: Any) -> Any:
    row = END - slice_size + coords[ragged_dim]
    if len(coords) == 2:
        return 1, slice_off + slice_size, row, coords[1]
    if ragged_dim == 0:
        return 1, slice_off + slice_size, row, coords[1], coords[2]
    return 1, slice_off + slice_size, coords[0], row, coords[2]


@jit
def load_ragged(TMA: Any, slice_off: Any, slice_size: Any, coords: Any, ragged_dim: Any = 0) -> Any:
    """Load the block at `coords` of the slice with `slice_size` rows that starts at row
    `slice_off`; elements after the slice are zero."""
    tile = TMA.load(_indices(slice_off, slice_size, coords, ragged_dim))
    return tile.reshape(TMA.block_shape[2:])


@jit
def store_ragged(
    TMA: Any, slice_off: Any, slice_size: Any, coords: Any, data: Any, ragged_dim: Any = 0
) -> Any:
    """Store a block, addressed as in `load_ragged`; elements after the slice are not stored."""
    tile = data.reshape(TMA.block_shape)
    TMA.store(_indices(slice_off, slice_size, coords, ragged_dim), tile)


@jit
def atomic_add_ragged(
    TMA: Any, slice_off: Any, slice_size: Any, coords: Any, data: Any, ragged_dim: Any = 0
) -> Any:
    """Add a block to memory, atomically per element; addressed as in `load_ragged`."""
    tile = data.reshape(TMA.block_shape)
    TMA.atomic_add(_indices(slice_off, slice_size, coords, ragged_dim), tile)

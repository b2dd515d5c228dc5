"""Block pointers: pointers to blocks of arrays, with the bounds of the array."""

from __future__ import annotations

from typing import Any

from tilewright.language import semantic
from tilewright.language.block_values import block_pointer
from tilewright.language.values import builtin, must_use_result, tensor_method

__all__ = ["advance", "make_block_ptr"]


@builtin
def make_block_ptr(
    base: Any,
    shape: Any,
    strides: Any,
    offsets: Any,
    block_shape: Any,
    order: Any,
    *,
    _semantic: Any = None,
) -> block_pointer:
    """A pointer to a block of an array, to be loaded and stored as a whole.

        a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (pid * 64, 0), (64, 32), (1, 0))
        tile = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        a = tl.advance(a, (0, 32))

    Args:
        base: scalar pointer to the array's first element; bools are accessed as int8.
        shape: the extent along each axis, run-time integers.
        strides: the stride along each axis in elements, run-time integers.
        offsets: the index of the block's first element, run-time integers of at most 32 bits; may
            be negative.
        block_shape: the extents of the block, compile-time powers of two.
        order: the axes, fastest in memory first: a hint.

    Where bounds are checked, indices of 2^31 and above are out of bounds.

    Raises:
        ValueError: the lengths differ, `base` is not a scalar pointer, or `order` is not a
            permutation.
    """
    return semantic.block_pointer.make_block_ptr(
        _semantic, base, shape, strides, offsets, block_shape, order
    )


@tensor_method
@builtin
@must_use_result(
    "advance does not modify its argument: it returns a block pointer, which must be assigned."
)
def advance(base: Any, offsets: Any, *, _semantic: Any = None) -> block_pointer:
    """The block pointer `base` advanced by `offsets`, one for each axis, in elements.

    Raises:
        ValueError: `base` is not a block pointer, or the number of offsets is wrong.
    """
    return semantic.block_pointer.advance(_semantic, base, offsets)


setattr(block_pointer, "advance", advance)  # noqa: B010 (for `pointer.advance(offsets)`)

"""Block pointers: pointers to blocks of arrays, which know the array's bounds."""

from __future__ import annotations

from typing import Any

from tilewright.language.block_values import block_pointer
from tilewright.language.semantic import block_pointer as semantic
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
        base: scalar pointer to the array's first element; one to bools is taken as one to int8.
        shape: extent along each axis, run-time integers.
        strides: elements from one index to the next along each axis, run-time integers.
        offsets: where the block begins, run-time integers of at most 32 bits; may be negative.
        block_shape: extents of the block, compile-time powers of two.
        order: the axes, fastest in memory first: a hint.

    The elements at index 2^31 and beyond along an axis count as outside where bounds are checked.

    Raises:
        ValueError: the lengths differ, `base` is no scalar pointer, `order` is no permutation.
    """
    return semantic.make_block_ptr(_semantic, base, shape, strides, offsets, block_shape, order)


@tensor_method
@builtin
@must_use_result(
    "advance changes nothing: it gives another block pointer, which must be assigned to a name."
)
def advance(base: Any, offsets: Any, *, _semantic: Any = None) -> block_pointer:
    """The block pointer `base` moved by `offsets`, one for each axis, in elements.

    Raises:
        ValueError: `base` is no block pointer, or there are too few or too many offsets.
    """
    return semantic.advance(_semantic, base, offsets)


setattr(block_pointer, "advance", advance)  # noqa: B010 (for `pointer.advance(offsets)`)

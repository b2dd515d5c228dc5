"""Tiles of constants, and operations that move elements."""

from __future__ import annotations

from typing import Any

from tilewright.language import semantic
from tilewright.language.values import builtin, tensor, tensor_method, tuple

__all__ = [
    "arange", "broadcast", "broadcast_to", "cat", "expand_dims", "flip", "full", "gather",
    "interleave", "join", "permute", "ravel", "reshape", "split", "squeeze", "trans", "unsqueeze",
    "view", "zeros", "zeros_like",
]  # fmt: skip

# -- creation --------------------------------------------------------------------------------------


@builtin
def arange(start: Any, end: Any, *, _semantic: Any = None) -> tensor:
    """The integers start, …, end - 1 as a 1-D int32 tile.

    Args:
        start, end: compile-time integers, start < end; both fit in int32.

    Raises:
        ValueError: they are not.
    """
    return semantic.shape.arange(_semantic, start, end)


@builtin
def full(shape: Any, value: Any, dtype: Any, *, _semantic: Any = None) -> tensor:
    """A tile of the given shape filled with `value`, cast to `dtype`; shape () is a scalar.

        acc = tl.full((BLOCK_M, BLOCK_N), float("-inf"), tl.float32)

    Args:
        shape: compile-time integers, 1 or more each.
        value: a number or a scalar tensor.

    Raises:
        TypeError, ValueError: the shape has other elements.
    """
    return semantic.shape.full(_semantic, shape, value, dtype)


@builtin
def zeros(shape: Any, dtype: Any, *, _semantic: Any = None) -> tensor:
    """A tile of zeros: ``tl.full(shape, 0, dtype)``."""
    return semantic.shape.full(_semantic, shape, 0, dtype)


@builtin
def zeros_like(input: Any, *, _semantic: Any = None) -> tensor:
    """A tile of zeros with the shape and dtype of `input`."""
    return semantic.shape.zeros_like(_semantic, input)


@builtin
def cat(
    input: tensor, other: tensor, can_reorder: Any = False, dim: Any = 0, *, _semantic: Any = None
) -> tensor:
    """Concatenate `input` and `other` along `dim`, preserving order.

    Args:
        input, other: tiles whose extents along other axes are equal; the result has their common
            type.
        can_reorder: has no effect; deprecated.

    Raises:
        AssertionError: the extents differ.
    """
    semantic.shape.warn_of_reordering(_semantic, "tl.cat with can_reorder=True", can_reorder)
    return semantic.shape.cat(_semantic, input, other, dim)


# -- shape -----------------------------------------------------------------------------------------


@builtin
def broadcast(input: Any, other: Any, *, _semantic: Any = None) -> tuple:
    """Broadcast two tensors to their common shape, in which axes of length 1 are repeated.

        rows, columns = tl.broadcast(tl.arange(0, 8)[:, None], tl.arange(0, 4)[None, :])  # [8, 4]

    Raises:
        ValueError: the shapes are incompatible.
    """
    x, y = semantic.to_tensor(_semantic, input), semantic.to_tensor(_semantic, other)
    return tuple(semantic.convert.broadcast(_semantic, x, y))


@tensor_method
@builtin
def broadcast_to(input: Any, *shape: Any, _semantic: Any = None) -> tensor:
    """Broadcast a tensor to a shape: repeat axes of length 1, or splat a scalar.

        table = tl.arange(0, 8)[:, None].broadcast_to(8, 4)

    Raises:
        ValueError: the tensor is a tile of another rank, or of other extents than 1 and those of
            the shape.
    """
    sizes = semantic.shape.shape_argument(shape)
    semantic.shape.check_shape(_semantic, sizes)
    return semantic.convert.broadcast_to(_semantic, semantic.to_tensor(_semantic, input), sizes)


@tensor_method
@builtin
def expand_dims(input: Any, axis: Any, *, _semantic: Any = None) -> tensor:
    """Insert axes of length 1 at one or more positions of the result; as ``x[:, None]``.

    Args:
        axis: a compile-time integer, or several; negative ones count from the end of the result.

    Raises:
        ValueError: a position is outside the result, or given twice.
    """
    return semantic.shape.expand_dims(_semantic, semantic.to_tensor(_semantic, input), axis)


@tensor_method
@builtin
def unsqueeze(x: Any, dim: Any, *, _semantic: Any = None) -> tensor:
    """Insert an axis of length 1 at position `dim`."""
    return semantic.shape.expand_dims(_semantic, semantic.to_tensor(_semantic, x), dim)


@tensor_method
@builtin
def squeeze(x: tensor, dim: Any, *, _semantic: Any = None) -> tensor:
    """Remove the axis `dim`, which must have length 1."""
    return semantic.shape.squeeze(_semantic, x, dim)


@tensor_method
@builtin
def permute(input: tensor, *dims: Any, _semantic: Any = None) -> tensor:
    """Permute the axes: axis i of the result is axis ``dims[i]``.

        y = x.permute(2, 0, 1)  # from [A, B, C] to [C, A, B]

    Raises:
        ValueError: `dims` are not a permutation of all axes.
    """
    return semantic.shape.permute(_semantic, input, semantic.shape.shape_argument(dims))


@tensor_method
@builtin
def trans(input: tensor, *dims: Any, _semantic: Any = None) -> tensor:
    """Permute the axes, as `permute`; without `dims`, swap the last two.

    Raises:
        ValueError: there are fewer than two axes, or `dims` are not a permutation of all axes.
    """
    return semantic.shape.trans(_semantic, input, dims)


@builtin
def _transposed(input: tensor, *, _semantic: Any = None) -> tensor:
    """``x.T``: the transpose of a 2-D tile."""
    return semantic.shape.permute(_semantic, input, (1, 0))


tensor_method(_transposed, "T")


@tensor_method
@builtin
def reshape(input: Any, *shape: Any, can_reorder: Any = False, _semantic: Any = None) -> tensor:
    """Change the shape, preserving the row-major order of the elements; () gives a scalar.

        pairs = x.reshape(N // 2, 2)

    Args:
        can_reorder: has no effect; deprecated.

    Raises:
        ValueError: the number of elements differs.
    """
    semantic.shape.warn_of_reordering(_semantic, "tl.reshape with can_reorder=True", can_reorder)
    sizes = semantic.shape.shape_argument(shape)
    return semantic.shape.reshape(_semantic, semantic.to_tensor(_semantic, input), sizes)


@tensor_method
@builtin
def view(input: Any, *shape: Any, _semantic: Any = None) -> tensor:
    """Like `reshape`; deprecated."""
    semantic.shape.warn_of_reordering(_semantic, "tl.view")
    sizes = semantic.shape.shape_argument(shape)
    return semantic.shape.reshape(_semantic, semantic.to_tensor(_semantic, input), sizes)


@tensor_method
@builtin
def ravel(x: tensor, can_reorder: Any = False, *, _semantic: Any = None) -> tensor:
    """Flatten to a 1-D tile in row-major order."""
    semantic.shape.warn_of_reordering(_semantic, "tl.ravel with can_reorder=True", can_reorder)
    return semantic.shape.reshape(_semantic, x, (x.numel.value,))


@builtin
def join(a: Any, b: Any, *, _semantic: Any = None) -> tensor:
    """Stack two tensors along a new last axis of length 2; of two scalars, a tile of shape [2].

        complex = tl.join(real, imaginary)  # from [N] and [N] to [N, 2]

    Raises:
        ValueError: the dtypes differ, or the shapes can't be broadcast.
    """
    return semantic.shape.join(_semantic, a, b)


@tensor_method
@builtin
def split(a: tensor, *, _semantic: Any = None) -> tuple:
    """Split along the last axis, which must have length 2; the inverse of `join`.

        real, imaginary = tl.split(complex)  # from [N, 2] to [N] and [N]

    Raises:
        ValueError: the last axis has another length.
    """
    return semantic.shape.split(_semantic, a)


@builtin
def interleave(a: Any, b: Any, *, _semantic: Any = None) -> tensor:
    """Interleave along the last axis: a0, b0, a1, b1, …"""
    return semantic.shape.interleave(_semantic, a, b)


@tensor_method
@builtin
def flip(x: tensor, dim: Any = None, *, _semantic: Any = None) -> tensor:
    """Reverse the elements along `dim`, the last axis by default."""
    return semantic.shape.flip(_semantic, x, dim)


@tensor_method
@builtin
def item(self: tensor, *, _semantic: Any = None) -> tensor:
    """The only element of a tensor, as a scalar."""
    return semantic.shape.item(_semantic, self)


@tensor_method
@builtin
def gather(src: tensor, index: tensor, axis: Any, *, _semantic: Any = None) -> tensor:
    """Gather along `axis`: ``out[.., k, ..] = src[.., index[.., k, ..], ..]``.

    Args:
        index: integers, in the shape of the result; along other axes than `axis`, its extents are
            those of `src`. An index outside `axis` is clamped.

    Raises:
        ValueError: the index has another rank, other extents, or no integers.
    """
    return semantic.shape.gather(_semantic, src, index, axis)

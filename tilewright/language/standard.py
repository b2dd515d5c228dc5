"""Reductions, scans, softmax, sorting, elementwise functions, and index arithmetic."""

from __future__ import annotations

from typing import Any

from tilewright.language import semantic
from tilewright.language.math import cdiv, sigmoid, softmax
from tilewright.language.values import (
    builtin,
    constexpr,
    tensor,
    tensor_method,
    tuple,
    unwrap,
)

__all__ = [
    "argmax", "argmin", "bitonic_merge", "cdiv", "cumprod", "cumsum", "histogram",
    "map_elementwise", "max", "min", "reduce_or", "sigmoid", "softmax", "sort", "sum", "swizzle2d",
    "topk", "xor_sum",
]  # fmt: skip


@tensor_method
@builtin
def sum(
    input: Any,
    axis: Any = None,
    keep_dims: Any = False,
    dtype: Any = None,
    *,
    _semantic: Any = None,
) -> tensor:
    """Sum along `axis`, or over all elements.

    Integers narrower than 32 bits are accumulated in int32 or uint32 unless `dtype` is given.
    """
    return semantic.reduce.total(
        _semantic, semantic.to_tensor(_semantic, input), axis, keep_dims, dtype
    )


def _extremum(
    input: Any,
    axis: Any,
    indices: Any,
    left: Any,
    keep_dims: Any,
    largest: bool,
    s: semantic.Semantic,
) -> Any:
    x = semantic.to_tensor(s, input)
    if constexpr(indices):
        better = semantic.arith.gt if largest else semantic.arith.lt
        return tuple(semantic.reduce.extremum_with_index(s, x, axis, keep_dims, better, left))
    function = semantic.arith.larger if largest else semantic.arith.smaller
    return semantic.reduce.extremum(s, x, axis, keep_dims, function)


@tensor_method
@builtin
def max(
    input: Any,
    axis: Any = None,
    return_indices: Any = False,
    return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
    *,
    _semantic: Any = None,
) -> Any:
    """Maximum along `axis`, or over all elements; optionally with its int32 index.

    Elements narrower than 32 bits are widened unless indices are requested. NaNs are ignored unless
    all elements are NaN; with indices, the treatment of NaN is unspecified.
    """
    left = return_indices_tie_break_left
    return _extremum(input, axis, return_indices, left, keep_dims, True, _semantic)


@tensor_method
@builtin
def min(
    input: Any,
    axis: Any = None,
    return_indices: Any = False,
    return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
    *,
    _semantic: Any = None,
) -> Any:
    """Minimum along `axis`, or over all elements; see `max`."""
    left = return_indices_tie_break_left
    return _extremum(input, axis, return_indices, left, keep_dims, False, _semantic)


@tensor_method
@builtin
def argmax(
    input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False, *,
    _semantic: Any = None,
) -> tensor:  # fmt: skip
    """The int32 index of the maximum along `axis`; with `tie_break_left`, the first one."""
    return _extremum(input, axis, True, tie_break_left, keep_dims, True, _semantic)[1]


@tensor_method
@builtin
def argmin(
    input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False, *,
    _semantic: Any = None,
) -> tensor:  # fmt: skip
    """The int32 index of the minimum along `axis`; with `tie_break_left`, the first one."""
    return _extremum(input, axis, True, tie_break_left, keep_dims, False, _semantic)[1]


@tensor_method
@builtin
def xor_sum(
    input: tensor, axis: Any = None, keep_dims: Any = False, *, _semantic: Any = None
) -> tensor:
    """Exclusive or of integers along `axis`, or over all elements."""
    return semantic.reduce.xor_sum(_semantic, input, axis, keep_dims)


@tensor_method
@builtin
def reduce_or(input: tensor, axis: Any, keep_dims: Any = False, *, _semantic: Any = None) -> tensor:
    """Bitwise or of integers along `axis`."""
    return semantic.reduce.reduce_or(_semantic, input, axis, keep_dims)


@tensor_method
@builtin
def cumsum(
    input: tensor, axis: Any = 0, reverse: Any = False, dtype: Any = None, *, _semantic: Any = None
) -> tensor:
    """Inclusive prefix sum along `axis`, from the end if `reverse` is set; dtypes as for `sum`."""
    return semantic.reduce.cumsum(_semantic, input, axis, reverse, dtype)


@tensor_method
@builtin
def cumprod(
    input: tensor, axis: Any = 0, reverse: Any = False, dtype: Any = None, *, _semantic: Any = None
) -> tensor:
    """Inclusive prefix product along `axis`, from the end if `reverse` is set; as for `cumsum`."""
    return semantic.reduce.cumprod(_semantic, input, axis, reverse, dtype)


@tensor_method
@builtin
def sort(x: Any, dim: Any = None, descending: Any = False, *, _semantic: Any = None) -> tensor:
    """Sort along `dim`, which must be the last axis, in ascending order.

    NaN is greater than all numbers, and -0.0 less than 0.0.

        tl.sort(x)  # [3, 1, 2] -> [1, 2, 3]
    """
    return semantic.sort.sort(_semantic, semantic.to_tensor(_semantic, x), dim, descending)


@builtin
def topk(
    x: Any, k: Any, dim: Any = None, descending: Any = True, *, _semantic: Any = None
) -> tensor:
    """The `k` largest elements along the last axis in descending order, or the `k` smallest.

    The order is that of `sort`. Elements narrower than 32 bits are widened as in `max`, unless `k`
    is the length of the axis.

    Args:
        k: a compile-time power of two.
        descending: True for the largest elements in descending order, False for the smallest in
            ascending order.

        tl.topk(x, 2)  # [3, 1, 4, 2] -> [4, 3]
    """
    return semantic.sort.topk(_semantic, semantic.to_tensor(_semantic, x), k, dim, descending)


@builtin
def bitonic_merge(
    x: Any, dim: Any = None, descending: Any = False, *, _semantic: Any = None
) -> tensor:
    """Sort a bitonic sequence along the last axis: one that first rises and then falls, or vice
    versa. For other input the order of the result is unspecified.

        tl.bitonic_merge(x)  # [1, 4, 3, 2] -> [1, 2, 3, 4]
    """
    return semantic.sort.sort(
        _semantic, semantic.to_tensor(_semantic, x), dim, descending, merge=True
    )


@tensor_method
@builtin
def histogram(input: tensor, num_bins: Any, mask: Any = None, *, _semantic: Any = None) -> tensor:
    """Count the occurrences of 0, 1, …, `num_bins` - 1, as an int32 tile of that length.

    Args:
        input: a 1-D tile of int32 or uint32; other values are ignored.
        mask: int1; masked-off elements are ignored.

        tl.histogram(x, 4)  # [0, 2, 2, 7] -> [1, 0, 2, 0]
    """
    return semantic.sort.histogram(_semantic, input, num_bins, mask)


@builtin
def map_elementwise(scalar_fn: Any, *args: Any, pack: Any = 1, _semantic: Any = None) -> Any:
    """Call a jit function on the scalars of each element of tiles; it may branch and loop.

    Args:
        scalar_fn: takes one element of each of `args`, and returns a scalar or a tuple of scalars.
            It must not write to memory.
        args: tiles and scalars; they are broadcast.
        pack: a power of two: the function takes this many consecutive elements (in row-major
            order) at once, first those of the first argument, then those of the second, and so on,
            and returns the same number of each result in this order.

        tl.map_elementwise(compare, x, y)
    """
    return semantic.sort.map_elementwise(_semantic, unwrap(scalar_fn), args, pack)


@builtin
def swizzle2d(
    i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any, *, _semantic: Any = None
) -> tuple:
    """Swizzle row-major grid indices: groups of `size_g` rows are traversed column by column."""
    return semantic.shape.swizzle2d(_semantic, i, j, size_i, size_j, size_g)

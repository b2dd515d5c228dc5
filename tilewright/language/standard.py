"""Named reductions and scans, softmax, sorting, functions of elements, and index arithmetic."""

from __future__ import annotations

from typing import Any

from tilewright.language.math import cdiv, sigmoid, softmax
from tilewright.language.semantic import arith, reduce, shape
from tilewright.language.semantic import sort as sorting
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.convert import to_tensor
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
    """Sum along `axis`, or of all elements.

    Integers narrower than 32 bits are added in int32 or uint32 unless `dtype` is given.
    """
    return reduce.total(_semantic, to_tensor(_semantic, input), axis, keep_dims, dtype)


def _extremum(
    input: Any, axis: Any, indices: Any, left: Any, keep_dims: Any, largest: bool, s: Semantic
) -> Any:
    x = to_tensor(s, input)
    if constexpr(indices):
        better = arith.gt if largest else arith.lt
        return tuple(reduce.extremum_with_index(s, x, axis, keep_dims, better, left))
    function = arith.maximum if largest else arith.minimum
    return reduce.extremum(s, x, axis, keep_dims, function)


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
    """The largest along `axis`, or of all elements; with its int32 index if asked.

    Elements narrower than 32 bits are widened, unless indices are asked for. A NaN is ignored
    unless all are NaN; with indices it is unspecified where NaN stands.
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
    """The smallest along `axis`, or of all elements; see `max`."""
    left = return_indices_tie_break_left
    return _extremum(input, axis, return_indices, left, keep_dims, False, _semantic)


@tensor_method
@builtin
def argmax(
    input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False, *,
    _semantic: Any = None,
) -> tensor:  # fmt: skip
    """The int32 index of the largest along `axis`; the first of equals with `tie_break_left`."""
    return _extremum(input, axis, True, tie_break_left, keep_dims, True, _semantic)[1]


@tensor_method
@builtin
def argmin(
    input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False, *,
    _semantic: Any = None,
) -> tensor:  # fmt: skip
    """The int32 index of the smallest along `axis`; the first of equals with `tie_break_left`."""
    return _extremum(input, axis, True, tie_break_left, keep_dims, False, _semantic)[1]


@tensor_method
@builtin
def xor_sum(
    input: tensor, axis: Any = None, keep_dims: Any = False, *, _semantic: Any = None
) -> tensor:
    """Exclusive or of the integers along `axis`, or of all."""
    return reduce.xor_sum(_semantic, input, axis, keep_dims)


@tensor_method
@builtin
def reduce_or(input: tensor, axis: Any, keep_dims: Any = False, *, _semantic: Any = None) -> tensor:
    """Or of the integers along `axis`."""
    return reduce.reduce_or(_semantic, input, axis, keep_dims)


@tensor_method
@builtin
def cumsum(
    input: tensor, axis: Any = 0, reverse: Any = False, dtype: Any = None, *, _semantic: Any = None
) -> tensor:
    """Inclusive prefix sums along `axis`, from the end if `reverse`; dtypes as in `sum`."""
    return reduce.cumsum(_semantic, input, axis, reverse, dtype)


@tensor_method
@builtin
def cumprod(
    input: tensor, axis: Any = 0, reverse: Any = False, dtype: Any = None, *, _semantic: Any = None
) -> tensor:
    """Inclusive prefix products along `axis`, from the end if `reverse`; dtypes as in `sum`."""
    return reduce.cumprod(_semantic, input, axis, reverse, dtype)


@builtin
def sort(x: Any, dim: Any = None, descending: Any = False, *, _semantic: Any = None) -> tensor:
    """The elements in order along `dim`, which is the last axis; the least first.

    NaN is greater than all numbers, and -0.0 less than 0.0.

        tl.sort(x)  # [3, 1, 2] -> [1, 2, 3]
    """
    return sorting.sort(_semantic, to_tensor(_semantic, x), dim, descending)


@builtin
def topk(
    x: Any, k: Any, dim: Any = None, descending: Any = True, *, _semantic: Any = None
) -> tensor:
    """The `k` greatest elements along the last axis, the greatest first; or the least.

    The order is that of `sort`. Elements narrower than 32 bits are widened as `max` does, unless
    all are taken.

    Args:
        k: how many, a compile-time power of two.
        descending: whether the greatest are taken, the greatest first; else the least are, the
            least first.

        tl.topk(x, 2)  # [3, 1, 4, 2] -> [4, 3]
    """
    return sorting.topk(_semantic, to_tensor(_semantic, x), k, dim, descending)


@builtin
def bitonic_merge(
    x: Any, dim: Any = None, descending: Any = False, *, _semantic: Any = None
) -> tensor:
    """The elements in order along the last axis, where they first rise and then fall, or the other
    way round. Of others the order is unspecified.

        tl.bitonic_merge(x)  # [1, 4, 3, 2] -> [1, 2, 3, 4]
    """
    return sorting.sort(_semantic, to_tensor(_semantic, x), dim, descending, merge=True)


@tensor_method
@builtin
def histogram(input: tensor, num_bins: Any, mask: Any = None, *, _semantic: Any = None) -> tensor:
    """How often the values 0, 1, … `num_bins` - 1 occur, as an int32 tile of that length.

    Args:
        input: a 1-D tile of int32 or uint32; other values are not counted.
        mask: int1; where it is false, elements are not counted.

        tl.histogram(x, 4)  # [0, 2, 2, 7] -> [1, 0, 2, 0]
    """
    return sorting.histogram(_semantic, input, num_bins, mask)


@builtin
def map_elementwise(scalar_fn: Any, *args: Any, pack: Any = 1, _semantic: Any = None) -> Any:
    """Call a jit function for each element of tiles, with scalars: it may branch and loop.

    Args:
        scalar_fn: takes an element of each of `args`, and returns a scalar or a tuple of them. It
            must not write memory.
        args: tiles and scalars; they are broadcast.
        pack: a power of two; the function takes so many elements at once, neighbours in row-major
            order: those of the first argument, then those of the second, …; and returns as many
            of each result likewise.

        tl.map_elementwise(compare, x, y)
    """
    return sorting.map_elementwise(_semantic, unwrap(scalar_fn), args, pack)


@builtin
def swizzle2d(
    i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any, *, _semantic: Any = None
) -> tuple:
    """Indices of a row-major grid, renumbered so that groups of `size_g` rows are walked down."""
    return shape.swizzle2d(_semantic, i, j, size_i, size_j, size_g)

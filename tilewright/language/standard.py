"""Named reductions and scans, softmax, and index arithmetic."""

from __future__ import annotations

from typing import Any

from tilewright.language.math import cdiv, sigmoid
from tilewright.language.semantic import arith, reduce, shape
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.convert import to_tensor
from tilewright.language.values import builtin, constexpr, tensor, tensor_method, tuple

__all__ = [
    "argmax", "argmin", "cdiv", "cumprod", "cumsum", "max", "min", "reduce_or", "sigmoid",
    "softmax", "sum", "swizzle2d", "xor_sum",
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


@tensor_method
@builtin
def softmax(
    x: tensor, dim: Any = None, keep_dims: Any = None, ieee_rounding: Any = False, *,
    _semantic: Any = None,
) -> tensor:  # fmt: skip
    """exp(x) / sum(exp(x)) along `dim`, the first axis by default; fp32 or fp64.

    `keep_dims` is ignored: the shape is that of `x`.
    """
    return reduce.softmax(_semantic, x, dim, ieee_rounding)


@builtin
def swizzle2d(
    i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any, *, _semantic: Any = None
) -> tuple:
    """Indices of a row-major grid, renumbered so that groups of `size_g` rows are walked down."""
    return shape.swizzle2d(_semantic, i, j, size_i, size_j, size_g)

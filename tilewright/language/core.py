"""The primitives of the language, thin functions over `language/semantic`.

They are called inside kernels only. Arguments that must be compile-time values are documented.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import tilewright.language.block_pointer as _block_pointers
import tilewright.language.tensor_descriptor as _tensor_descriptors
from tilewright.base.codes import coded
from tilewright.language import (
    asm,
    atomic,
    debug,
    hints,
    iteration,
    products,
    semantic,
    types,
)
from tilewright.language.aggregate import aggregate, aggregate_replace
from tilewright.language.asm import *
from tilewright.language.asm import dispatch as dispatch
from tilewright.language.asm import extern as extern
from tilewright.language.asm import extern_elementwise as extern_elementwise
from tilewright.language.atomic import *
from tilewright.language.block_pointer import *
from tilewright.language.block_values import block_pointer
from tilewright.language.debug import *
from tilewright.language.hints import *
from tilewright.language.iteration import *
from tilewright.language.products import *
from tilewright.language.tensor_descriptor import *
from tilewright.language.types import *
from tilewright.language.types import get_int_dtype as get_int_dtype
from tilewright.language.values import TRITON_BUILTIN as TRITON_BUILTIN
from tilewright.language.values import base_value as base_value
from tilewright.language.values import (
    builtin,
    const,
    constexpr,
    slice,
    tensor,
    tensor_method,
    tuple,
    unwrap,
)
from tilewright.language.values import is_builtin as is_builtin
from tilewright.language.values import must_use_result as must_use_result

# The names that `tl` exports from this file and from those it re-exports.
__all__ = [
    "PropagateNan", "add", "aggregate_replace", "arange",
    "associative_scan", "broadcast", "broadcast_to", "cast", "cat", "clamp", "const", "constexpr",
    "expand_dims", "flip", "full", "gather", "interleave", "join", "load", "maximum", "minimum",
    "mul", "num_programs", "permute", "program_id", "ravel", "reduce", "reshape", "slice", "split",
    "squeeze", "static_assert", "static_print", "store", "sub", "tensor", "to_tensor", "trans",
    "tuple", "unsqueeze", "view", "where", "zeros", "zeros_like",
]  # fmt: skip
__all__ += asm.__all__
__all__ += atomic.__all__
__all__ += _block_pointers.__all__
__all__ += debug.__all__
__all__ += hints.__all__
__all__ += iteration.__all__
__all__ += products.__all__
__all__ += _tensor_descriptors.__all__
__all__ += types.__all__

_aggregate = aggregate  # its name in Triton


class PropagateNan(Enum):
    """NaN handling of `minimum`, `maximum` and `clamp`: NONE returns the number, ALL the NaN."""

    NONE = 0
    ALL = 0xFFFF


# -- programming model -----------------------------------------------------------------------------


@builtin
def program_id(axis: Any, *, _semantic: Any = None) -> tensor:
    """The index of the current program along `axis` (0, 1 or 2) of the grid, a scalar int32.

        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)

    Raises:
        ValueError: another axis.
    """
    return semantic.shape.program_id(_semantic, axis)


@builtin
def num_programs(axis: Any, *, _semantic: Any = None) -> tensor:
    """The extent of the grid along `axis` (0, 1 or 2), a scalar int32."""
    return semantic.shape.num_programs(_semantic, axis)


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


@tensor_method
@builtin
def cast(
    input: Any,
    dtype: Any,
    fp_downcast_rounding: Any = None,
    bitcast: Any = False,
    *,
    _semantic: Any = None,
) -> tensor:
    """Convert to `dtype`, or reinterpret the bits if `bitcast` is set.

    Args:
        fp_downcast_rounding: "rtne" (default) or "rtz", for conversions to a narrower float only.

    Raises:
        ValueError: a bitcast between different widths, or an inapplicable rounding mode.
    """
    return semantic.convert.cast_any(_semantic, input, dtype, fp_downcast_rounding, bitcast)


tensor_method(cast, "to")


@builtin
def to_tensor(x: Any, *, _semantic: Any = None) -> tensor:
    """Convert a Python number to a scalar tensor; a tensor is returned unchanged."""
    return semantic.to_tensor(_semantic, x)


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


# -- memory ----------------------------------------------------------------------------------------


@builtin
def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: Any = "",
    cache_modifier: Any = "",
    eviction_policy: Any = "",
    volatile: Any = False,
    *,
    _semantic: Any = None,
) -> tensor:
    """Load from memory, in the common shape of `pointer`, `mask` and `other`.

    Args:
        pointer: a scalar pointer, a tile of pointers, or a block pointer.
        mask: int1; masked-off lanes do not access memory.
        other: the value of masked-off lanes; undefined by default.
        cache_modifier: "", ".ca", ".cg", ".cs" or ".cv": a caching hint; ".cv" implies volatile.
        eviction_policy: "", "evict_first", "evict_last" or "evict_normal": a caching hint.
        volatile: the load must not be removed, duplicated or merged.
        boundary_check: for block pointers only: the axes to check for out-of-bounds elements, which
            are not read.
        padding_option: for block pointers only: "zero" or "nan", the value of out-of-bounds
            elements; "" leaves it undefined.

    Raises:
        ValueError: an argument is incompatible with the pointer.
    """
    if isinstance(pointer, block_pointer):
        return semantic.block_pointer.load(
            _semantic, pointer, mask, other, boundary_check, padding_option, cache_modifier,
            eviction_policy, volatile,
        )  # fmt: skip
    return semantic.memory.load(
        _semantic, pointer, mask, other, boundary_check, padding_option, cache_modifier,
        eviction_policy, volatile,
    )  # fmt: skip


@tensor_method
@builtin
def store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: Any = "",
    eviction_policy: Any = "",
    *,
    _semantic: Any = None,
) -> None:
    """Store `value`, cast to the pointee type and broadcast to the pointer's shape.

    Args:
        pointer: a scalar pointer, a tile of pointers, or a block pointer.
        mask: int1; masked-off lanes do not access memory.
        boundary_check: for block pointers only: the axes to check for out-of-bounds elements, which
            are not written.
        cache_modifier: "", ".wb", ".cg", ".cs" or ".wt": a caching hint.
        eviction_policy: as for `load`.

    Raises:
        ValueError: an argument is incompatible with the pointer, or the pointee is const.
    """
    if isinstance(pointer, block_pointer):
        semantic.block_pointer.store(
            _semantic, pointer, value, mask, boundary_check, cache_modifier, eviction_policy
        )
        return
    semantic.memory.store(
        _semantic, pointer, value, mask, boundary_check, cache_modifier, eviction_policy
    )


# -- arithmetic ------------------------------------------------------------------------------------


@builtin
def add(x: Any, y: Any, sanitize_overflow: Any = True, *, _semantic: Any = None) -> tensor:
    """``x + y``. `sanitize_overflow` False disables the overflow check of the option `debug`."""
    return semantic.arith.add(_semantic, x, y, bool(unwrap(sanitize_overflow)))


@builtin
def sub(x: Any, y: Any, sanitize_overflow: Any = True, *, _semantic: Any = None) -> tensor:
    """``x - y``; `sanitize_overflow` as for `add`."""
    return semantic.arith.sub(_semantic, x, y, bool(unwrap(sanitize_overflow)))


@builtin
def mul(x: Any, y: Any, sanitize_overflow: Any = True, *, _semantic: Any = None) -> tensor:
    """``x * y``; `sanitize_overflow` as for `add`."""
    return semantic.arith.mul(_semantic, x, y, bool(unwrap(sanitize_overflow)))


@builtin
def minimum(
    x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE, *, _semantic: Any = None
) -> tensor:
    """Elementwise minimum."""
    return semantic.arith.minimum(_semantic, x, y, semantic.arith.propagates(propagate_nan))


@builtin
def maximum(
    x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE, *, _semantic: Any = None
) -> tensor:
    """Elementwise maximum."""
    return semantic.arith.maximum(_semantic, x, y, semantic.arith.propagates(propagate_nan))


@builtin
def clamp(
    x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE, *, _semantic: Any = None
) -> tensor:
    """Clamp `x` to [min, max]; undefined if ``min > max``."""
    return semantic.arith.clamp(_semantic, x, min, max, semantic.arith.propagates(propagate_nan))


@builtin
def where(condition: Any, x: Any, y: Any, *, _semantic: Any = None) -> tensor:
    """`x` where `condition` is true, else `y`, in the common type of both.

    Both are evaluated, and all three are broadcast to a common shape. Loads in them need masks of
    their own.

        relu = tl.where(x > 0, x, 0.0)

    Raises:
        ValueError: the shapes are incompatible.
    """
    return semantic.arith.where(_semantic, condition, x, y)


@tensor_method
@builtin
def logical_and(input: Any, other: Any, *, _semantic: Any = None) -> tensor:
    """Logical and of two int1 tensors."""
    return semantic.arith.logical_and(_semantic, input, other)


@tensor_method
@builtin
def logical_or(input: Any, other: Any, *, _semantic: Any = None) -> tensor:
    """Logical or of two int1 tensors."""
    return semantic.arith.logical_or(_semantic, input, other)


# -- reductions ------------------------------------------------------------------------------------


def _inputs(input: Any, s: semantic.Semantic) -> list[tensor]:
    values = input.values if isinstance(input, tuple) else [input]
    return [semantic.to_tensor(s, v) for v in values]


def _like_inputs(input: Any, results: list[tensor]) -> Any:
    return tuple(results) if isinstance(input, tuple) else results[0]


@tensor_method
@builtin
def reduce(
    input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, *, _semantic: Any = None
) -> Any:
    """Reduce along `axis`, or over all elements if it is None, with a jit function.

    Args:
        input: a tile, or a tuple of N tiles of one shape.
        combine_fn: takes 2 N scalars, the N elements of the left operand and then those of the
            right, and returns N; it must be associative and commutative. It computes with scalars
            only, and does not access memory.
        keep_dims: keep the reduced axis with length 1.

    The first place of the maximum::

        @jit
        def larger(x, i, y, j):
            first = (x > y) | ((x == y) & (i < j))
            return tl.where(first, x, y), tl.where(first, i, j)

        maximum, place = tl.reduce((x, tl.arange(0, N)), 0, larger)

    Raises:
        CompilationError: `combine_fn` computes tiles, or has effects.
    """
    combine = semantic.reduce.combine_with(_semantic, unwrap(combine_fn))
    srcs = _inputs(input, _semantic)
    found = semantic.reduce.reduce(_semantic, srcs, axis, combine, bool(unwrap(keep_dims)))
    return _like_inputs(input, found)


@tensor_method
@builtin
def associative_scan(
    input: Any, axis: Any, combine_fn: Any, reverse: Any = False, *, _semantic: Any = None
) -> Any:
    """Inclusive scan along `axis` with a jit function; from the end if `reverse` is set.

    Args:
        input: a tile, or a tuple of N tiles of one shape; the result has the same form.
        combine_fn: takes 2 N scalars, the N elements of the left operand and then those of the
            right, and returns N; it must be associative. Unlike in `reduce`, operands keep their
            order.

    A segmented sum, restarted where a flag is set::

        @jit
        def combine(left_flag, left, right_flag, right):
            return left_flag | right_flag, right + tl.where(right_flag, 0, left)

        flag, total = tl.associative_scan((flag, x), 0, combine)
    """
    combine = semantic.reduce.combine_with(_semantic, unwrap(combine_fn))
    srcs = _inputs(input, _semantic)
    return _like_inputs(input, semantic.reduce.scan(_semantic, srcs, axis, combine, reverse))


# -- compile time ----------------------------------------------------------------------------------


@builtin
def static_print(
    *values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False,
    _semantic: Any = None,
) -> None:  # fmt: skip
    """Print at compile time; compile-time values are printed as Python values."""
    texts, stream = [unwrap(v) for v in values], unwrap(file)
    if stream is not None and not hasattr(stream, "write"):
        raise TypeError(f"static_print: file must be a text stream, not {stream}")
    print(*texts, sep=unwrap(sep), end=unwrap(end), file=stream, flush=bool(unwrap(flush)))


@builtin
def static_assert(cond: Any, msg: Any = "", *, _semantic: Any = None) -> None:
    """Abort compilation unless a compile-time condition holds."""
    strict = _semantic is not None and _semantic.options.strict_triton
    if isinstance(cond, tensor) or (strict and not isinstance(unwrap(cond), bool)):
        raise coded(
            "needs-constant",
            NotImplementedError(
                "Assertion condition could not be determined at compile-time. Make sure that it "
                "depends only on `constexpr` values"
            ),
        )
    if not unwrap(cond):
        raise semantic.StaticAssertionError(str(unwrap(msg)))

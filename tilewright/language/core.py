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
    shape,
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
from tilewright.language.shape import *
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
    "PropagateNan", "add", "aggregate_replace", "associative_scan", "cast", "clamp", "const",
    "constexpr", "load", "maximum", "minimum", "mul", "num_programs", "program_id", "reduce",
    "slice", "static_assert", "static_print", "store", "sub", "tensor", "to_tensor", "tuple",
    "where",
]  # fmt: skip
__all__ += asm.__all__
__all__ += atomic.__all__
__all__ += _block_pointers.__all__
__all__ += debug.__all__
__all__ += hints.__all__
__all__ += iteration.__all__
__all__ += products.__all__
__all__ += shape.__all__
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


# -- conversion ------------------------------------------------------------------------------------


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

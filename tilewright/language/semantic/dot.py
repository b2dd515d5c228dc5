"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilewright.base import knobs
from tilewright.base.codes import coded
from tilewright.ir.types import (
    BF16,
    FP8E4B15,
    FP16,
    FP32,
    FP64,
    I8,
    I32,
    U8,
    DType,
    Scalar,
    Tile,
    shape_of,
)
from tilewright.language.semantic import convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.memory import plain
from tilewright.language.semantic.shape import reshape
from tilewright.language.values import tensor
from tilewright.ops import dot as ops

OPERAND_TYPES = (I8, U8, FP16, BF16, FP32, FP64)


def _check_operand_types(lhs: tensor, rhs: tensor) -> None:
    for side, x in (("lhs", lhs), ("rhs", rhs)):
        element = x.dtype
        assert element in OPERAND_TYPES or element.is_fp8(), f"Unsupported {side} dtype {element}"
    if lhs.dtype.is_fp8() and rhs.dtype.is_fp8():
        return
    if lhs.dtype != rhs.dtype:
        error = AssertionError(f"Both operands must be same dtype. Got {lhs.dtype} and {rhs.dtype}")
        raise coded("unlike-types", error)
    assert lhs.dtype is not U8, "only int8 supported!"


def _upcast_fp8(s: Semantic, x: tensor) -> tensor:
    """Upcast fp8 operands of types that the target does not multiply, or that are deprecated, to
    fp16."""
    deprecated = x.dtype.name in s.options.deprecated_fp8_dot_operand_dtypes
    if deprecated:
        s.warn(
            f"{x.dtype} is deprecated as an operand of dot on this architecture and is upcast to "
            "fp16; it may become an error",
        )
    return convert.cast(s, x, FP16) if deprecated or x.dtype is FP8E4B15 else x


def _precision(s: Semantic, input_precision: Any, allow_tf32: Any) -> str:
    """The permitted rounding of fp32 operands."""
    requested, flag = plain(input_precision), plain(allow_tf32)
    assert requested is None or flag is None, (
        "Only one of input_precision and allow_tf32 can be specified"
    )
    allowed = s.options.allowed_dot_input_precisions
    if requested is None:
        requested = _default_precision(s, flag)
    by_name = {p.lower(): p for p in allowed}
    if str(requested).lower() not in by_name:
        raise ValueError(f"input_precision must be one of {tuple(allowed)}. Got {requested}")
    return by_name[str(requested).lower()]


def _default_precision(s: Semantic, allow_tf32: Any) -> str:
    if knobs.language.fp32_default:
        return knobs.language.fp32_default
    if allow_tf32 is None:
        return s.options.default_dot_input_precision
    return "tf32" if allow_tf32 and "tf32" in s.options.allowed_dot_input_precisions else "ieee"


def _check_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    if not len(a) == len(b) >= 2:
        text = f"input and other must have equal ranks >= 2; got shapes {list(a)} and {list(b)}"
        raise coded("dot-shapes", AssertionError(text))
    assert a[:-2] == b[:-2], (
        f"input and other must have equal batch shapes; got shapes {list(a)} and {list(b)}"
    )
    if a[-1] != b[-2]:
        text = (
            "input and other must have equal reduction dimensions; First input shape "
            f"({list(a)}) and second input shape {list(b)} are not compatible for matmul (second "
            f"index of first shape ({a[-1]}) must be equal to first index of second shape ({b[-2]})"
        )
        raise coded("dot-shapes", AssertionError(text))


def check_min_size(
    s: Semantic, types: tuple[Scalar, Scalar], extents: tuple[int, int, int]
) -> None:
    """Raise AssertionError if a product of operands of these types is too small for the target.

    Args:
        extents: its (M, N, K).
    """
    size = s.options.min_dot_size
    lhs, rhs = types
    assert isinstance(lhs, DType)
    assert isinstance(rhs, DType)
    m, n, k = size(lhs, rhs) if callable(size) else size
    large_enough = extents[0] >= m and extents[1] >= n and extents[2] >= k
    assert large_enough, f"Input shapes should have M >= {m}, N >= {n} and K >= {k}"


def _result_type(s: Semantic, element: Scalar, acc: tensor | None, out_dtype: Any) -> DType:
    """The element type of the accumulator and the result: by default that of `acc`, which
    `strict_triton` ignores."""
    requested = plain(out_dtype)
    if requested is not None:
        requested = convert.as_dtype(requested)
    elif acc is not None and not s.options.strict_triton:
        requested = acc.dtype
    else:
        requested = FP32
    if requested is BF16:
        raise ValueError(
            "out_dtype=bfloat16 is unsupported. Please use out_dtype=float32/float16 and cast "
            "with `.to(tl.bfloat16)`"
        )
    if element is I8:
        return I32
    if element is FP64:
        return FP64
    if element is FP32 or element is BF16:
        return FP32
    assert requested in (FP16, FP32), f"out_dtype is fp16 or fp32, not {requested}"
    return requested


def accumulator(s: Semantic, acc: tensor | None, shape: tuple[int, ...], element: DType) -> tensor:
    """The accumulator of a product, which must have this shape and type; zeros by default."""
    if acc is None:
        return convert.constant(s, 0, element, shape)
    assert shape_of(acc.type) == shape, (
        f"accumulator shape is incompatible: expected accumulator shape {list(shape)}, got "
        f"{list(shape_of(acc.type))}"
    )
    assert acc.dtype == element, (
        f"expected accumulator dtype {element}, got {acc.dtype}; the accumulator must have the "
        "type of the result, see `out_dtype`"
    )
    return acc


def _imprecise(s: Semantic, given: Any, lhs: tensor, rhs: tensor) -> int:
    """The number of K steps that may be accumulated at reduced precision; nonzero for fp8 only."""
    k = shape_of(lhs.type)[-1]
    limit = plain(given)
    both = lhs.dtype.is_fp8() and rhs.dtype.is_fp8()
    if limit is None:
        return s.options.max_num_imprecise_acc_default if both else 0
    if both and limit > k:
        raise ValueError(f"max_num_imprecise_acc ({limit}) must be <= K ({k})")
    return limit if both else 0


def flat_batch(s: Semantic, xs: Sequence[tensor]) -> list[tensor]:
    """Flatten all axes but the last two."""
    flat: list[tensor] = []
    for x in xs:
        shape = shape_of(x.type)
        flat.append(reshape(s, x, (prod(shape[:-2]), *shape[-2:])))
    return flat


def dot(
    s: Semantic,
    lhs: tensor,
    rhs: tensor,
    acc: tensor | None,
    input_precision: Any,
    allow_tf32: Any,
    max_num_imprecise_acc: Any,
    out_dtype: Any,
) -> tensor:
    """``acc + lhs @ rhs`` over the last two axes; `acc` defaults to zero."""
    tiles = isinstance(lhs.type, Tile) and isinstance(rhs.type, Tile)
    assert tiles, "dot operands must be block tensors (not scalars)"
    _check_operand_types(lhs, rhs)
    lhs, rhs = _upcast_fp8(s, lhs), _upcast_fp8(s, rhs)
    if lhs.dtype.is_fp8() != rhs.dtype.is_fp8():  # one of the two was upcast
        lhs, rhs = convert.cast(s, lhs, FP16), convert.cast(s, rhs, FP16)
    precision = _precision(s, input_precision, allow_tf32)
    a, b = shape_of(lhs.type), shape_of(rhs.type)
    _check_shapes(a, b)
    check_min_size(s, (lhs.dtype, rhs.dtype), (a[-2], b[-1], a[-1]))
    element = _result_type(s, lhs.dtype, acc, out_dtype)
    shape = (*a[:-1], b[-1])
    acc = accumulator(s, acc, shape, element)
    imprecise = _imprecise(s, max_num_imprecise_acc, lhs, rhs)
    if len(a) > 3:
        lhs, rhs, acc = flat_batch(s, (lhs, rhs, acc))
    precision = precision if lhs.dtype is FP32 else "ieee"
    product = s.emit(ops.Dot(lhs.handle, rhs.handle, acc.handle, precision, imprecise))
    return reshape(s, product, shape)

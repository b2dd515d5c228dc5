"""Matrix products of block-scaled floats: narrow floats with one scale per group."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from tilewright.ir.types import FP32, I8, U8, U16, Tile, dtype_of, shape_of
from tilewright.language.semantic import convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.dot import accumulator, check_min_size, flat_batch
from tilewright.language.semantic.memory import plain
from tilewright.language.semantic.shape import reshape
from tilewright.language.values import tensor
from tilewright.ops.dot_scaled import GROUPS, PACKED, PLAIN, SHORT, DotScaled, compute_type


class _Side(NamedTuple):
    """An operand of the product.

    Attributes:
        name: "lhs" or "rhs".
        k_pack: whether the two numbers in a byte are adjacent along K.
        k_axis, free_axis: the axes K, and M or N, counted from the end.
    """

    name: str
    value: tensor
    scale: tensor | None
    format: str
    k_pack: bool
    k_axis: int
    free_axis: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the unpacked operand."""
        extents = list(shape_of(self.value.type))
        if self.format == PACKED:
            extents[self.k_axis if self.k_pack else self.free_axis] *= 2
        return tuple(extents)


def _side(s: Semantic, name: str, value: tensor, scale: Any, format: Any, k_pack: Any) -> _Side:
    kind = plain(format)
    if kind not in SHORT and kind not in PLAIN:
        raise ValueError(
            f"Invalid float format: {kind}. The {name} format is one of {(*SHORT, *PLAIN)}"
        )
    packed_along_k = bool(plain(k_pack))
    assert packed_along_k or kind == PACKED, (
        "only mxfp4 inputs can be packed along a dimension different than K; the format of "
        f"{name} is {kind}"
    )
    assert isinstance(value.type, Tile), f"{name} must be a block tensor"
    scale_tile = plain(scale)
    if not isinstance(scale_tile, tensor) or prod(shape_of(scale_tile.type)) == 1:
        scale_tile = None
    k_axis, free_axis = (-1, -2) if name == "lhs" else (-2, -1)
    return _Side(
        name, _stored(s, name, value, kind), scale_tile, kind, packed_along_k, k_axis, free_axis
    )


def _stored(s: Semantic, name: str, value: tensor, format: str) -> tensor:
    """The elements in the type that stores the format, or as bytes if bytes were passed."""
    element = dtype_of(value.type)
    if format not in PLAIN:
        if element not in (U8, I8):
            raise ValueError(f"a {name} of format {format} is uint8, not {element}")
        return convert.bitcast(s, value, U8)
    to = PLAIN[format]
    raw = element.is_int() and element.primitive_bitwidth == to.primitive_bitwidth
    kind = U8 if to.primitive_bitwidth == 8 else U16
    if element != to and not raw:
        raise ValueError(f"a {name} of format {format} is {to} or {kind}, not {element}")
    return convert.bitcast(s, value, U8 if raw and kind == U8 else to)


def _group(side: _Side) -> int | None:
    """The number of elements along K per scale; None without scales."""
    if side.scale is None:
        return None
    sizes, value = shape_of(side.scale.type), side.shape
    outer = (*value[:-2], value[side.free_axis])
    assert sizes[:-1] == outer, (
        f"{side.name}_scale must have the shape {[*outer, 'K // group']}, got {list(sizes)}"
    )
    factor = value[side.k_axis] // sizes[-1]
    assert factor in GROUPS, f"scale factor must be 16 or 32. Got {factor}"
    return factor


def _scale(s: Semantic, side: _Side) -> tensor | None:
    """The scales: bytes, or floats."""
    if side.scale is None or side.scale.dtype.is_floating():
        return side.scale
    element = side.scale.dtype
    if element not in (U8, I8):
        raise ValueError(f"{side.name}_scale is uint8 or fp8e4nv, not {element}")
    return convert.bitcast(s, side.scale, U8)


def dot_scaled(
    s: Semantic,
    lhs: tuple[tensor, Any, Any, Any],
    rhs: tuple[tensor, Any, Any, Any],
    acc: tensor | None,
    fast_math: Any,
    out_dtype: Any,
) -> tensor:
    """``acc + (lhs * scales) @ (rhs * scales)``; see `tl.dot_scaled`.

    Args:
        lhs, rhs: value, scale, format, and whether packed along K.

    Raises:
        ValueError, AssertionError: incompatible formats, shapes or scales.
    """
    sides = _side(s, "lhs", *lhs), _side(s, "rhs", *rhs)
    left, right = (side.shape for side in sides)
    assert len(left) == len(right) >= 2, (
        f"lhs and rhs must have equal ranks >= 2; got shapes {list(left)} and {list(right)}"
    )
    assert left[:-2] == right[:-2], (
        f"lhs and rhs must have equal batch shapes; got shapes {list(left)} and {list(right)}"
    )
    assert left[-1] == right[-2], (
        f"lhs and rhs must have equal reduction dimensions; unpacked they are {list(left)} and "
        f"{list(right)}"
    )
    groups = [_group(side) for side in sides]
    if None not in groups and groups[0] != groups[1]:
        raise ValueError(
            f"Operands must have the same scale factor; (lhs: {groups[0]} vs rhs: {groups[1]})"
        )
    to = compute_type(sides[0].format, sides[1].format)
    check_min_size(s, (to, to), (left[-2], right[-1], left[-1]))
    out = convert.as_dtype(out_dtype)
    shape = (*left[:-1], right[-1])
    return convert.cast(s, _product(s, sides, _summand(s, acc, shape, out), fast_math), out)


def _summand(s: Semantic, acc: tensor | None, shape: tuple[int, ...], out: Any) -> tensor:
    """The accumulator, in fp32."""
    if acc is not None:
        assert acc.dtype == out, (
            f"expected accumulator dtype {out}, got {acc.dtype}; the accumulator must have the "
            "type of the result, see `out_dtype`"
        )
        acc = convert.cast(s, acc, FP32)
    return accumulator(s, acc, shape, FP32)


def _product(s: Semantic, sides: tuple[_Side, _Side], acc: tensor, fast_math: Any) -> tensor:
    """The product, in fp32."""
    shape = shape_of(acc.type)
    left, right = sides
    scales = [_scale(s, side) for side in sides]
    values = [left.value, right.value]
    if len(shape) > 3:
        values = flat_batch(s, values)
        scales = [None if scale is None else flat_batch(s, [scale])[0] for scale in scales]
        acc = flat_batch(s, [acc])[0]
    x, y = (None if scale is None else scale.handle for scale in scales)
    product = DotScaled(
        values[0].handle, x, values[1].handle, y, acc.handle, left.format, right.format,
        left.k_pack, right.k_pack, bool(plain(fast_math)),
    )  # fmt: skip
    return reshape(s, s.emit(product), shape)

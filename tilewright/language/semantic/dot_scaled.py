"""Matrix products of block-scaled floats: narrow floats with one scale per group.

The operands are converted to fp16 or bf16, and multiplied by an ordinary product, on every target.
The formats and scales are those of the OCP Microscaling Formats (MX) specification 1.0; fp8e4nv
scales for groups of 16 are those of NVFP4.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from tilewright.ir.types import (
    BF16,
    FP8E4NV,
    FP8E5,
    FP16,
    FP32,
    I8,
    I32,
    U8,
    U16,
    DType,
    Tile,
    dtype_of,
    shape_of,
)
from tilewright.language.semantic import arith, convert, shape
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.dot import dot
from tilewright.language.semantic.memory import plain
from tilewright.language.values import tensor


class _Short(NamedTuple):
    """A float format of fewer than 8 bits, stored in the low bits of a byte, without infinities and
    NaN.

    Attributes:
        exponent, mantissa: the number of bits of each, below the sign bit.
        bias: the exponent bias.
    """

    exponent: int
    mantissa: int
    bias: int


_SHORT = {"e2m1": _Short(2, 1, 1), "e2m3": _Short(2, 3, 1), "e3m2": _Short(3, 2, 3)}
_PLAIN = {"e4m3": FP8E4NV, "e5m2": FP8E5, "bf16": BF16, "fp16": FP16}
_PACKED = "e2m1"  # two in a byte
SCALE_FACTORS = (16, 32)


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


def _side(name: str, value: tensor, scale: Any, format: Any, k_pack: Any) -> _Side:
    kind = plain(format)
    if kind not in _SHORT and kind not in _PLAIN:
        raise ValueError(
            f"Invalid float format: {kind}. The {name} format is one of {(*_SHORT, *_PLAIN)}"
        )
    packed_along_k = bool(plain(k_pack))
    assert packed_along_k or kind == _PACKED, (
        "only mxfp4 inputs can be packed along a dimension different than K; the format of "
        f"{name} is {kind}"
    )
    given = plain(scale)
    if not isinstance(given, tensor) or prod(shape_of(given.type)) == 1:
        given = None
    k_axis, free_axis = (-1, -2) if name == "lhs" else (-2, -1)
    return _Side(name, value, given, kind, packed_along_k, k_axis, free_axis)


# -- numbers ---------------------------------------------------------------------------------------


def _numbers(s: Semantic, side: _Side) -> tensor:
    """The unpacked operand as floats, without its scale."""
    value = side.value
    element = dtype_of(value.type)
    if side.format in _PLAIN:
        to = _PLAIN[side.format]
        raw = element.is_int() and element.primitive_bitwidth == to.primitive_bitwidth
        if element != to and not raw:
            kind = U8 if to.primitive_bitwidth == 8 else U16
            raise ValueError(
                f"a {side.name} of format {side.format} is {to} or {kind}, not {element}"
            )
        return convert.bitcast(s, value, to)
    if element not in (U8, I8):
        raise ValueError(f"a {side.name} of format {side.format} is uint8, not {element}")
    bits = convert.cast(s, convert.bitcast(s, value, U8), U16)
    if side.format != _PACKED:
        return _short_floats(s, bits, _SHORT[side.format])
    low, high = arith.bit_and(s, bits, 15), arith.shr(s, bits, 4)
    both = _interleave(s, low, high, side.k_axis if side.k_pack else side.free_axis)
    return _short_floats(s, both, _SHORT[_PACKED])


def _interleave(s: Semantic, low: tensor, high: tensor, axis: int) -> tensor:
    """Interleave the elements of two tiles along one of the last two axes."""
    pair = shape.join(s, low, high)
    sizes = list(shape_of(low.type))
    if axis == -2:
        rank = len(sizes)
        pair = shape.permute(s, pair, [*range(rank - 1), rank, rank - 1])
    sizes[axis] *= 2
    return shape.reshape(s, pair, sizes)


def _short_floats(s: Semantic, bits: tensor, kind: _Short) -> tensor:
    """Convert to fp16, exactly: shift the bits to their positions in fp16, and multiply by a power
    of two to adjust the exponent bias, which is also correct for subnormals."""
    width = kind.exponent + kind.mantissa
    magnitude = arith.shl(s, arith.bit_and(s, bits, (1 << width) - 1), 10 - kind.mantissa)
    scaled = arith.mul(s, convert.bitcast(s, magnitude, FP16), 2.0 ** (15 - kind.bias))
    sign = arith.shl(s, arith.bit_and(s, arith.shr(s, bits, width), 1), 15)
    return convert.bitcast(s, arith.bit_or(s, convert.bitcast(s, scaled, U16), sign), FP16)


# -- scales ----------------------------------------------------------------------------------------


def _factor(side: _Side, k: int, free: int) -> int | None:
    """The number of elements along K per scale; None without scales."""
    if side.scale is None:
        return None
    sizes, value = shape_of(side.scale.type), shape_of(side.value.type)
    outer = (*value[:-2], free)
    assert sizes[:-1] == outer, (
        f"{side.name}_scale must have the shape {[*outer, 'K // group']}, got {list(sizes)}"
    )
    factor = k // sizes[-1]
    assert factor in SCALE_FACTORS, f"scale factor must be 16 or 32. Got {factor}"
    return factor


def _scale_numbers(s: Semantic, side: _Side, fast: bool) -> tensor:
    """The scales as fp32. A byte v is 2 ** (v - 127), and 255 is NaN."""
    assert side.scale is not None
    element = side.scale.dtype
    if element.is_floating():
        return convert.cast(s, side.scale, FP32)
    if element not in (U8, I8):
        raise ValueError(f"{side.name}_scale is uint8 or fp8e4nv, not {element}")
    v = convert.cast(s, convert.bitcast(s, side.scale, U8), I32)
    exponent = arith.shl(s, v, 23)
    bits = arith.where(s, arith.eq(s, v, 0), 1 << 22, exponent)
    if not fast:
        bits = arith.where(s, arith.eq(s, v, 255), 0x7FC00000, bits)
    return convert.bitcast(s, bits, FP32)


def _spread(s: Semantic, scales: tensor, factor: int, transposed: bool) -> tensor:
    """Repeat each scale along K, for each element of its group."""
    sizes = shape_of(scales.type)
    wide = convert.broadcast_to(s, shape.expand_dims(s, scales, -1), (*sizes, factor))
    flat = shape.reshape(s, wide, (*sizes[:-1], sizes[-1] * factor))
    return shape.trans(s, flat, ()) if transposed else flat


def _scaled(
    s: Semantic, side: _Side, numbers: tensor, factor: int | None, to: DType, fast: bool
) -> tensor:
    """The operand of the product: elements times scales, rounded once."""
    if factor is None:
        return convert.cast(s, numbers, to)
    scales = _spread(s, _scale_numbers(s, side, fast), factor, side.name == "rhs")
    return convert.cast(s, arith.mul(s, convert.cast(s, numbers, FP32), scales), to)


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
    sides = _side("lhs", *lhs), _side("rhs", *rhs)
    for side in sides:
        assert isinstance(side.value.type, Tile), f"{side.name} must be a block tensor"
    numbers = [_numbers(s, side) for side in sides]
    left, right = (shape_of(x.type) for x in numbers)
    assert len(left) == len(right) >= 2, (
        f"lhs and rhs must have equal ranks >= 2; got shapes {list(left)} and {list(right)}"
    )
    assert left[-1] == right[-2], (
        f"lhs and rhs must have equal reduction dimensions; unpacked they are {list(left)} and "
        f"{list(right)}"
    )
    factors = [_factor(side, left[-1], x[side.free_axis])
               for side, x in zip(sides, (left, right), strict=True)]  # fmt: skip
    if None not in factors and factors[0] != factors[1]:
        raise ValueError(
            f"Operands must have the same scale factor; (lhs: {factors[0]} vs rhs: {factors[1]})"
        )
    compute = FP16 if "fp16" in (sides[0].format, sides[1].format) else BF16
    fast = bool(plain(fast_math))
    x, y = (
        _scaled(s, side, n, factor, compute, fast)
        for side, n, factor in zip(sides, numbers, factors, strict=True)
    )
    return _product(s, x, y, acc, convert.as_dtype(out_dtype))


def _product(s: Semantic, x: tensor, y: tensor, acc: tensor | None, out: Any) -> tensor:
    """The ordinary product, accumulated in fp32, as type `out`."""
    if acc is not None:
        assert acc.dtype == out, (
            f"expected accumulator dtype {out}, got {acc.dtype}; the accumulator must have the "
            "type of the result, see `out_dtype`"
        )
        acc = convert.cast(s, acc, FP32)
    return convert.cast(s, dot(s, x, y, acc, "ieee", None, None, FP32), out)

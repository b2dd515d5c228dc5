"""Expansion of products of block-scaled floats, for targets without instructions for them.

The operands are converted to fp16 or bf16, multiplied by their scales, and then by each other, by
an ordinary product. Scales are multiplied in fp32, or in bf16 where that is the type of the product
and the target has arithmetic on it: elements and scales are exact in bf16, and their product is
rounded once either way.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import (
    BF16,
    FP16,
    FP32,
    I32,
    U8,
    U16,
    DType,
    Scalar,
    dtype_of,
    shape_of,
)
from tilewright.ops.arith import And, Bitcast, Cast, Cmp, Constant, Mul, Or, Select, Shl, Shr
from tilewright.ops.dot import Dot
from tilewright.ops.dot_scaled import (
    NAN_EXPONENT,
    PLAIN,
    SHORT,
    DotScaled,
    ShortFloat,
    Side,
    compute_type,
)
from tilewright.ops.shape import Join, Permute, Reshape, broadcast_along

FEATURE = "dot_scaled"
"""The feature of targets that compute `tile.dot_scaled`, or expand what they do not compute."""

SIGN_BIT = 15  # of floats of 16 bits

BF16_ARITHMETIC = "bf16_arith"
"""The feature of targets whose arithmetic on bf16 takes no longer than that on fp32."""


@compiler_pass("expand_dot_scaled", required=True)
def expand_dot_scaled(fn: Function, ctx: PassContext) -> bool:
    """Replace block-scaled products by ordinary ones, unless the target computes them.

    Needs: nothing.  Leaves: no `tile.dot_scaled` without the feature.
    """
    return FEATURE not in ctx.features and expand_all(fn, in_bf16=BF16_ARITHMETIC in ctx.features)


@compiler_pass("expand_every_dot_scaled", required=True)
def expand_every_dot_scaled(fn: Function, ctx: PassContext) -> bool:
    """Replace all block-scaled products by ordinary ones, for differentiation, which requires ops
    with derivatives."""
    return expand_all(fn)


def expand_all(fn: Function, *, in_bf16: bool = False) -> bool:
    """Expand all block-scaled products; whether there were any."""
    found = [op for op in fn.walk() if type(op) is DotScaled]
    for op in found:
        expand(op, in_bf16=in_bf16)
    return bool(found)


def expand(op: DotScaled, *, in_bf16: bool = False) -> None:
    """Replace a product by conversions and an ordinary product.

    Args:
        in_bf16: whether elements that are rounded to bf16 are multiplied by their scales in it.
    """
    b = Builder()
    with b.before(op):
        to = compute_type(op.lhs_format, op.rhs_format)
        wide = BF16 if in_bf16 and to == BF16 else FP16
        numbers = [_numbers(b, side, wide) for side in op.sides]
        lhs, rhs = (
            _scaled(b, side, x, to, in_bf16=in_bf16, fast=op.fast_math)
            for side, x in zip(op.sides, numbers, strict=True)
        )
        op.result.replace_with(b.value(Dot(lhs, rhs, op.acc, "ieee", 0)))
    op.erase()


# -- elements -------------------------------------------------------------------------------------


def like(b: Builder, number: float, value: Value) -> Value:
    """A constant of the type of a value."""
    return b.value(Constant(number, value.type))


def cast(b: Builder, value: Value, to: DType) -> Value:
    """The value as another type."""
    return value if dtype_of(value.type) == to else b.value(Cast(value, to, "rtne"))


def _bitcast(b: Builder, value: Value, to: Scalar) -> Value:
    return b.value(Bitcast(value, to))


def _numbers(b: Builder, side: Side, wide: DType) -> Value:
    """The unpacked operand as floats, without its scale: those of a short format in a type that
    represents them."""
    if side.format in PLAIN:
        is_plain = dtype_of(side.value.type) == PLAIN[side.format]
        return side.value if is_plain else _bitcast(b, side.value, PLAIN[side.format])
    kind = SHORT[side.format]
    bits = cast(b, side.value, U16)
    if side.packed_axis is None:
        return _short_floats(b, bits, kind, 0, wide)
    # Converted first, as elements of two bytes have an instruction in common.
    low, high = (_short_floats(b, bits, kind, first, wide) for first in (0, 4))
    return _joined(b, low, high, side.packed_axis)


def unpacked(b: Builder, bits: Value, axis: int) -> Value:
    """Two 4-bit elements of each integer, along one of the last two axes: the lower bits, then the
    higher ones. The second element keeps the bits above it."""
    low = b.value(And(bits, like(b, 15, bits)))
    return _joined(b, low, b.value(Shr(bits, like(b, 4, bits))), axis)


def _joined(b: Builder, low: Value, high: Value, axis: int) -> Value:
    """The elements of two tiles alternately, along one of the last two axes."""
    pair = b.value(Join(low, high))
    sizes = list(shape_of(low.type))
    if axis == -2:
        rank = len(sizes)
        pair = b.value(Permute(pair, (*range(rank - 1), rank, rank - 1)))
    sizes[axis] *= 2
    return b.value(Reshape(pair, tuple(sizes)))


def _short_floats(b: Builder, bits: Value, kind: ShortFloat, first: int, wide: DType) -> Value:
    """Convert the floats that begin at the bit `first`, exactly: shift the bits to their positions
    in the wide type, and multiply by a power of two to adjust the exponent bias, which is also
    correct for subnormals."""
    mantissa = wide.fp_mantissa_width
    width = kind.exponent + kind.mantissa
    moved = _shifted(b, bits, mantissa - kind.mantissa - first)
    magnitude = ((1 << width) - 1) << (mantissa - kind.mantissa)
    magnitude = b.value(And(moved, like(b, magnitude, bits)))
    sign = _shifted(b, bits, SIGN_BIT - width - first)
    sign = b.value(And(sign, like(b, 1 << SIGN_BIT, bits)))
    number = _bitcast(b, b.value(Or(magnitude, sign)), wide)
    return b.value(Mul(number, like(b, 2.0 ** (wide.exponent_bias - kind.bias), number)))


def _shifted(b: Builder, bits: Value, count: int) -> Value:
    """The bits shifted left by a count that may be negative."""
    amount = like(b, abs(count), bits)
    return b.value(Shl(bits, amount) if count >= 0 else Shr(bits, amount))


# -- scales ---------------------------------------------------------------------------------------


def _scale_numbers(b: Builder, scale: Value, to: DType, *, fast: bool) -> Value:
    """The scales as fp32 or bf16, which have equal exponents. A byte v is 2 ** (v - 127), and 255
    is NaN."""
    if dtype_of(scale.type) != U8:
        return cast(b, scale, to)
    v = cast(b, scale, U16 if to == BF16 else I32)
    mantissa = to.fp_mantissa_width
    exponent = b.value(Shl(v, like(b, mantissa, v)))
    is_zero = b.value(Cmp(v, like(b, 0, v), "eq"))
    bits = b.value(Select(is_zero, like(b, 1 << (mantissa - 1), v), exponent))
    if not fast:
        is_nan = b.value(Cmp(v, like(b, NAN_EXPONENT, v), "eq"))
        quiet = (NAN_EXPONENT << mantissa) | 1 << (mantissa - 1)
        bits = b.value(Select(is_nan, like(b, quiet, v), bits))
    return _bitcast(b, bits, to)


def _spread(b: Builder, scales: Value, group: int, *, transposed: bool) -> Value:
    """Repeat each scale along K, for each element of its group."""
    sizes = shape_of(scales.type)
    rank = len(sizes)
    wide = broadcast_along(b.value, scales, (rank,), (*sizes, group))
    flat = b.value(Reshape(wide, (*sizes[:-1], sizes[-1] * group)))
    return b.value(Permute(flat, (*range(rank - 2), rank - 1, rank - 2))) if transposed else flat


def _scaled(
    b: Builder, side: Side, numbers: Value, to: DType, *, in_bf16: bool, fast: bool
) -> Value:
    """The operand of the product: elements times scales, rounded once."""
    if side.scale is None:
        return cast(b, numbers, to)
    group = side.group
    assert group is not None
    wide = BF16 if in_bf16 and to == BF16 and _in_bf16(side.scale) else FP32
    scales = _scale_numbers(b, side.scale, wide, fast=fast)
    spread = _spread(b, scales, group, transposed=side.k_axis == -2)
    return cast(b, b.value(Mul(cast(b, numbers, wide), spread)), to)


def _in_bf16(scale: Value) -> bool:
    """Whether bf16 represents all scales of the type."""
    kind = dtype_of(scale.type)
    return kind in (U8, BF16) or kind.is_fp8()

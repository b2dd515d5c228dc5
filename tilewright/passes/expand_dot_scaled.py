"""Expansion of products of block-scaled floats, for targets without instructions for them.

The operands are converted to fp16 or bf16, multiplied by their scales, and then by each other, by
an ordinary product.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import (
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
from tilewright.ops.shape import Broadcast, ExpandDims, Join, Permute, Reshape

FEATURE = "dot_scaled"
"""The feature of targets that compute `tile.dot_scaled`, or expand what they do not compute."""

FP16_MANTISSA, FP16_BIAS, FP32_MANTISSA = 10, 15, 23


@compiler_pass("expand_dot_scaled", required=True)
def expand_dot_scaled(fn: Function, ctx: PassContext) -> bool:
    """Replace block-scaled products by ordinary ones, unless the target computes them.

    Needs: nothing.  Leaves: no `tile.dot_scaled` without the feature.
    """
    return FEATURE not in ctx.features and expand_all(fn)


@compiler_pass("expand_every_dot_scaled", required=True)
def expand_every_dot_scaled(fn: Function, ctx: PassContext) -> bool:
    """Replace all block-scaled products by ordinary ones: what is differentiated consists of ops
    with derivatives."""
    return expand_all(fn)


def expand_all(fn: Function) -> bool:
    """Expand all block-scaled products; whether there were any."""
    found = [op for op in fn.walk() if type(op) is DotScaled]
    for op in found:
        expand(op)
    return bool(found)


def expand(op: DotScaled) -> None:
    """Replace a product by conversions and an ordinary product."""
    b = Builder()
    with b.before(op):
        to = compute_type(op.lhs_format, op.rhs_format)
        numbers = [_numbers(b, side) for side in op.sides]
        lhs, rhs = (
            _scaled(b, side, x, to, fast=op.fast_math)
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


def _numbers(b: Builder, side: Side) -> Value:
    """The unpacked operand as floats, without its scale."""
    if side.format in PLAIN:
        given = dtype_of(side.value.type) == PLAIN[side.format]
        return side.value if given else _bitcast(b, side.value, PLAIN[side.format])
    bits = cast(b, side.value, U16)
    if side.packed_axis is not None:
        bits = unpacked(b, bits, side.packed_axis)
    return _short_floats(b, bits, SHORT[side.format])


def unpacked(b: Builder, bits: Value, axis: int) -> Value:
    """Two elements of integers, of 4 bits each, along one of the last two axes: the lower bits,
    then the others. The second one keeps what is above it."""
    low = b.value(And(bits, like(b, 15, bits)))
    pair = b.value(Join(low, b.value(Shr(bits, like(b, 4, bits)))))
    sizes = list(shape_of(bits.type))
    if axis == -2:
        rank = len(sizes)
        pair = b.value(Permute(pair, (*range(rank - 1), rank, rank - 1)))
    sizes[axis] *= 2
    return b.value(Reshape(pair, tuple(sizes)))


def _short_floats(b: Builder, bits: Value, kind: ShortFloat) -> Value:
    """Convert to fp16, exactly: shift the bits to their positions in fp16, and multiply by a power
    of two to adjust the exponent bias, which is also correct for subnormals."""
    width = kind.exponent + kind.mantissa
    magnitude = b.value(And(bits, like(b, (1 << width) - 1, bits)))
    magnitude = b.value(Shl(magnitude, like(b, FP16_MANTISSA - kind.mantissa, bits)))
    number = _bitcast(b, magnitude, FP16)
    scaled = b.value(Mul(number, like(b, 2.0 ** (FP16_BIAS - kind.bias), number)))
    sign = b.value(Shr(bits, like(b, width, bits)))
    sign = b.value(And(sign, like(b, 1, bits)))
    sign = b.value(Shl(sign, like(b, 15, bits)))
    return _bitcast(b, b.value(Or(_bitcast(b, scaled, U16), sign)), FP16)


# -- scales ---------------------------------------------------------------------------------------


def _scale_numbers(b: Builder, scale: Value, *, fast: bool) -> Value:
    """The scales as fp32. A byte v is 2 ** (v - 127), and 255 is NaN."""
    if dtype_of(scale.type) != U8:
        return cast(b, scale, FP32)
    v = cast(b, scale, I32)
    exponent = b.value(Shl(v, like(b, FP32_MANTISSA, v)))
    is_zero = b.value(Cmp(v, like(b, 0, v), "eq"))
    bits = b.value(Select(is_zero, like(b, 1 << (FP32_MANTISSA - 1), v), exponent))
    if not fast:
        is_nan = b.value(Cmp(v, like(b, NAN_EXPONENT, v), "eq"))
        bits = b.value(Select(is_nan, like(b, 0x7FC00000, v), bits))
    return _bitcast(b, bits, FP32)


def _spread(b: Builder, scales: Value, group: int, *, transposed: bool) -> Value:
    """Repeat each scale along K, for each element of its group."""
    sizes = shape_of(scales.type)
    rank = len(sizes)
    wide = b.value(Broadcast(b.value(ExpandDims(scales, rank)), (*sizes, group)))
    flat = b.value(Reshape(wide, (*sizes[:-1], sizes[-1] * group)))
    return b.value(Permute(flat, (*range(rank - 2), rank - 1, rank - 2))) if transposed else flat


def _scaled(b: Builder, side: Side, numbers: Value, to: DType, *, fast: bool) -> Value:
    """The operand of the product: elements times scales, rounded once."""
    if side.scale is None:
        return cast(b, numbers, to)
    group = side.group
    assert group is not None
    scales = _scale_numbers(b, side.scale, fast=fast)
    spread = _spread(b, scales, group, transposed=side.k_axis == -2)
    return cast(b, b.value(Mul(cast(b, numbers, FP32), spread)), to)

"""Conversions between number types, bit-exact on every target.

Narrow floats (fp16, bf16, fp8) widen to fp32 exactly. Narrowing rounds to nearest even or toward
zero, by integer arithmetic on the bits, so that subnormals and NaN are as `Cast` defines on every
machine. Conversions from wider types go through an intermediate type rounded to odd, which makes
the final rounding equal to a single one.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.lowering.emit import BF16, F16, F32, F64, I16, I32, Builder, V, const, like
from tilewright.lowering.types import register_type

_LARGEST = {
    ir.FP8E5: 57344.0, ir.FP8E4NV: 448.0, ir.FP8E4B8: 240.0, ir.FP8E5B16: 57344.0,
    ir.FP8E4B15: 1.875,
}  # fmt: skip

# The number of bits of an fp32 below the mantissa of an fp16.
_BELOW_FP16 = 13


def widen(b: Builder, x: V, element: ir.DType) -> V:
    """Convert to the type in which arithmetic is computed: narrow floats become fp32, exactly."""
    if not element.is_floating() or element.primitive_bitwidth >= 32:
        return x
    if b.own_cast is not None:
        result = b.own_cast(b, x, element.short, "fp32")
        if result is not None:
            return result
    if element == ir.FP16:
        return b.fpext(x, F32)
    if element == ir.BF16:
        return b.bitcast(_upper_half(b, x), like(F32, x.type))
    return _widen_fp8(b, x, element)


def _upper_half(b: Builder, x: V) -> V:
    """16 bits in the upper half of 32, the lower half 0."""
    if x.part is None:
        return b.shl(b.zext(x, I32), 16)
    word, place = x.part  # one instruction on the containing word, instead of two
    return b.and_(word, 0xFFFF0000) if place else b.shl(word, 16)


def narrow(b: Builder, x: V, element: ir.DType) -> V:
    """The inverse of `widen`: round an fp32 result to nearest even in the element type."""
    if not element.is_floating() or element.primitive_bitwidth >= 32:
        return x
    return _from_f32(b, x, element, "rtne")


def cast(
    b: Builder,
    x: V,
    source: ir.DType,
    to: ir.DType,
    rounding: str = "rtne",
    from_integers: bool = False,
) -> V:
    """The value converted as `Cast` defines.

    Args:
        from_integers: whether an fp32 or fp64 `x` that is converted to fp16 may be computed from
            converted integers alone (`analysis.from_integers`).
    """
    if source == to:
        return x
    if to.is_bool():
        return _to_bool(b, x, source)
    if source.is_floating():
        if to.is_floating():
            return _float_to_float(b, _fenced(b, x) if from_integers else x, source, to, rounding)
        return _float_to_int(b, widen(b, x, source), to)
    if to.is_floating():
        return _int_to_float(b, x, source, to)
    return resize_int(b, x, source, to)


def resize_int(b: Builder, x: V, source: ir.DType, to: ir.DType) -> V:
    """Truncate, or extend according to the signedness of the source."""
    target = register_type(to)
    if target.bits < x.type.bits:
        return b.trunc(x, target)
    if target.bits == x.type.bits:
        return x
    return b.sext(x, target) if source.is_int_signed() else b.zext(x, target)


def _to_bool(b: Builder, x: V, source: ir.DType) -> V:
    if not source.is_floating():
        return b.icmp("ne", x, const(x.type, 0))
    wide = widen(b, x, source)
    return b.fcmp("une", wide, const(wide.type, 0.0))


def _int_to_float(b: Builder, x: V, source: ir.DType, to: ir.DType) -> V:
    signed = source.is_int_signed()
    convert = b.sitofp if signed else b.uitofp
    if to.primitive_bitwidth >= 32:
        return convert(x, register_type(to))
    if source.primitive_bitwidth <= 16 and to == ir.FP16:
        # The fence is behind the conversion, for which there may be one instruction.
        return _fenced(b, _from_f32(b, convert(x, F32), to, "rtne"))
    if source.primitive_bitwidth == 32 and to == ir.BF16:
        x = _with_sticky_bit(b, x, signed)
    # Beyond 2^24 the conversion to fp32 rounds. There all types but bf16 have no more numbers.
    # 64-bit integers round twice, through fp64, as the op's `evaluate` defines.
    wide = convert(x, F32 if source.primitive_bitwidth <= 32 else F64)
    wide = _fenced(b, wide) if to == ir.FP16 else wide
    return (_from_f32 if source.primitive_bitwidth <= 32 else _from_f64)(b, wide, to, "rtne")


def _fenced(b: Builder, x: V) -> V:
    """A float as LLVM's optimisations must take it, at no cost: not as a converted integer.

    LLVM's InstCombine replaces the extension of ``sitofp iN to half`` by ``sitofp iN to float``
    where the bits of the integer that may be set fit into fp16's significand, and forgets that the
    integer may be beyond fp16's largest finite number, as ``1 << 24`` is. The integer may also be
    that of sums and products of converted integers, and the conversion to fp16 that of a float. So
    no number of fp16 may be seen to be an integer; sums and products of opaque ones cannot be.
    """
    if b.own_cast is cast_fp16:  # conversions of bits, which LLVM cannot replace
        return x
    return b.intrinsic(b.float_fence, x.type, [x], overloads=[x.type])


def _with_sticky_bit(b: Builder, x: V, signed: bool) -> V:
    """A 32-bit integer that fp32 represents, and that bf16 rounds to as it does `x`: from 2^24 on,
    bit 8 is set if a lower one was, and these are cleared. Numbers of bf16, and those halfway
    between two, are multiples of 512 there."""
    cleared = b.and_(x, -256)
    inexact = b.icmp("ne", x, cleared)
    rounded = b.or_(cleared, b.shl(b.zext(inexact, x.type), 8))
    low = b.add(x, 1 << 24) if signed else x
    large = b.icmp("uge", low, const(x.type, 1 << 25 if signed else 1 << 24))
    return b.select(large, rounded, x)


def _float_to_int(b: Builder, x: V, to: ir.DType) -> V:
    target = like(register_type(to), x.type)
    if x.type.lanes and not b.saturates_vectors:
        return _vector_to_int(b, x, to)
    name = "llvm.fptosi.sat" if to.is_int_signed() else "llvm.fptoui.sat"
    return b.intrinsic(name, target, [x], overloads=[target, x.type])


def _vector_to_int(b: Builder, x: V, to: ir.DType) -> V:
    """`_float_to_int` of a vector, by comparisons: without a saturating instruction, LLVM converts
    one element after the other, each with two branches.

    The instruction's result is poison beyond the range, where none of it is selected.
    """
    if to.primitive_bitwidth < 32:
        wide = _vector_to_int(b, x, ir.I32)
        least, most = (const(wide.type, bound) for bound in to.int_bounds)
        low = b.intrinsic("llvm.smax", wide.type, [wide, least], overloads=[wide.type])
        high = b.intrinsic("llvm.smin", wide.type, [low, most], overloads=[wide.type])
        return b.trunc(high, register_type(to))
    target = like(register_type(to), x.type)
    least, most = to.int_bounds
    convert = b.fptosi if to.is_int_signed() else b.fptoui
    above = b.fcmp("oge", x, const(x.type, float(most + 1)))
    found = b.select(above, const(target, most), convert(x, register_type(to)))
    if to.is_int_signed():
        below = b.fcmp("olt", x, const(x.type, float(least)))
        found = b.select(below, const(target, least), found)
        return b.select(b.fcmp("uno", x, x), const(target, 0), found)
    return b.select(b.fcmp("ult", x, const(x.type, 0.0)), const(target, 0), found)


def _float_to_float(b: Builder, x: V, source: ir.DType, to: ir.DType, rounding: str) -> V:
    if source == ir.FP64:
        if to == ir.FP32:
            narrowed = b.fptrunc(x, F32)
            return _toward_zero_f32(b, narrowed, x) if rounding == "rtz" else narrowed
        return _from_f64(b, x, to, rounding)
    if b.own_cast is not None and to.primitive_bitwidth > source.primitive_bitwidth:
        result = b.own_cast(b, x, source.short, to.short)
        if result is not None:
            return result
    wide = widen(b, x, source)
    if to == ir.FP64:
        return b.fpext(wide, F64)
    return wide if to == ir.FP32 else _from_f32(b, wide, to, rounding)


def _from_f64(b: Builder, x: V, to: ir.DType, rounding: str) -> V:
    """fp64 to a narrow type with a single rounding: to fp32 rounded to odd, then to the type."""
    result = _own_cast(b, x, ir.FP64, to, rounding)
    if result is not None:
        return result
    f = b.fptrunc(x, F32)
    toward = _toward_zero_f32(b, f, x)
    back = b.fpext(toward, F64)
    inexact = b.fcmp("one", back, x)
    bits = b.bitcast(toward, like(I32, x.type))
    odd = b.or_(bits, b.zext(inexact, I32))
    return _from_f32(b, b.bitcast(odd, like(F32, x.type)), to, rounding)


def _toward_zero_f32(b: Builder, rounded: V, exact: V) -> V:
    """`exact` rounded toward zero, given `rounded` to nearest: one unit less if that is larger."""
    back = b.fpext(rounded, F64)
    over = b.fcmp("ogt", _abs(b, back), _abs(b, exact))
    bits = b.bitcast(rounded, like(I32, rounded.type))
    # For infinite `exact`, `over` is false; a finite one rounded to infinity becomes the largest.
    stepped = b.sub(bits, b.zext(over, I32))
    return b.bitcast(stepped, rounded.type)


def _abs(b: Builder, x: V) -> V:
    return b.intrinsic("llvm.fabs", x.type, [x], overloads=[x.type])


def _own_cast(b: Builder, x: V, source: ir.DType, to: ir.DType, rounding: str) -> V | None:
    """The conversion by the target's own instructions; None if there are none."""
    if b.own_cast is None or rounding != "rtne":
        return None
    return b.own_cast(b, x, source.short, to.short)


def _from_f32(b: Builder, x: V, to: ir.DType, rounding: str) -> V:
    result = _own_cast(b, x, ir.FP32, to, rounding)
    if result is not None:
        return result
    if to == ir.FP16:
        if rounding == "rtz":
            return _toward_zero_f16(b, _from_f32(b, x, to, "rtne"), x)
        return b.fptrunc(x, F16)
    if to == ir.BF16:
        return _to_bf16(b, x, rounding)
    return _to_fp8(b, x, to, rounding)


def _toward_zero_f16(b: Builder, rounded: V, exact: V) -> V:
    back = widen(b, rounded, ir.FP16)
    over = b.fcmp("ogt", _abs(b, back), _abs(b, exact))
    bits = b.bitcast(rounded, like(I16, rounded.type))
    return b.bitcast(b.sub(bits, b.zext(over, I16)), rounded.type)


def cast_fp16(b: Builder, x: V, source: str, to: str) -> V | None:
    """Conversions of fp16 by integer arithmetic, for `Builder.own_cast`: for machines without an
    instruction, on which LLVM would call a library."""
    if source == "fp16" and to == "fp32":
        return _widen_fp16(b, x)
    return _to_fp16(b, x) if source == "fp32" and to == "fp16" else None


def _widen_fp16(b: Builder, x: V) -> V:
    """As `_widen_fp8`; infinities and NaN, with the largest exponent, get that of fp32."""
    bits = b.zext(b.bitcast(x, like(I16, x.type)), I32)
    magnitude = b.and_(bits, 0x7FFF)
    placed = b.shl(magnitude, 13)
    number = b.fmul(b.bitcast(placed, like(F32, x.type)), 2.0 ** (127 - ir.FP16.exponent_bias))
    result = b.bitcast(number, placed.type)
    special = b.icmp("uge", magnitude, 0x7C00)
    result = b.select(special, b.or_(placed, 0x7F800000), result)
    sign = b.shl(b.and_(bits, 0x8000), 16)
    return b.bitcast(b.or_(result, sign), like(F32, x.type))


def _to_fp16(b: Builder, x: V) -> V:
    """As `_to_fp8`, but numbers out of range become infinite."""
    source = b.bitcast(x, like(I32, x.type))
    bits = _scaled_to_odd(b, _abs(b, x), ir.FP16.exponent_bias)
    bits = b.add(bits, b.add(b.and_(b.lshr(bits, 13), 1), (1 << 12) - 1))
    packed = b.lshr(bits, 13)
    packed = b.select(b.icmp("ugt", packed, 0x7C00), const(packed.type, 0x7C00), packed)
    nan = b.fcmp("uno", x, x)
    packed = b.select(nan, const(packed.type, 0x7E00), packed)
    sign = b.and_(b.lshr(source, 16), 0x8000)
    return b.bitcast(b.trunc(b.or_(packed, sign), I16), like(F16, x.type))


def _to_bf16(b: Builder, x: V, rounding: str) -> V:
    if rounding == "rtne":
        if b.rounds_to_bf16:
            return b.bitcast(b.fptrunc(x, BF16), like(I16, x.type))
        return round_to_bf16(b, x)
    return _upper_of(b, x, b.bitcast(x, like(I32, x.type)))


def round_to_bf16(b: Builder, x: V) -> V:
    """fp32 to bf16, rounding to nearest even: the upper half of the bits, after adding 0x7FFF plus
    the lowest bit of the upper half."""
    bits = b.bitcast(x, like(I32, x.type))
    bias = b.add(b.and_(b.lshr(bits, 16), 1), 0x7FFF)
    return _upper_of(b, x, b.add(bits, bias))


def _upper_of(b: Builder, x: V, rounded: V) -> V:
    """The upper half of the rounded bits; for NaN, that of its own bits, quieted."""
    quiet = b.or_(b.bitcast(x, like(I32, x.type)), 0x40 << 16)
    chosen = b.select(b.fcmp("uno", x, x), quiet, rounded)
    return b.trunc(b.lshr(chosen, 16), I16)


def _widen_fp8(b: Builder, x: V, element: ir.DType) -> V:
    """fp8 to fp32, exactly: the bits are moved in place, and a product corrects the bias of the
    exponent, which normalises subnormals."""
    mantissa = element.fp_mantissa_width
    bits = b.zext(x, I32)
    magnitude = b.and_(bits, 0x7F)
    sign = b.shl(b.and_(bits, 0x80), 24)
    # The magnitude as an fp32 whose exponent is off by a constant; exact for subnormals, too.
    placed = b.bitcast(b.shl(magnitude, 23 - mantissa), like(F32, x.type))
    scaled = b.fmul(placed, const(placed.type, 2.0 ** (127 - element.exponent_bias)))
    result = b.or_(b.bitcast(scaled, like(I32, x.type)), sign)
    if element == ir.FP8E4B15:  # has neither infinities nor NaN
        return b.bitcast(result, like(F32, x.type))
    nan = const(result.type, 0x7FC00000)
    if element == ir.FP8E5:
        infinite = b.icmp("eq", magnitude, const(magnitude.type, 0x7C))
        result = b.select(infinite, b.or_(sign, 0x7F800000), result)
        is_nan = b.icmp("ugt", magnitude, const(magnitude.type, 0x7C))
    elif element == ir.FP8E4NV:
        is_nan = b.icmp("eq", magnitude, const(magnitude.type, 0x7F))
    else:  # the fnuz formats: the pattern of -0 is the only NaN
        is_nan = b.icmp("eq", bits, const(bits.type, 0x80))
    return b.bitcast(b.select(is_nan, nan, result), like(F32, x.type))


def _to_fp8(b: Builder, x: V, to: ir.DType, rounding: str) -> V:
    """fp32 to fp8: saturate at the largest finite value, then round the bits of the number scaled
    such that subnormals of the format are subnormals of fp32."""
    mantissa, bias = to.fp_mantissa_width, to.exponent_bias
    source = b.bitcast(x, like(I32, x.type))
    sign = b.and_(b.lshr(source, 24), 0x80)
    magnitude = _abs(b, x)
    limit = const(x.type, _LARGEST[to])
    clamped = b.select(b.fcmp("ogt", magnitude, limit), limit, magnitude)
    bits = _scaled_to_odd(b, clamped, bias)
    if to == ir.FP8E4B15:  # defined by truncation to fp16, which has the same exponents, first
        bits = b.and_(bits, -(1 << _BELOW_FP16) & 0xFFFFFFFF)
    drop = 23 - mantissa
    if rounding == "rtne":
        half = b.add(b.and_(b.lshr(bits, drop), 1), (1 << (drop - 1)) - 1)
        bits = b.add(bits, half)
    packed = b.lshr(bits, drop)
    zero = b.icmp("eq", packed, const(packed.type, 0))
    if to in (ir.FP8E4B8, ir.FP8E5B16):  # no -0: its pattern is NaN
        sign = b.select(zero, const(sign.type, 0), sign)
        nan_bits = 0x80
    else:  # the largest number of fp8e4b15, NaN in the other formats
        nan_bits = 0x7F
    result = b.or_(packed, sign)
    nan = b.fcmp("uno", x, x)
    return b.trunc(b.select(nan, const(result.type, nan_bits), result), register_type(to))


def _scaled_to_odd(b: Builder, clamped: V, bias: int) -> V:
    """The bits of the number times 2 ** (bias - 127), rounded to odd if inexact (subnormals of
    fp32), so that the subsequent rounding is correct."""
    scaled = b.fmul(clamped, const(clamped.type, 2.0 ** (bias - 127)))
    bits = b.bitcast(scaled, like(I32, scaled.type))
    back = b.fmul(scaled, const(scaled.type, 2.0 ** (127 - bias)))
    lost = b.fcmp("one", back, clamped)
    over = b.fcmp("ogt", back, clamped)
    toward_zero = b.sub(bits, b.zext(over, I32))
    return b.or_(toward_zero, b.zext(lost, I32))

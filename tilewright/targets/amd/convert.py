"""Conversions of fp8, in 16 bits: AMD GPUs compute with fp16, subnormals among it."""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.lowering.emit import F16, F32, I16, Builder, V, const, like

# Types whose numbers keep their exponents as those of an fp16, and the only NaN of each. The bits
# of fp8e5 are the upper half of an fp16; fp8e5b16 has an exponent that is infinite in one.
_NAN = {ir.FP8E4NV: 0x7F, ir.FP8E4B8: 0x80, ir.FP8E4B15: None}


def cast(b: Builder, x: V, source: str, to: str) -> V | None:
    """`x` converted, exactly; None if it is not from fp8 to a wider float. See
    `Builder.own_cast`."""
    element = ir.BY_SHORT[source]
    if to not in ("fp16", "fp32"):
        return None
    if element == ir.FP8E5:
        found = _upper_half(b, x)
    elif element in _NAN:
        found = _scaled(b, x, element)
    else:
        return None
    return found if to == "fp16" else b.fpext(found, F32)


def _upper_half(b: Builder, x: V) -> V:
    """A signalling NaN becomes a quiet one, as in any other conversion."""
    found = b.bitcast(b.shl(b.zext(x, I16), 8), like(F16, x.type))
    return b.intrinsic("llvm.canonicalize", found.type, [found], overloads=[found.type])


def _scaled(b: Builder, x: V, element: ir.DType) -> V:
    """The bits in the place of an fp16's, times what corrects the bias of the exponent, which
    normalises subnormals."""
    # Sign, its copy in place of the highest bit of the exponent, and the magnitude.
    placed = b.and_(b.shl(b.sext(x, I16), 7), 0xBFFF)
    found = b.bitcast(placed, like(F16, x.type))
    scale = 2.0 ** (ir.FP16.exponent_bias - element.exponent_bias)
    if scale != 1:
        found = b.fmul(found, const(found.type, scale))
    nan = _NAN[element]
    if nan is None:
        return found
    bits = x if nan == 0x80 else b.and_(x, 0x7F)
    return b.select(b.icmp("eq", bits, const(x.type, nan)), const(found.type, float("nan")), found)

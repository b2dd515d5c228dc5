"""Conversions of fp8 by 16-bit arithmetic: AMD GPUs support fp16, including subnormals."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.ir.core import Op
from tilewright.lowering.emit import F16, F32, I16, I32, Builder, V, const, like, poison, vector
from tilewright.ops import arith

WORD_BYTES = 4
PAIRS = 0x010C000C, 0x030C020C
"""The selectors of `v_perm_b32` that place two bytes of a word behind a zero each."""

# Types whose numbers keep their exponents as those of an fp16, and the only NaN of each. The bits
# of fp8e5 are the upper half of an fp16; fp8e5b16 has an exponent that is infinite in one.
_NAN = {ir.FP8E4NV: 0x7F, ir.FP8E4B8: 0x80, ir.FP8E4B15: None}


def cast(b: Builder, x: V, source: str, to: str) -> V | None:
    """`x` converted, exactly; None if it is not from fp8 to a wider float. See
    `Builder.own_cast`."""
    element = ir.BY_SHORT[source]
    if to not in ("fp16", "fp32") or element not in (ir.FP8E5, *_NAN):
        return None
    if x.type.lanes == WORD_BYTES:
        found = _joined(b, [_from_upper(b, pair, element) for pair in _pairs(b, x)])
    else:
        found = _from_upper(b, b.shl(b.zext(x, like(I16, x.type)), 8), element)
    return found if to == "fp16" else b.fpext(found, like(F32, x.type))


def widened_at_once(op: Op) -> int:
    """How many elements `cast` converts at once for an op: those of a word, if there are as many,
    by instructions for two."""
    layout = op.results[0].layout
    if not isinstance(op, arith.Cast) or layout is None or op.to not in (ir.FP16, ir.FP32):
        return 1
    if ir.element_of(op.src.type) not in (ir.FP8E5, *_NAN):
        return 1
    adjacent = max(layout.num_consecutive((axis,)) for axis in range(len(layout.shape)))
    return WORD_BYTES if adjacent >= WORD_BYTES else 1


def _pairs(b: Builder, x: V) -> list[V]:
    """The bytes of a word as the upper ones of 16 bits, in pairs. LLVM would compute with four at
    once one by one."""
    word = b.bitcast(x, I32)
    words = [
        b.intrinsic("llvm.amdgcn.perm", I32, [const(I32, 0), word, const(I32, selector)])
        for selector in PAIRS
    ]
    return [b.bitcast(word, vector(I16, 2)) for word in words]


def _joined(b: Builder, pairs: Sequence[V]) -> V:
    result = poison(vector(F16, 2 * len(pairs)))
    for i in range(2 * len(pairs)):
        result = b.insert(result, b.extract(pairs[i // 2], i % 2), i)
    return result


def _from_upper(b: Builder, x: V, element: ir.DType) -> V:
    """The fp16 of the fp8 in the upper byte of each 16 bits; the other bits are zero. A signalling
    NaN becomes a quiet one, as in any other conversion."""
    if element != ir.FP8E5:
        return _scaled(b, x, element)
    found = b.bitcast(x, like(F16, x.type))
    return b.intrinsic("llvm.canonicalize", found.type, [found], overloads=[found.type])


def _scaled(b: Builder, x: V, element: ir.DType) -> V:
    """The bits in the position of an fp16's, multiplied to correct the bias of the exponent, which
    normalises subnormals."""
    # Sign, its copy in place of the highest bit of the exponent, and the magnitude.
    placed = b.bitcast(b.and_(b.ashr(x, 1), 0xBFFF), like(F16, x.type))
    scale = 2.0 ** (ir.FP16.exponent_bias - element.exponent_bias)
    result = b.fmul(placed, const(placed.type, scale)) if scale != 1 else placed
    nan = _NAN[element]
    if nan is None:
        return result
    if nan == 0x80:
        is_nan = b.icmp("eq", x, const(x.type, nan << 8))
        return b.select(is_nan, const(placed.type, float("nan")), result)
    # A NaN is as a number 480, the largest one 448: times 140, only the former exceeds fp16. What
    # is added to the result is a zero of its sign, which changes none, or infinity * 0, a NaN.
    over = b.fmul(placed, const(placed.type, 140 * scale))
    args = [over, const(placed.type, 0.0), result]
    return b.intrinsic("llvm.fma", placed.type, args, overloads=[placed.type])

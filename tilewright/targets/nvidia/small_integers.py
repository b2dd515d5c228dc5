"""Conversions of small integers to floats by arithmetic on their bits.

The instructions that convert integers of 8 and 16 bits have an eighth of the rate of additions.
The bits of the float 2^m, where m is the number of bits of its mantissa, with an integer
0 <= n < 2^m in the lowest, are those of 2^m + n; subtracting 2^m gives n. A signed integer of k
bits is first made n + 2^(k - 1), by inverting its sign bit.

On an H200, a product with int8 weights of tiles of 16 x 128 x 128, whose loop had 560 instructions,
128 of them conversions, takes 33.4 instead of 47.0 µs, with 403.

Integers of other types are converted in the same way if their range is known to be as small, such
as the four bits of a weight in a word of 32 bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tilewright.analysis.ranges import Range, value_range
from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.lowering.convert import narrow
from tilewright.lowering.emit import BF16, F16, F32, I8, I16, I32, Builder, LType, V, const, vector
from tilewright.ops import arith

WORD_BYTES = 4

_SMALL = frozenset((ir.I8, ir.U8, ir.I16, ir.U16))
_FLOATS = frozenset((ir.FP32, ir.FP16, ir.BF16))


class _Float(NamedTuple):
    """A float whose bits are computed: the bits of its mantissa, and those of 2^mantissa."""

    mantissa: int
    bits: int
    type: LType = F32


_FP32 = _Float(23, 0x4B000000)
_FP16 = _Float(10, 0x6400, F16)
_BF16 = _Float(7, 0x4300, BF16)
_KINDS = {ir.FP32: _FP32, ir.FP16: _FP16, ir.BF16: _BF16}


def from_integer(b: Builder, x: V, source: ir.DType, to: ir.DType) -> V | None:
    """An integer that is a part of a word as a float, rounded to nearest even, which only those of
    16 bits need; None if an instruction is to convert it."""
    if x.part is None or source not in _SMALL or to not in _FLOATS:
        return None
    if to == ir.FP16 and source.primitive_bitwidth == 8:
        return _byte_to_fp16(b, *x.part, source)
    return narrow(b, _to_fp32(b, *x.part, source), to)


def _biased(b: Builder, word: V, source: ir.DType) -> tuple[V, int]:
    """The bytes of a word of integers that are made non-negative, and the bias added to each."""
    width = source.primitive_bitwidth
    bias = 1 << (width - 1) if source.is_int_signed() else 0
    pattern = sum(bias << place for place in range(0, 8 * WORD_BYTES, width))
    return b.bitcast(b.xor(word, const(I32, pattern)), vector(I8, WORD_BYTES)), bias


def _bytes(b: Builder, bits: int) -> V:
    return b.bitcast(const(I32, bits), vector(I8, WORD_BYTES))


def _to_fp32(b: Builder, word: V, place: int, source: ir.DType) -> V:
    """The integer at a bit of a word as fp32: its bytes, with the upper ones of 2^23."""
    found, bias = _biased(b, word, source)
    first, count = place // 8, source.primitive_bitwidth // 8
    taken = [*range(first, first + count), *range(WORD_BYTES + count, 2 * WORD_BYTES)]
    bits = b.bitcast(b.shuffle(found, _bytes(b, _FP32.bits), taken), I32)
    return b.fsub(b.bitcast(bits, F32), float((1 << _FP32.mantissa) + bias))


def _byte_to_fp16(b: Builder, word: V, place: int, source: ir.DType) -> V:
    """The byte at a bit of a word as fp16. Both bytes of a half are converted; LLVM merges the code
    with that of the other byte, but would compute each lane of a vector separately."""
    found, bias = _biased(b, word, source)
    first = place // 16 * 2
    upper = _bytes(b, _FP16.bits << 16 | _FP16.bits)
    taken = [first, WORD_BYTES + 1, first + 1, WORD_BYTES + 3]
    pair = b.bitcast(b.shuffle(found, upper, taken), I32)
    base = _FP16.bits | bias  # the bits of 2^10 + bias
    subtracted = const(I32, base << 16 | base)
    both = b.inline_asm("sub.rn.f16x2 $0, $1, $2;", "=r,r,r", I32, [pair, subtracted])
    return b.extract(b.bitcast(both, vector(F16, 2)), place // 8 % 2)


# -- integers of a known range --------------------------------------------------------------------


@lru_cache(maxsize=4)
def _known_range(value: Value) -> Range:
    """Computed once for the registers of a tile."""
    return value_range(value)


def _is_small(op: arith.Cast) -> bool:
    """Whether an op converts integers of 32 bits that are in the range of its float's bits."""
    kind = _KINDS.get(op.to)
    if kind is None or ir.element_of(op.src.type) not in (ir.I32, ir.U32):
        return False
    low, high = _known_range(op.src)
    return high - min(low, 0) < 1 << kind.mantissa


def converts_pairs(op: Op) -> bool:
    """Whether an op converts two integers at once to floats of 16 bits."""
    return isinstance(op, arith.Cast) and op.to != ir.FP32 and _is_small(op)


def from_range(b: Builder, op: arith.Cast, x: V) -> V | None:
    """One integer, or a pair of them, as a float; None unless its range is known and small."""
    if not _is_small(op):
        return None
    kind, low = _KINDS[op.to], min(_known_range(op.src)[0], 0)
    base = kind.bits - low  # the bits of 2^mantissa - low
    if kind is _FP32:
        return b.fsub(b.bitcast(b.add(x, base), F32), float((1 << kind.mantissa) - low))
    bits = _pair_of_bits(b, x, base, low) if x.type.lanes else b.trunc(b.add(x, base), I16)
    with b.flags(""):
        number = b.bitcast(bits, _like(kind.type, x))
        found = b.fsub(number, const(number.type, float((1 << kind.mantissa) - low)))
    return found if kind is _FP16 else b.bitcast(found, _like(I16, x))


def _like(element: LType, x: V) -> LType:
    return vector(element, x.type.lanes) if x.type.lanes else element


def _pair_of_bits(b: Builder, x: V, base: int, low: int) -> V:
    """The sums of two integers and a base, as a word of both. If none is negative, the word is
    formed first: LLVM merges the shifts and masks of two parts of the same word. Otherwise each is
    added to the base first: LLVM merges that with a sum whose result is the integer."""
    first, second = (b.extract(x, i) for i in range(2))
    if low < 0:
        word = b.or_(b.add(first, base), b.shl(b.add(second, base), 16))
    else:
        word = b.or_(b.or_(first, b.shl(second, 16)), base << 16 | base)
    return b.bitcast(word, vector(I16, 2))

"""Conversions between floating-point types for which NVIDIA GPUs have instructions.

See the PTX ISA, "Data Movement and Conversion Instructions: cvt". Results agree bit for bit with
those of `lowering/convert.py`, except for the sign of a NaN, which is lost.
"""

from __future__ import annotations

from tilewright.ir.core import Op
from tilewright.ir.types import FP32, element_of
from tilewright.lowering.emit import F16, F32, I8, I16, Builder, V, const, vector
from tilewright.ops import arith

_FP8 = {"fp8e4nv": "e4m3", "fp8e5": "e5m2"}


def cast(b: Builder, x: V, source: str, to: str, features: frozenset[str]) -> V | None:
    """`x` converted; None if there is no instruction. See `Builder.own_cast`."""
    if source == "fp64" and to == "fp16":
        return b.inline_asm("cvt.rn.f16.f64 $0, $1;", "=h,d", F16, [x])
    if "fp8_cvt" not in features:
        return None
    if to in _FP8 and source == "fp32":
        return _to_fp8(b, x, _FP8[to])
    if source in _FP8 and to == "fp32":
        return _from_fp8(b, x, _FP8[source])
    return None


def narrows_pairs(op: Op) -> bool:
    """Whether an op converts two numbers at once to fp8."""
    if not isinstance(op, arith.Cast) or element_of(op.src.type) != FP32:
        return False
    return op.to.short in _FP8 and op.rounding == "rtne"


def _to_fp8(b: Builder, x: V, kind: str) -> V:
    """The instruction converts two numbers, the second to the lower byte: those of a vector, or one
    and a zero."""
    low, high = (b.extract(x, 0), b.extract(x, 1)) if x.type.lanes else (x, const(F32, 0.0))
    code = f"cvt.rn.satfinite.{kind}x2.f32 $0, $1, $2;"
    pair = b.inline_asm(code, "=h,f,f", I16, [high, low])
    return b.bitcast(pair, vector(I8, 2)) if x.type.lanes else b.trunc(pair, I8)


def _from_fp8(b: Builder, x: V, kind: str) -> V:
    """By way of fp16; both conversions are exact. The instruction converts two numbers: adjacent
    ones of a word, for which LLVM merges the code, or one."""
    if x.part is None:
        bytes, lane = b.zext(x, I16), 0
    else:
        word, place = x.part
        bytes, lane = b.trunc(b.lshr(word, place // 16 * 16), I16), place // 8 % 2
    return b.fpext(b.extract(fp16_pair(b, bytes, kind), lane), F32)


def fp16_pair(b: Builder, bytes: V, kind: str) -> V:
    """Two numbers of fp8, in 16 bits, as fp16."""
    return b.inline_asm(f"cvt.rn.f16x2.{kind}x2 $0, $1;", "=r,h", vector(F16, 2), [bytes])

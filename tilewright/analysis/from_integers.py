"""Floats that are computed only from converted integers, which LLVM may replace by computations on
the integers. The IR is not modified."""

from __future__ import annotations

from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import FP32, FP64, element_of, is_float, is_int
from tilewright.ops import arith, control, dot, memory, reduce, shape
from tilewright.ops.math import Ceil, Floor, Rint, Trunc
from tilewright.ops.view import View

MAX_VALUES = 64  # that are looked at; of more, it is taken that they may be integers

_FOLLOWED = (
    arith.Add, arith.Sub, arith.Mul, arith.Fma, arith.Min, arith.Max, arith.Neg, arith.Abs,
    arith.Select, arith.Hint, Floor, Ceil, Trunc, Rint, View, shape.Join, shape.Cat,
    reduce.Reduce, reduce.Scan, dot.Dot,
)  # fmt: skip


def from_integers(value: Value) -> bool:
    """Whether all numbers that a float is computed from may be converted integers, or constants.

    Loaded numbers and bits may be: LLVM forwards what was stored, and removes pairs of bitcasts.
    False where one is an argument, or a result of an op that LLVM does not know for integers, such
    as a quotient, or a conversion from a narrower float.
    """
    seen, work, found = set[Value](), [value], False
    while work and len(seen) < MAX_VALUES:
        v = work.pop()
        if v in seen or isinstance(v.op, arith.Constant):
            continue
        seen.add(v)
        sources = _sources(v)
        if sources is None:
            return False
        found |= not sources
        work += sources
    return found or bool(work)


def _sources(value: Value) -> list[Value] | None:
    """The floats that a value is computed from, none if it may be a converted integer itself; None
    if it is not computed from integers."""
    if element_of(value.type) not in (FP32, FP64):  # opaque: see `lowering.convert`
        return None
    match value.op:
        case None:
            return _sources_of_argument(value)
        case arith.Cast(src):
            return [] if is_int(src.type) else [src]
        case memory.Load() | arith.Bitcast() | control.While():
            return []
        case control.If() as op:
            return [region.terminator.operands[value.index] for region in op.regions]
        case control.For(inits=inits, body=body):
            return [inits[value.index], body.terminator.operands[value.index]]
        case op:
            followed = isinstance(op, _FOLLOWED)
            return [v for v in op.operands if is_float(v.type)] if followed else None


def _sources_of_argument(value: Value) -> list[Value] | None:
    """As `_sources`, for an argument of a region."""
    op = value.owner.parent if isinstance(value.owner, Region) else None
    if isinstance(op, control.For):
        place = value.index - 1
        return [op.inits[place], op.body.terminator.operands[place]]
    return [] if isinstance(op, Op) else None

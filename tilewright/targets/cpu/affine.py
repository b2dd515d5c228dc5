"""How an integer or pointer tile changes along its axes: constant strides where there are any."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.types import shape_of
from tilewright.ops import arith, memory, shape

Strides = tuple[int | None, ...]


def strides_of(value: Value, known: dict[Value, Strides] | None = None) -> Strides:
    """Per axis, the difference of neighbours along it (in elements, of pointers); None if it is
    not a constant."""
    known = {} if known is None else known
    found = known.get(value)
    if found is None:
        found = known[value] = _strides(value, known)
    return found


def _strides(value: Value, known: dict[Value, Strides]) -> Strides:
    rank = len(shape_of(value.type))
    op = value.op
    match op:
        case shape.Arange():
            return (1,)
        case shape.Splat() | arith.Constant():
            return (0,) * rank
        case shape.ExpandDims(src, axis):
            inner = strides_of(src, known)
            return (*inner[:axis], 0, *inner[axis:])
        case shape.Broadcast(src, _):
            inner = strides_of(src, known)
            sizes = shape_of(src.type)
            return tuple(0 if n == 1 else s for s, n in zip(inner, sizes, strict=True))
        case shape.Permute(src, order):
            inner = strides_of(src, known)
            return tuple(inner[i] for i in order)
        case arith.Hint(src) | arith.Cast(src):
            return strides_of(src, known)
        case arith.Add(x, y) | memory.AddPtr(x, y):
            return _combine(strides_of(x, known), strides_of(y, known), 1)
        case arith.Sub(x, y):
            return _combine(strides_of(x, known), strides_of(y, known), -1)
        case arith.Mul(x, y):
            return _scale(x, y, known)
        case _:
            return (None,) * rank


def _combine(a: Strides, b: Strides, sign: int) -> Strides:
    return tuple(
        None if x is None or y is None else x + sign * y for x, y in zip(a, b, strict=True)
    )


def _scale(x: Value, y: Value, known: dict[Value, Strides]) -> Strides:
    for a, factor in ((x, y), (y, x)):
        strides = strides_of(a, known)
        number = arith.constant_value(factor)
        if isinstance(number, int):
            return tuple(None if s is None else s * number for s in strides)
    both = zip(strides_of(x, known), strides_of(y, known), strict=True)
    return tuple(0 if a == 0 and b == 0 else None for a, b in both)

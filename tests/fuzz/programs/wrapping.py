"""Indices by arithmetic that wraps around, of integers of any width, and addresses as integers.

What a compiler knows of consecutive indices ends where their type does: the sum of a uint8 and 2 is
an index into a table of 256 elements. Indices of 32 bits and more are bounded by an op that is not
linear, since an offset of elements of that width is not meant to overflow.
"""

from __future__ import annotations

from math import prod

from tests.fuzz.programs.kinds import INTEGERS, Shape, Value, tl
from tests.fuzz.programs.memory import READABLE
from tests.fuzz.programs.writer import Writer, expression
from tilewright.ir.types import I1, I64, DType

SPREAD = 8  # the indices of 16 bits that are shifted to fit


def _wrapping(w: Writer, dtype: DType, shape: Shape, depth: int) -> str:
    """A tile of the type, mostly linear in its indices, whose arithmetic may wrap around."""
    t, high = tl(dtype), dtype.get_int_max_value()
    if depth == 0:
        start = w.choose(("", "", " + n" if w.is_kernel else " + 5", f" + {w.below(300)}"))
        return f"({w.offsets(shape)}{start}).to({t})"
    inner = _wrapping(w, dtype, shape, depth - 1)
    number = w.choose((1, 2, 3, 7, 8, 16, 100, high, high - 6, high // 2 + 1))
    constant = f"tl.full((), {min(number, high)}, {t})"
    match w.below(8):
        case 0:
            return f"({inner} * {constant})"
        case 1:
            return f"({constant} - {inner})"
        case 2:
            return f"({inner} {w.choose(('//', '%'))} {w.choose((2, 3, 8, 16))})"
        case 3:
            return f"({inner} {w.choose('+-')} {_wrapping(w, dtype, shape, 0)})"
        case 4:
            other = w.choose(INTEGERS)
            return f"{_wrapping(w, other, shape, depth - 1)}.to({t})"
        case _:
            return f"({inner} + {constant})"


def _place(w: Writer, shape: Shape) -> str:
    """An index of an element that all programs may read."""
    dtype = w.choose(INTEGERS)
    text = _wrapping(w, dtype, shape, w.random.randint(1, 3))
    signed = dtype.is_int_signed()
    if dtype.primitive_bitwidth == 8:
        return f"128 + {text}.to(tl.int32)" if signed else text
    if dtype.primitive_bitwidth == 16 and w.one_in(2):
        return f"{READABLE // 2 if signed else 0} + ({text} >> {SPREAD}).to(tl.int32)"
    return f"({text} & {w.choose((255, 1023, READABLE - 1))})"


@expression(2)
def wrapped(w: Writer, shape: Shape, depth: int) -> Value | None:
    """A load at indices that wrap around, or under a mask of such."""
    if w.pure or not shape or prod(shape) > w.book.largest:
        return None
    array = w.choose(w.arrays)
    if w.one_in(3):
        dtype = w.choose(INTEGERS)
        bound = w.choose((5, 20, dtype.get_int_max_value() - 3))
        sign = w.choose(("<", ">=", "<=", "!="))
        mask = f"{_wrapping(w, dtype, shape, 2)} {sign} tl.full((), {bound}, {tl(dtype)})"
        return Value(f"tl.load({array.name} + {w.offsets(shape)}, mask={mask}, other=1)",
                     array.dtype) if not array.dtype.is_fp8() else None  # fmt: skip
    return Value(f"tl.load({array.name} + ({_place(w, shape)}))", array.dtype)


@expression(1)
def addresses(w: Writer, shape: Shape, depth: int) -> Value | None:
    """Pointers as integers: their difference, or their order."""
    if w.pure or not shape or prod(shape) > w.book.largest:
        return None
    array = w.choose(w.arrays)
    first, second = (f"({array.name} + ({_place(w, shape)})).to(tl.int64)" for _ in range(2))
    if w.one_in(2):
        return Value(f"({first} - {second})", I64)
    return Value(f"({first} {w.choose(('<', '==', '>='))} {second})", I1)

"""What a value of a random program is, and the result type of an operation.

The rules of promotion are reimplemented here from the language's reference: programs assert what
they say, so that the compiler's own rules are tested against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.ir.types import (
    BF16,
    FP8E4B8,
    FP8E4B15,
    FP8E4NV,
    FP8E5,
    FP8E5B16,
    FP16,
    FP32,
    FP64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)

Shape = tuple[int, ...]

SIGNED = (I8, I16, I32, I64)
UNSIGNED = (U8, U16, U32, U64)
INTEGERS = (*SIGNED, *UNSIGNED)
WIDE = (I32, I64, U32, U64)
FLOATS = (FP16, BF16, FP32, FP64)
FP8 = (FP8E4NV, FP8E5, FP8E4B8, FP8E5B16, FP8E4B15)
NUMBERS = (*INTEGERS, *FLOATS)
ALL = (I1, *NUMBERS, *FP8)


@dataclass(frozen=True)
class Kind:
    """A tile, or a scalar, which has no extents."""

    dtype: DType
    shape: Shape = ()


@dataclass(frozen=True)
class Number:
    """A number that is known when the program is compiled: a weak operand."""

    value: int | float | bool


@dataclass(frozen=True)
class Parts:
    """A tuple, a named tuple or an aggregate.

    Attributes:
        kinds: of its parts.
        made_by: the class's name; "" for a plain tuple.
        fields: the parts' names; none of a plain tuple.
        is_tuple: whether it can be indexed and taken apart.
    """

    kinds: tuple[Kind, ...]
    made_by: str = ""
    fields: tuple[str, ...] = ()
    is_tuple: bool = True


Thing = Kind | Number | Parts


class Value(NamedTuple):
    """An expression, and the type of its elements."""

    text: str
    dtype: DType


def tl(dtype: DType) -> str:
    """How a program writes the type."""
    return f"tl.{dtype.python_name}"


def promoted(a: DType, b: DType, *, division: bool = False) -> DType | None:
    """The type of an operation on two tensors; None where the two do not mix."""
    pair = {a, b}
    if FP64 in pair:
        return FP64
    if division and (FP16 in pair or BF16 in pair):
        return FP32
    for wins in (FP32, FP16):
        if wins in pair:
            return wins
    if BF16 in pair:
        return BF16 if a is b else FP32
    if a.is_fp8() or b.is_fp8():
        both = a.is_fp8() and b.is_fp8()
        return (a if a is b else FP16) if both else None
    if division and a.is_int_signed() != b.is_int_signed():
        return None
    return max(a, b, key=lambda t: (t.primitive_bitwidth, t.is_int_unsigned()))


def natural(number: int | float | bool) -> DType:
    """The type of a number that stands alone; floats of programs fit fp32."""
    if isinstance(number, bool):
        return I1
    if isinstance(number, float):
        return FP32
    for dtype in (I32, U32, I64, U64):
        if dtype.get_int_min_value() <= number <= dtype.get_int_max_value():
            return dtype
    raise AssertionError(number)


def with_number(
    strong: DType, number: int | float | bool, *, division: bool = False
) -> DType | None:
    """The type of an operation on a tensor and a number."""
    weak = natural(number)
    if weak.kind().value <= strong.kind().value:
        weak = strong
    return promoted(weak, strong, division=division)


def compared(strong: DType, number: int | float | bool) -> DType:
    """The type in which a tensor is compared with a number."""
    return promoted(natural(number), strong) or strong


def bf16_widened(dtype: DType) -> DType:
    """The type of an extremum of two, a prefix sum or a located extremum in place of `dtype`."""
    return FP32 if dtype is BF16 else dtype


def fits(number: int | float | bool, dtype: DType) -> bool:
    """Whether the number may be an operand of an operation that is done in the type."""
    if not dtype.is_int() or isinstance(number, bool | float):
        return True
    return dtype.get_int_min_value() <= number <= dtype.get_int_max_value()


def widened(dtype: DType) -> DType:
    """The type of a sum, for integers."""
    if dtype.is_int() and dtype.primitive_bitwidth < 32:
        return I32 if dtype.is_int_signed() else U32
    return dtype


def extremum(dtype: DType) -> DType:
    """The type of a maximum along an axis."""
    if dtype.primitive_bitwidth >= 32:
        return dtype
    return FP32 if dtype.is_floating() else I32


def text_of(number: int | float | bool) -> str:
    """The number as an operand."""
    text = repr(number)
    return f"({text})" if text.startswith("-") else text

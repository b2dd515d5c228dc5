"""Statements of the dialect `arith` on values of the text, of which emitters are composed."""

from __future__ import annotations

from tilewright.ir.types import (
    FP8E4B15,
    FP16,
    FP32,
    I1,
    I64,
    U8,
    U16,
    DType,
    Scalar,
    dtype_of,
    element_of,
    shape_of,
    with_element,
)
from tilewright_triton.ttir.writer import Ref, Writer


def binary(w: Writer, name: str, a: Ref, b: Ref) -> Ref:
    return w.op(name, [a, b])


def compare(w: Writer, predicate: str, a: Ref, b: Ref) -> Ref:
    """A comparison of integers or floats: eq, ne, lt, le, gt or ge; of NaN, only ne is true."""
    element = dtype_of(a.type)
    if element.is_floating():
        kind = "une" if predicate == "ne" else f"o{predicate}"
        return _compared(w, "arith.cmpf", kind, a, b)
    if predicate not in ("eq", "ne"):
        predicate = ("s" if element.is_int_signed() else "u") + predicate
    return _compared(w, "arith.cmpi", predicate, a, b)


def compare_unsigned(w: Writer, predicate: str, a: Ref, b: Ref) -> Ref:
    """A comparison of bit patterns, such as `ult`."""
    return _compared(w, "arith.cmpi", predicate, a, b)


def _compared(w: Writer, name: str, predicate: str, a: Ref, b: Ref) -> Ref:
    from_type = Ref(f"{predicate}, {a.name}", a.type)
    return w.op(name, [from_type, b], with_element(a.type, I1), types=w.type(a.type))


def select(w: Writer, condition: Ref, on_true: Ref, on_false: Ref) -> Ref:
    types = w.type(on_true.type)
    if shape_of(condition.type):
        types = f"{w.type(condition.type)}, {types}"
    return w.op("arith.select", [condition, on_true, on_false], on_true.type, types=types)


def both(w: Writer, a: Ref, b: Ref) -> Ref:
    return w.op("arith.andi", [a, b])


def either(w: Writer, a: Ref, b: Ref) -> Ref:
    return w.op("arith.ori", [a, b])


def inverted(w: Writer, a: Ref) -> Ref:
    """The complement of a bool."""
    return w.op("arith.xori", [a, w.constant(True, a.type)])


def retyped(ref: Ref, element: Scalar) -> Ref:
    """The same bits as an integer of the other signedness: MLIR's integers have none."""
    return Ref(ref.name, with_element(ref.type, element))


def bitcast(w: Writer, x: Ref, to: Scalar) -> Ref:
    """The bits as another type of the same width."""
    result = with_element(x.type, to)
    if w.type(result) == w.type(x.type):
        return Ref(x.name, result)
    source = element_of(x.type)
    if source.is_ptr() and to.is_ptr():
        x = w.cast("tt.ptr_to_int", x, with_element(x.type, I64), arrow="->")
        return w.cast("tt.int_to_ptr", x, result, arrow="->")
    if source.is_ptr():
        return bitcast(w, w.cast("tt.ptr_to_int", x, with_element(x.type, I64), arrow="->"), to)
    if to.is_ptr():
        return w.cast("tt.int_to_ptr", bitcast(w, x, I64), result, arrow="->")
    return w.cast("tt.bitcast", x, result, arrow="->")


def is_narrow(element: DType) -> bool:
    """Whether arithmetic on a float type is computed in fp32."""
    return element.is_floating() and element.primitive_bitwidth < 32


def widened(w: Writer, x: Ref) -> Ref:
    """A float of 16 bits or fewer in fp32, exactly; other values as they are."""
    element = dtype_of(x.type)
    if not is_narrow(element):
        return x
    to = with_element(x.type, FP32)
    if element == FP8E4B15:
        return w.cast("arith.extf", decoded(w, x), to)
    if element.is_fp8():
        return w.cast("tt.fp_to_fp", x, to, arrow="->")
    return w.cast("arith.extf", x, to)


# -- fp8e4b15, whose bits are those of fp16 but for the last seven mantissa bits ------------------

_LARGEST = 0x3F80  # the bits of 1.875 in fp16
_DROPPED = 7


def decoded(w: Writer, x: Ref) -> Ref:
    """fp8e4b15 in fp16, exactly: the two exponents have one bias."""
    bits = w.cast("arith.extui", Ref(x.name, with_element(x.type, U8)), with_element(x.type, U16))
    sign = binary(w, "arith.andi", bits, w.constant(0x80, bits.type))
    rest = binary(w, "arith.andi", bits, w.constant(0x7F, bits.type))
    sign = binary(w, "arith.shli", sign, w.constant(8, bits.type))
    rest = binary(w, "arith.shli", rest, w.constant(_DROPPED, bits.type))
    return bitcast(w, either(w, sign, rest), FP16)


def encoded(w: Writer, x: Ref, *, toward_zero: bool) -> Ref:
    """fp16 in fp8e4b15: saturated, rounded to nearest, ties to even; a NaN as the largest value."""
    bits = bitcast(w, x, U16)

    def constant(number: int) -> Ref:
        return w.constant(number, bits.type)

    exact = binary(w, "arith.andi", bits, constant(0x7FFF))
    size = binary(w, "arith.minui", exact, constant(_LARGEST))
    if not toward_zero:
        odd = binary(w, "arith.shrui", size, constant(_DROPPED))
        odd = binary(w, "arith.andi", odd, constant(1))
        half = binary(w, "arith.addi", size, constant((1 << (_DROPPED - 1)) - 1))
        size = binary(w, "arith.addi", half, odd)
    packed = binary(w, "arith.shrui", size, constant(_DROPPED))
    sign = binary(w, "arith.shrui", bits, constant(8))
    packed = either(w, packed, binary(w, "arith.andi", sign, constant(0x80)))
    nan = compare(w, "gt", exact, constant(0x7C00))
    packed = select(w, nan, constant(0x7F), packed)
    narrow = w.cast("arith.trunci", packed, with_element(x.type, U8))
    return Ref(narrow.name, with_element(x.type, FP8E4B15))

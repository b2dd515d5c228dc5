"""LLVM types, values and constants, each with its text in LLVM's syntax.

The syntax is that of LLVM 22: opaque pointers and ``splat (T c)`` constants. Re-exported by
`lowering.emit`; import it from there.
"""

from __future__ import annotations

import math
import struct as _struct
from collections.abc import Sequence
from functools import lru_cache

# --------------------------------------------------------------------------------------------
# Types
# --------------------------------------------------------------------------------------------


class LType:
    """An LLVM type. Interned: equal types are the same object, so compare with ``is``.

    Attributes:
        text: in LLVM's syntax, ``"<16 x float>"``.
        element: type of one lane; the type itself if it is not a vector.
        lanes: lane count of a vector, 0 otherwise.
        bits: bits of one element (a pointer has 64; an array or struct, the sum; void 0).
        is_float, is_int, is_ptr: the kind of the element.
        mangled: as an overload suffix of an intrinsic, ``"v16f32"``.
    """

    __slots__ = ("bits", "element", "is_float", "is_int", "is_ptr", "lanes", "mangled", "text")

    def __init__(self, text: str, kind: str, bits: int, mangled: str) -> None:
        self.text = text
        self.element: LType = self
        self.lanes = 0
        self.bits = bits
        self.is_float = kind == "float"
        self.is_int = kind == "int"
        self.is_ptr = kind == "ptr"
        self.mangled = mangled

    def __repr__(self) -> str:
        return self.text


_TYPES: dict[str, LType] = {}


def _interned(text: str, kind: str, bits: int, mangled: str) -> LType:
    result = _TYPES.get(text)
    if result is None:
        # setdefault is atomic, so two threads that race here still share one object.
        result = _TYPES.setdefault(text, LType(text, kind, bits, mangled))
    return result


def int_type(bits: int) -> LType:
    """The integer type of `bits` bits: ``int_type(7)`` is ``i7``."""
    return _interned(f"i{bits}", "int", bits, f"i{bits}")


def pointer(space: int = 0) -> LType:
    """The pointer type of an address space (0 generic; on GPUs 1 global, 3 shared)."""
    text = f"ptr addrspace({space})" if space else "ptr"
    return _interned(text, "ptr", 64, f"p{space}")


def vector(element: LType, lanes: int) -> LType:
    """The vector of `lanes` of a scalar type: ``vector(F32, 16)`` is ``<16 x float>``."""
    if element.lanes or not (element.is_float or element.is_int or element.is_ptr):
        raise TypeError(f"a vector holds integers, floats or pointers, not {element}")
    if lanes < 1:
        raise ValueError(f"a vector has at least one lane, not {lanes}")
    text = f"<{lanes} x {element.text}>"
    result = _TYPES.get(text)
    if result is not None:
        return result
    made = LType(text, "", element.bits, f"v{lanes}{element.mangled}")
    made.element, made.lanes = element, lanes
    made.is_float, made.is_int, made.is_ptr = element.is_float, element.is_int, element.is_ptr
    return _TYPES.setdefault(text, made)


def like(element: LType, other: LType) -> LType:
    """`element` (a scalar type) with as many lanes as `other` has."""
    return vector(element, other.lanes) if other.lanes else element


def array(element: LType, count: int) -> LType:
    """``[count x element]``, for allocas and globals."""
    text = f"[{count} x {element.text}]"
    bits = count * element.bits * max(1, element.lanes)
    return _interned(text, "array", bits, f"a{count}{element.mangled}")


def struct(*members: LType) -> LType:
    """The literal struct of the members: the result type of cmpxchg and of several results."""
    text = "{ " + ", ".join(m.text for m in members) + " }"
    bits = sum(m.bits * max(1, m.lanes) for m in members)
    return _interned(text, "struct", bits, "sl_" + "".join(m.mangled for m in members) + "s")


def row(member: LType, count: int) -> LType:
    """A named struct of equal members, which `Module.row` declares.

    A literal struct would be repeated in the text of each `extractvalue`; a name saves most of it.
    """
    text = f"%{member.mangled}.x{count}"
    return _interned(text, "struct", member.bits * count, f"s_{member.mangled}.x{count}s")


I1, I8, I16, I32, I64, I128 = (int_type(n) for n in (1, 8, 16, 32, 64, 128))
F16 = _interned("half", "float", 16, "f16")
BF16 = _interned("bfloat", "float", 16, "bf16")
F32 = _interned("float", "float", 32, "f32")
F64 = _interned("double", "float", 64, "f64")
PTR = pointer()
VOID = _interned("void", "void", 0, "isVoid")

# --------------------------------------------------------------------------------------------
# Values and constants
# --------------------------------------------------------------------------------------------


class V:
    """An LLVM value: its text (``%v7``, ``@table``, ``4.0``) and its type.

    Attributes:
        number: the value of an integer constant, or of each lane of a splat of one (signed, within
            the type; a bool is 0 or 1); None for everything else. Used for constant folding.
        part: for a value extracted from a word of 32 bits, the word, and the position of the
            value's lowest bit in it; else None.
        parts: for the sum of an integer and a constant, the two; else None.
    """

    __slots__ = ("number", "part", "parts", "text", "type")

    def __init__(self, text: str, type: LType, number: int | None = None) -> None:
        self.text = text
        self.type = type
        self.number = number
        self.part: tuple[V, int] | None = None
        self.parts: tuple[V, int] | None = None

    def __repr__(self) -> str:
        return f"{self.type.text} {self.text}"


Number = int | float
Operand = V | int | float
"""A value, or a Python number, which takes the type of the other operand."""

# Significand bits (with the implicit one), the exponent of the smallest subnormal, and the largest
# number: IEEE 754 binary16, bfloat16 (the upper half of binary32), binary32.
_NARROW_FLOATS = {
    F16: (11, -24, 65504.0),
    BF16: (8, -133, float.fromhex("0x1.fep127")),
    F32: (24, -149, float.fromhex("0x1.fffffep127")),
}
_NAN_BITS = {F16: 0x7E00, BF16: 0x7FC0}


def _round_to(type: LType, number: float) -> float:
    """`number` rounded to nearest even in a float type, as a Python float; may overflow to inf."""
    if type.element is F64 or not math.isfinite(number) or number == 0.0:
        return number
    precision, smallest, largest = _NARROW_FLOATS[type.element]
    unit = max(math.frexp(number)[1] - precision, smallest)
    # Scaling by a power of two is exact here, and round() on a float is round-half-even.
    rounded = math.copysign(math.ldexp(round(math.ldexp(number, -unit)), unit), number)
    return rounded if abs(rounded) <= largest else math.copysign(math.inf, number)


def _float_text(type: LType, number: float) -> str:
    number = _round_to(type, number)
    if number != number:
        negative = math.copysign(1.0, number) < 0
        if type.bits == 16:
            return f"0x{'H' if type is F16 else 'R'}{_NAN_BITS[type] | negative << 15:04X}"
        return "0xFFF8000000000000" if negative else "0x7FF8000000000000"
    if type is F16:
        return f"0xH{_struct.unpack('<H', _struct.pack('<e', number))[0]:04X}"
    if type is BF16:
        return f"0xR{_struct.unpack('<I', _struct.pack('<f', number))[0] >> 16:04X}"
    return f"0x{_struct.unpack('<Q', _struct.pack('<d', number))[0]:016X}"


def wrap(bits: int, number: int) -> int:
    """`number` modulo 2**bits, as the signed integer of that width (0 or 1 for one bit)."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if bits > 1 and number >> (bits - 1) else number


def scalar_text(type: LType, number: Number) -> tuple[str, int | None]:
    """The constant `number` of a scalar type as text, and its value as in `V.number`."""
    if type.is_float:
        return _float_text(type, float(number)), None
    if number != int(number):
        raise TypeError(f"{number} is not a constant of type {type}")
    if type.is_ptr:
        if number:
            raise ValueError("the only pointer constant is null (0)")
        return "null", None
    wrapped = wrap(type.bits, int(number))
    return (("false", "true")[wrapped] if type is I1 else str(wrapped)), wrapped


def const(type: LType, number: Number) -> V:
    """The constant `number` of a type; for a vector type, in every lane.

    Integers are reduced modulo 2^n; floats are rounded to nearest even, and written in hexadecimal.
    """
    text, value = _integer_text(type, number) if type.is_int else _constant_text(type, number)
    return V(text, type, value)


def _constant_text(type: LType, number: Number) -> tuple[str, int | None]:
    """As `scalar_text`; of a vector type, the number in every lane."""
    element = type.element
    text, value = scalar_text(element, number)
    if type.lanes:
        text = (
            "zeroinitializer" if value == 0 or text == "null" else f"splat ({element.text} {text})"
        )
    return text, value


# Only texts of integers are cached: 0.0 and -0.0 are equal keys but different constants.
_integer_text = lru_cache(4096)(_constant_text)


def zero(type: LType) -> V:
    """All bits zero, of any first-class type."""
    if type.is_int:
        return const(type, 0)
    if type.is_float and not type.lanes:
        return const(type, 0.0)
    return V("null" if type.is_ptr and not type.lanes else "zeroinitializer", type)


def poison(type: LType) -> V:
    """LLVM's poison value."""
    return V("poison", type)


def const_vector(element: LType, numbers: Sequence[Number]) -> V:
    """The constant vector of the given lanes."""
    key = tuple(numbers)
    text = _integers_text(element, key) if element.is_int else _lanes_text(element, key)
    return V(text, vector(element, len(key)))


def _lanes_text(element: LType, numbers: tuple[Number, ...]) -> str:
    lanes = ", ".join([f"{element.text} {scalar_text(element, n)[0]}" for n in numbers])
    return f"<{lanes}>"


_integers_text = lru_cache(256)(_lanes_text)

"""Types, constants, strings and locations of tile IR as MLIR text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.base.diagnostics import Loc
from tilewright.ir.numbers import array_of
from tilewright.ir.types import FP8E4B15, U8, DType, Pointer, Scalar, Type, element_of, shape_of

FLOATS = {
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "fp64": "f64",
    "fp8e5": "f8E5M2",
    "fp8e4nv": "f8E4M3FN",
    "fp8e4b8": "f8E4M3FNUZ",
    "fp8e5b16": "f8E5M2FNUZ",
    "fp8e4b15": "i8",
}
"""The float types of MLIR by their names in tile IR. MLIR has no fp8e4b15, whose bits are an
integer."""


def type_text(type: Type) -> str:
    """A type in MLIR: ``f32``, ``!tt.ptr<i8>``, ``tensor<4x8xf32>``. Integers are signless."""
    shape, element = shape_of(type), _scalar_text(element_of(type))
    return f"tensor<{'x'.join(map(str, shape))}x{element}>" if shape else element


def _scalar_text(element: Scalar) -> str:
    if isinstance(element, Pointer):
        return f"!tt.ptr<{_pointee_text(element.element_ty)}>"
    if element.is_int():
        return f"i{element.primitive_bitwidth}"
    return FLOATS[element.short]


def _pointee_text(element: Scalar) -> str:
    """The type of elements in memory: a bool takes a byte, and a pointer 64 bits."""
    if isinstance(element, Pointer):
        return "i64"
    return "i8" if element.is_bool() else _scalar_text(element)


def constant_text(value: bool | int | float, type: Type) -> str:
    """A constant as a typed attribute: ``5 : i32``, ``dense<1.5> : tensor<4xf32>``."""
    element = element_of(type)
    assert isinstance(element, DType)
    number = _number_text(value, element)
    if shape_of(type):
        return f"dense<{number}> : {type_text(type)}"
    return number if element.is_bool() else f"{number} : {type_text(type)}"


def _number_text(value: Any, element: DType) -> str:
    if element.is_bool():
        return "true" if value else "false"
    if element.is_int():
        bits = element.primitive_bitwidth
        return str(value - (1 << bits) if value >> (bits - 1) == 1 else value)
    size = element.primitive_bitwidth // 8
    bits = int(np.atleast_1d(array_of(value, element)).view(f"u{size}")[0])
    if element == FP8E4B15:
        return _number_text(bits, U8)
    if math.isfinite(value):
        mantissa, exponent, power = repr(float(value)).partition("e")
        return (mantissa if "." in mantissa else mantissa + ".0") + exponent + power
    return f"0x{bits:0{2 * size}X}"


def quoted(text: str) -> str:
    """A string of MLIR."""
    out: list[str] = []
    for byte in text.encode():
        plain = 32 <= byte < 127 and chr(byte) not in '"\\'
        out.append(chr(byte) if plain else f"\\{byte:02X}")
    return f'"{"".join(out)}"'


def location_text(loc: Loc | None) -> str:
    """A location as it stands behind a statement, with a space in front; "" for an unknown one."""
    return f" loc({quoted(loc.file)}:{loc.line}:{loc.column})" if loc is not None else ""

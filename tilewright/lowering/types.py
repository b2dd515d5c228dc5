"""Tile element types as LLVM types, in registers and in memory.

bf16 and the 8-bit floats are integers with their bits in registers. Their arithmetic is computed in
fp32 and rounded by `lowering/convert.py`, as LLVM's code for them differs between machines (for
example, the AVX-512 conversion to bf16 flushes subnormals). A boolean is an i1 in registers and a
byte in memory.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.ir.numbers import array_of
from tilewright.lowering.emit import F16, F32, F64, I1, I8, PTR, LType, int_type

_FLOATS = {ir.FP16: F16, ir.FP32: F32, ir.FP64: F64}


def register_type(type: ir.Type) -> LType:
    """The LLVM type of one element in a register."""
    element = ir.element_of(type)
    if isinstance(element, ir.Pointer):
        return PTR
    if element.is_bool():
        return I1
    return _FLOATS.get(element) or int_type(element.primitive_bitwidth)


def memory_type(type: ir.Type) -> LType:
    """The LLVM type of one element in memory."""
    found = register_type(type)
    return I8 if found is I1 else found


def compute_type(element: ir.DType) -> LType:
    """The LLVM type in which arithmetic on the element type is computed."""
    if element.is_floating() and element.primitive_bitwidth < 32:
        return F32
    return register_type(element)


def number_of(element: ir.DType, value: bool | int | float) -> int | float:
    """A constant in its register type: narrow floats as their bits."""
    if element.is_floating() and not register_type(element).is_float:
        return int(array_of(value, element).view(f"u{element.itemsize}"))
    return value

"""Pointers, loads and stores.

A bool in memory is a byte, and a pointer there 64 bits: they are loaded as `i8` and `i64`.
"""

from __future__ import annotations

from tilewright.ir.types import (
    I32,
    I64,
    Pointer,
    Type,
    dtype_of,
    element_of,
    int_type,
    with_element,
)
from tilewright.ops import memory
from tilewright_triton.ttir.casts import converted
from tilewright_triton.ttir.numbers import bitcast
from tilewright_triton.ttir.writer import EMITTERS, Ref, Writer


@EMITTERS.of(memory.AddPtr)
def emit_addptr(w: Writer, op: memory.AddPtr) -> None:
    """`tt.addptr` extends its offset by the sign: an unsigned one is extended before."""
    ptr, offset = w.use(op.ptr), w.use(op.offset)
    element = dtype_of(offset.type)
    if element.is_int_unsigned() and element.primitive_bitwidth < 64:
        offset = converted(w, offset, I64 if element.primitive_bitwidth == 32 else I32)
    types = f"{w.type(ptr.type)}, {w.type(offset.type)}"
    w.bind(op.result, w.op("tt.addptr", [ptr, offset], types=types))


def _in_memory(w: Writer, value: Ref) -> Ref:
    """A value as it is stored."""
    element = element_of(value.type)
    if isinstance(element, Pointer):
        return bitcast(w, value, I64)
    return converted(w, value, int_type(8, False)) if element.is_bool() else value


def _from_memory(w: Writer, stored: Ref, type: Type) -> Ref:
    """A value of a type, from its form in memory."""
    element = element_of(type)
    return (
        bitcast(w, stored, element)
        if isinstance(element, Pointer)
        else converted(w, stored, element)
    )


def _stored_type(type: Type) -> Type:
    element = element_of(type)
    if isinstance(element, Pointer):
        return with_element(type, I64)
    return with_element(type, int_type(8, False)) if element.is_bool() else type


def _advice(cache: str, evict: str, *, volatile: bool = False) -> str:
    """At most one of the hints: PTX permits no two of them, and none for volatile accesses."""
    if volatile:
        return ""
    if cache:
        return f" cacheModifier = {cache}"
    return f" evictionPolicy = {evict}" if evict else ""


@EMITTERS.of(memory.Load)
def emit_load(w: Writer, op: memory.Load) -> None:
    ptr, mask, other = (None if v is None else w.use(v) for v in (op.ptr, op.mask, op.other))
    assert ptr is not None
    stored = _stored_type(op.result.type)
    operands = [ptr]
    if mask is not None:
        missing = w.constant(zero_of(stored), stored) if other is None else _in_memory(w, other)
        operands += [mask, missing]
    words = _advice(op.cache, op.evict, volatile=op.volatile)
    attributes = {"isVolatile": "true"} if op.volatile else {}
    found = w.op(
        "tt.load", operands, stored, types=w.type(ptr.type), words=words, attributes=attributes
    )
    w.bind(op.result, _from_memory(w, found, op.result.type))


def zero_of(type: Type) -> int | float:
    """The zero of a type, as the value of a constant."""
    return 0.0 if element_of(type).is_floating() else 0


@EMITTERS.of(memory.Store)
def emit_store(w: Writer, op: memory.Store) -> None:
    operands = [w.use(op.ptr), _in_memory(w, w.use(op.value))]
    if op.mask is not None:
        operands.append(w.use(op.mask))
    names = ", ".join(v.name for v in operands)
    w.effect(f"tt.store {names}{_advice(op.cache, op.evict)}", w.type(op.ptr.type))

"""Inline assembly on packs of elements; narrow elements share registers of 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.lowering.emit import (
    F32,
    F64,
    I8,
    Builder,
    LType,
    V,
    const,
    int_type,
    struct,
)
from tilewright.lowering.types import register_type
from tilewright.ops.asm import (
    InlineAsm,
    InlineAsmEffect,
    elements_in_word,
    registers_of,
    split_constraints,
)

_FLOATS = {"f": F32, "d": F64}
_BITS = {"h": 16, "r": 32, "l": 64}

Packs = list[list[V]]


def call(b: Builder, op: InlineAsm | InlineAsmEffect, packs: Sequence[Sequence[V]]) -> Packs:
    """Emit the assembly for one pack: `op.pack` elements of each operand and of each result."""
    outputs, inputs = split_constraints(op.constraints)
    letters = [_letter(c, outputs) for c in inputs]
    args: list[V] = []
    for value, elements in zip(op.args, packs, strict=True):
        element = ir.element_of(value.type)
        size = elements_in_word(element, op.pack)
        for start in range(0, op.pack, size):
            group = elements[start : start + size]
            args.append(_register(b, group, element, letters[len(args)]))
    types = [
        _result_type(t, op.pack, _letter(outputs[i], outputs))
        for i, t in enumerate(t for t in op.types for _ in range(registers_of(t, op.pack)))
    ]
    ret = types[0] if len(types) == 1 else struct(*types)
    effect = isinstance(op, InlineAsmEffect)
    got = b.inline_asm(op.code, op.constraints, ret, args, effect)
    registers = [got] if len(types) == 1 else [
        b.extract_value(got, i, t) for i, t in enumerate(types)
    ]  # fmt: skip
    return _unpacked(b, op, registers)


def _letter(constraint: str, outputs: Sequence[str]) -> str:
    """The letter of a constraint; for a tied operand, that of the output."""
    text = constraint.lstrip("=+&%")
    return _letter(outputs[int(text)], outputs) if text.isdigit() else text


def _word_bits(element: ir.Scalar, pack: int, letter: str) -> int:
    bits = 8 * element.nbytes_in_memory * elements_in_word(element, pack)
    return max(bits, _BITS.get(letter, 32))


def _register(b: Builder, group: Sequence[V], element: ir.Scalar, letter: str) -> V:
    """Elements packed into one register, the first in the lowest bits."""
    if letter in _FLOATS and len(group) == 1 and group[0].type is _FLOATS[letter]:
        return group[0]
    bits = 8 * element.nbytes_in_memory
    word = int_type(max(bits * len(group), _BITS.get(letter, 32)))
    joined = const(word, 0)
    for i, value in enumerate(group):
        wide = b.zext(_bits(b, value), word)
        joined = b.or_(joined, b.shl(wide, i * bits)) if i else wide
    return b.bitcast(joined, _FLOATS[letter]) if letter in _FLOATS else joined


def _bits(b: Builder, value: V) -> V:
    if value.type.is_ptr:
        return b.ptrtoint(value)
    if value.type.bits == 1:
        return b.zext(value, I8)
    return b.bitcast(value, int_type(value.type.bits)) if value.type.is_float else value


def _result_type(element: ir.DType, pack: int, letter: str) -> LType:
    return _FLOATS.get(letter) or int_type(_word_bits(element, pack, letter))


def _unpacked(b: Builder, op: InlineAsm | InlineAsmEffect, registers: Sequence[V]) -> Packs:
    result: Packs = []
    rest = list(registers)
    for element in op.types:
        size, bits = elements_in_word(element, op.pack), 8 * element.nbytes_in_memory
        elements: list[V] = []
        for _ in range(registers_of(element, op.pack)):
            register = rest.pop(0)
            word = b.bitcast(register, int_type(register.type.bits))
            for i in range(size):
                shifted = b.lshr(word, i * bits) if i else word
                elements.append(_element(b, b.trunc(shifted, int_type(bits)), element))
        result.append(elements[: op.pack])
    return result


def _element(b: Builder, bits: V, element: ir.DType) -> V:
    kind = register_type(element)
    if kind.bits == 1:
        return b.icmp("ne", bits, const(bits.type, 0))
    return b.bitcast(bits, kind) if kind.is_float else bits

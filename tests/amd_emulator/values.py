"""Reading operands as typed arrays, and writing results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.amd_emulator.decode import LITERAL, Instruction
from tests.amd_emulator.operands import EXEC, SDWA_WORD, VCC, VGPR, Operand
from tests.amd_emulator.state import Array, EmulatorError, Waves

Read = Callable[[Waves], Array]
Write = Callable[[Waves, Array], None]

_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189535)
_SHARED_BASE, _PRIVATE_BASE = 235, 237
APERTURES = {_SHARED_BASE: 0x1_0000_0000_0000, _PRIVATE_BASE: 0x2_0000_0000_0000}

_DTYPES: dict[str, Any] = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "b16": np.uint16,
    "b32": np.uint32, "b64": np.uint64,
}  # fmt: skip


def bits_of(kind: str) -> int:
    """The size of an element of a type in bits."""
    text = kind[3:] if kind.startswith("v2") else kind[1:]
    return int(text) if text.isdigit() else 32


def typed(raw: Array, kind: str) -> Array:
    """Bits as the type."""
    return raw.view(_DTYPES.get(kind, np.uint32))


def raw_of(value: Array, kind: str) -> Array:
    """A value of the type as bits, from whatever type the computation gave."""
    value = np.asarray(value)
    wanted = _DTYPES.get(kind, np.uint32)
    if value.dtype != wanted:
        value = value.astype(wanted)
    return value.view(f"u{value.dtype.itemsize}")


def inline_constant(code: int, kind: str) -> int:
    """The bits of an inline constant as an operand of the type."""
    bits = bits_of(kind)
    if 128 <= code <= 208:
        value = code - 128 if code <= 192 else 192 - code
        return value & (1 << bits) - 1
    if 240 <= code <= 248:
        number = _FLOATS[code - 240]
        form = {16: np.float16, 32: np.float32, 64: np.float64}[bits]
        return int(np.array(number, form).view(f"u{bits // 8}"))
    if code in APERTURES:
        return APERTURES[code] if bits == 64 else APERTURES[code] >> 32
    raise EmulatorError(f"no such constant: {code}")


def _literal_bits(value: int, kind: str) -> int:
    """A literal of 32 bits as an operand: the upper half of a double, else extended."""
    bits = bits_of(kind)
    if bits == 64:
        if kind == "f64":
            return value << 32
        negative = kind == "i64" and value >> 31
        return value | (0xFFFFFFFF00000000 if negative else 0)
    return value & (1 << bits) - 1


def _constant(found: Operand) -> int | None:
    if found.code == LITERAL:
        assert found.literal is not None
        return _literal_bits(found.literal, found.kind)
    if 128 <= found.code < VGPR and found.code not in (251, 252, 253):
        return inline_constant(found.code, found.kind)
    return None


class Access:
    """Makes functions that read and write operands.

    Args:
        null: the code of the register that is always zero, if there is one.
    """

    def __init__(self, lanes: int, null: int | None) -> None:
        self.lanes = lanes
        self.null = null

    # -- reading ----------------------------------------------------------------------------------

    def reader(self, found: Operand, made: Instruction) -> Read:
        """A function that returns the operand; with the lane as the last axis for vector code."""
        vector = made.format.startswith("VO")
        if found.kind == "m":
            return self._mask_reader(found)
        if found.words > 2:
            return self._wide_reader(found, made.base.startswith("v_mfma_f64"))
        if found.kind.startswith("v2"):
            return self._packed_reader(found)
        raw = self._raw_reader(found, vector)
        changed = self._modified(raw, found)
        kind = found.kind
        return lambda w: typed(changed(w), kind)

    def _raw_reader(self, found: Operand, vector: bool) -> Read:
        bits, code, half = bits_of(found.kind), found.code, found.half
        constant = _constant(found)
        if constant is not None:
            form = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
            fixed = np.full((1, 1) if vector else (1,), constant, form)
            return lambda w: fixed
        if code in (251, 252, 253):
            return _condition_reader(code, vector)
        if bits == 64:
            low, high = self.word(code, vector), self.word(code + 1, vector)
            return lambda w: low(w).astype(np.uint64) | high(w).astype(np.uint64) << 32
        word = self.word(code, vector)
        if bits == 16:
            if found.select != SDWA_WORD:
                selected = _selected(word, found)
                return lambda w: selected(w).astype(np.uint16)
            return lambda w: (word(w) >> np.uint32(16 * half)).astype(np.uint16)
        return _selected(word, found) if found.select != SDWA_WORD else word

    def word(self, code: int, vector: bool) -> Read:
        """A function that returns a register as unsigned words."""
        if code >= VGPR:
            return lambda w: w.vector(code)
        if code == self.null:
            fixed = np.zeros((1, 1) if vector else (1,), np.uint32)
            return lambda w: fixed
        if vector:
            return lambda w: w.scalar(code)[:, None]
        return lambda w: w.scalar(code)

    def _modified(self, raw: Read, found: Operand) -> Read:
        if not found.negate and not found.absolute:
            return raw
        bits = bits_of(found.kind)
        form = np.dtype(f"u{bits // 8}").type
        sign = form(1 << bits - 1)
        keep = form((1 << bits - 1) - 1) if found.absolute else form((1 << bits) - 1)
        flip = sign if found.negate else form(0)
        return lambda w: (raw(w) & keep) ^ flip

    def _mask_reader(self, found: Operand) -> Read:
        code = found.code
        if code >= 128:
            number = inline_constant(code, f"b{self.lanes}")
            fixed = np.array([[bool(number >> i & 1) for i in range(self.lanes)]])
            return lambda w: fixed
        return lambda w: w.mask(code)

    def _wide_reader(self, found: Operand, double: bool) -> Read:
        """Registers of a matrix: wave, register, lane. A constant is all of its elements, which
        have 64 bits if `double`, otherwise 32."""
        code, count = found.code, found.words
        if code < VGPR:
            kind, form = ("f64", np.uint64) if double else ("f32", np.uint32)
            words = np.array([inline_constant(code, kind)], form).view(np.uint32)
            fixed = np.resize(words, count)[None, :, None]
            return lambda w: fixed
        return lambda w: np.stack([w.vector(code + i) for i in range(count)], axis=1)

    def _packed_reader(self, found: Operand) -> Read:
        """Two elements in the last axis, selected and negated as the modifiers state."""
        wide = bits_of(found.kind) == 32
        elements = self._two_words(found) if wide else self._two_halves(found)
        (low, not_low), (high, not_high) = found.packed
        bits = bits_of(found.kind)
        sign = np.array([not_low, not_high]).astype(f"u{bits // 8}") << (bits - 1)

        def read(w: Waves) -> Array:
            raw = elements(w)[..., [low, high]] ^ sign
            return np.ascontiguousarray(raw).view(_DTYPES[found.kind[2:]])

        return read

    def _two_halves(self, found: Operand) -> Read:
        constant = _constant(found)
        if constant is not None:
            if found.code == LITERAL:
                assert found.literal is not None
                whole = found.literal
            elif found.code <= 208:
                whole = inline_constant(found.code, "b32")
            else:
                whole = inline_constant(found.code, "f16")
            fixed = np.array([[[whole & 0xFFFF, whole >> 16]]], np.uint16)
            return lambda w: fixed
        word = self.word(found.code, True)
        return lambda w: np.ascontiguousarray(word(w))[..., None].view(np.uint16)

    def _two_words(self, found: Operand) -> Read:
        constant = _constant(Operand("f32", found.code, literal=found.literal))
        if constant is not None:
            fixed = np.array([[[constant, constant]]], np.uint32)
            return lambda w: fixed
        words = self.word(found.code, True), self.word(found.code + 1, True)
        return lambda w: np.stack([words[0](w), words[1](w)], axis=-1)

    # -- writing ----------------------------------------------------------------------------------

    def scalar_writer(self, found: Operand) -> Write:
        """A function that writes a scalar result."""
        code, kind = found.code, found.kind
        if code == self.null:
            return lambda w, value: None
        if bits_of(kind) == 64:

            def write(w: Waves, value: Array) -> None:
                raw = raw_of(value, kind)
                w.write_scalar(code, (raw & np.uint64(0xFFFFFFFF)).astype(np.uint32))
                w.write_scalar(code + 1, (raw >> np.uint64(32)).astype(np.uint32))

            return write
        return lambda w, value: w.write_scalar(code, raw_of(value, kind))

    def mask_writer(self, found: Operand) -> Write:
        """A function that writes a mask of lanes; inactive lanes give zeros."""
        code = found.code
        if code == self.null:
            return lambda w, value: None
        return lambda w, value: w.write_mask(code, value & w.active)

    def vector_writer(self, found: Operand, zeroes_high: bool) -> Write:
        """A function that writes a vector result in active lanes."""
        code, kind, bits = found.code, found.kind, bits_of(found.kind)
        if kind.startswith("v2"):
            return _packed_writer(code, kind)
        if bits == 64:
            return _double_writer(code, kind)
        if found.words > 2:
            return lambda w, value: _write_wide(w, code, value)
        if bits == 32:
            return lambda w, value: w.write_vector(code, raw_of(value, kind))
        half = np.uint32(16 * found.half)
        keep = np.uint32(0) if zeroes_high else np.uint32(0xFFFF0000 >> int(half))

        def write(w: Waves, value: Array) -> None:
            raw = raw_of(value, kind).astype(np.uint32) << half
            if keep:
                raw = raw | w.vector(code) & keep
            w.write_vector(code, raw)

        return write


def _write_wide(w: Waves, code: int, value: Array) -> None:
    for i in range(value.shape[1]):
        w.write_vector(code + i, value[:, i])


def _double_writer(code: int, kind: str) -> Write:
    def write(w: Waves, value: Array) -> None:
        raw = raw_of(value, kind)
        w.write_vector(code, (raw & np.uint64(0xFFFFFFFF)).astype(np.uint32))
        w.write_vector(code + 1, (raw >> np.uint64(32)).astype(np.uint32))

    return write


def _packed_writer(code: int, kind: str) -> Write:
    def write(w: Waves, value: Array) -> None:
        raw = np.ascontiguousarray(raw_of(value, kind[2:]))
        if raw.dtype == np.uint16:
            w.write_vector(code, raw.view(np.uint32)[..., 0])
            return
        w.write_vector(code, raw[..., 0])
        w.write_vector(code + 1, raw[..., 1])

    return write


def _condition_reader(code: int, vector: bool) -> Read:
    def read(w: Waves) -> Array:
        if code == 253:
            word: Array = w.scc[w.selected].astype(np.uint32)
        else:
            empty: Array = w.mask(VCC if code == 251 else EXEC).max(axis=-1) == 0
            word = empty.astype(np.uint32)
        return word[:, None] if vector else word

    return read


def _selected(word: Read, found: Operand) -> Read:
    """A byte or half of a word, extended."""
    if found.select < 4:
        shift, bits = np.uint32(8 * found.select), 8
    else:
        shift, bits = np.uint32(16 * (found.select - 4)), 16
    if found.extend:
        signed = np.int8 if bits == 8 else np.int16
        return lambda w: (word(w) >> shift).astype(signed).astype(np.int32).view(np.uint32)
    keep = np.uint32((1 << bits) - 1)
    return lambda w: np.asarray(word(w) >> shift & keep)

"""Matrix instructions: MFMA of CDNA and WMMA of RDNA.

Where the elements of the operands are follows AMD's instruction set reference guides, "Matrix
Arithmetic Instructions" (MI300) and "Wave Matrix Multiply Accumulate" (RDNA3, RDNA4). Products are
added in double precision and rounded once; the hardware may round in between, so that tests need
tolerances unless sums are exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.amd_emulator.decode import Instruction
from tests.amd_emulator.operands import OperandReader
from tests.amd_emulator.packed import FP8
from tests.amd_emulator.state import Array, Waves
from tests.amd_emulator.values import Access

Run = Callable[[Waves], None]


def matrix_instruction(made: Instruction, reader: OperandReader, access: Access) -> Run:
    """The function that executes a matrix instruction.

    Raises:
        NotImplementedError: the emulator does not know its semantics.
    """
    if made.base.startswith("v_wmma"):
        return _wmma(made, reader, access)
    return _mfma(made, reader, access)


def _forms(processor: str, texts: list[str]) -> list[Any]:
    plain = {
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "f32": np.float32,
        "f64": np.float64,
        "i8": np.int8,
        "xf32": np.float32,
        "u8": np.uint8,
    }
    fp8 = FP8[processor in ("gfx942", "gfx90a")]
    return [fp8.get(text) or plain[text] for text in texts]


def _elements(words: Array, form: Any) -> Array:
    """Registers (wave, register, lane) as elements: wave, lane, element."""
    rows = np.ascontiguousarray(np.moveaxis(words, 1, -1))
    return rows.view(form)


def _words(elements: Array) -> Array:
    """Elements (wave, lane, element) as registers: wave, register, lane."""
    return np.moveaxis(np.ascontiguousarray(elements).view(np.uint32), -1, 1)


def _product(a: Array, b: Array, c: Array, form: Any) -> Array:
    """a @ b + c: (wave, row, k) and (wave, column, k) to (wave, row, column)."""
    wide = np.int64 if form == np.int32 else np.float64
    total = a.astype(wide) @ np.swapaxes(b.astype(wide), 1, 2) + c.astype(wide)
    return total.astype(form)


def _mfma(made: Instruction, reader: OperandReader, access: Access) -> Run:
    found = re.fullmatch(r"v_mfma_(f32|i32|f64)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_(\w+)", made.base)
    if found is None or found[5]:
        raise NotImplementedError(f"no semantics of {made.name}")
    if made.fields["cbsz"] or made.fields["abid"] or (found[1] != "f64" and made.fields["blgp"]):
        raise NotImplementedError(f"no semantics of the modifiers of {made.name}")
    rows, depth = int(found[2]), int(found[4])
    kinds = (found[6].split("_") * 2)[:2]
    forms = _forms(reader.decoder.processor, kinds)
    result_form = {"f32": np.float32, "i32": np.int32, "f64": np.float64}[found[1]]
    results, sources = reader.operands(made)
    reads = [access.reader(x, made) for x in sources]
    lane = np.arange(64)
    row, part = lane % rows, lane // rows
    share = depth * rows // 64  # elements of an operand in each lane
    narrow = kinds[0] == "xf32"

    def operand(w: Waves, index: int) -> Array:
        raw = reads[index](w)
        if raw.ndim == 2:  # one or two registers, read as one number
            raw = np.broadcast_to(raw, w.active.shape)
            raw = np.ascontiguousarray(raw)[..., None].view(np.uint32)
            values = np.ascontiguousarray(raw).view(forms[index])
        else:
            values = _elements(raw, forms[index])
        full = np.zeros((len(values), rows, depth), values.dtype)
        full[:, row[:, None], part[:, None] * share + np.arange(share)] = values
        return _ten_bits(full) if narrow else full

    def run(w: Waves) -> None:
        a, b = operand(w, 0), operand(w, 1)
        c = _accumulator(reads[2](w), len(a), results[0].words, result_form)
        place_row, place_column = _result_places(rows, result_form is np.float64)
        total = np.zeros((len(a), rows, rows), result_form)
        total[:, place_row, place_column] = c
        total = _product(a, b, total, result_form)
        found = _words(total[:, place_row, place_column])
        for i in range(found.shape[1]):
            w.write_vector(results[0].code + i, found[:, i], np.ones_like(w.active))

    return run


def _ten_bits(value: Array) -> Array:
    """Floats with a mantissa of ten bits, as xf32 reads them, rounded to nearest even."""
    raw = np.ascontiguousarray(value).view(np.uint32)
    rounded = raw + 0xFFF + (raw >> 13 & 1) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded, raw).astype(np.uint32).view(np.float32)


def _accumulator(words: Array, waves: int, count: int, form: Any) -> Array:
    """The accumulator as elements: wave, lane, element."""
    if words.ndim == 2:
        words = np.ascontiguousarray(words)[..., None].view(np.uint32)
        words = np.moveaxis(words, -1, 1)
    return _elements(np.broadcast_to(words, (waves, count, 64)), form)


def _result_places(rows: int, double: bool) -> tuple[Array, Array]:
    """Row and column of each element of the result, by lane and element."""
    lane, element = np.arange(64)[:, None], np.arange(rows * rows // 64)
    part = lane // rows
    if double:  # one row in each register, four apart
        return 4 * element + part, np.broadcast_to(lane % rows, (64, len(element)))
    groups = 64 // rows  # lanes of a column, each with four rows at a time
    row = element // 4 * 4 * groups + part * 4 + element % 4
    return row, np.broadcast_to(lane % rows, row.shape)


def _wmma(made: Instruction, reader: OperandReader, access: Access) -> Run:
    found = re.fullmatch(r"v_wmma_(f32|f16|bf16|i32)_16x16x16_(\w+)", made.base)
    if found is None:
        raise NotImplementedError(f"no semantics of {made.name}")
    kinds = (found[2].split("_") * 2)[:2]
    if kinds[0] == "iu8":
        kinds = ["i8" if made.fields["neg"] >> i & 1 else "u8" for i in range(2)]
    elif made.fields["neg"] or made.fields["neg_hi"]:
        raise NotImplementedError(f"no semantics of the modifiers of {made.name}")
    forms = _forms(reader.decoder.processor, kinds)
    result_form = np.int32 if found[1] == "i32" else _forms("", [found[1]])[0]
    results, sources = reader.operands(made)
    reads = [access.reader(x, made) for x in sources]
    doubled = reader.decoder.generation == "gfx11"
    lane = np.arange(32)

    def operand(w: Waves, index: int) -> Array:
        raw = reads[index](w)
        values = _elements(raw if raw.ndim == 3 else _as_words(raw), forms[index])
        if doubled:  # the second half of the wave holds the same as the first
            return values[:, :16]
        full = np.zeros((len(values), 16, 16), values.dtype)
        share = values.shape[-1]
        full[:, (lane % 16)[:, None], (lane // 16)[:, None] * share + np.arange(share)] = values
        return full

    def run(w: Waves) -> None:
        a, b = operand(w, 0), operand(w, 1)
        words = reads[2](w)
        words = np.broadcast_to(words, (len(a), results[0].words, 32))
        row, column, place = _wmma_places(doubled)
        step = 2 if doubled and np.dtype(result_form).itemsize == 2 else 1
        elements = _elements(words, result_form).copy()
        upper = made.fields["op_sel"] >> 2 & 1
        own = elements[..., upper::step] if step == 2 else elements
        total = np.zeros((len(a), 16, 16), result_form)
        total[:, row, column] = own[..., place]
        total = _product(a, b, total, result_form)
        own[...] = total[:, row, column]
        found = _words(elements)
        for i in range(found.shape[1]):
            w.write_vector(results[0].code + i, found[:, i], np.ones_like(w.active))

    return run


def _as_words(raw: Array) -> Array:
    return np.moveaxis(np.ascontiguousarray(raw)[..., None].view(np.uint32), -1, 1)


def _wmma_places(doubled: bool) -> tuple[Array, Array, Array]:
    """Row and column of the eight elements of the result in each lane."""
    lane, element = np.arange(32)[:, None], np.arange(8)
    half = lane // 16
    row = 2 * element + half if doubled else 8 * half + element
    return row, np.broadcast_to(lane % 16, row.shape), element

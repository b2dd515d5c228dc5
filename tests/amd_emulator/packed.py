"""Instructions on packed elements, on halves mixed with floats, and on FP8."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from tests.amd_emulator.decode import LITERAL, Instruction
from tests.amd_emulator.floats import fma, round_to_odd
from tests.amd_emulator.integers import dot
from tests.amd_emulator.operands import VGPR, Operand, OperandReader
from tests.amd_emulator.state import Array, Waves
from tests.amd_emulator.values import Access, Read, inline_constant

Run = Callable[[Waves], None]

# CDNA3 has the forms of FP8 without infinities and negative zero, later processors OCP's.
FP8 = {
    True: {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz},
    False: {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2},
}


def packed_instruction(made: Instruction, reader: OperandReader, access: Access) -> Run | None:
    """The function that executes the instruction, if it is one of these."""
    base = made.base
    if base.startswith("v_fma_mix"):
        return _mixed(made, reader, access)
    if "fp8" in base or "bf8" in base:
        return _fp8(made, reader, access)
    if base == "v_dot4_i32_iu8":
        return _dot_mixed(made, reader, access)
    if base == "v_pk_mov_b32":
        return _move_pair(made, reader, access)
    if base in ("v_dot2_f32_f16", "v_dot2c_f32_f16"):
        return _dot_halves(made, reader, access)
    return None


def _raw(found: Operand, access: Access) -> Read:
    """The operand as words, without modifiers."""
    if found.code == LITERAL:
        fixed = np.full((1, 1), found.literal, np.uint32)
        return lambda w: fixed
    if 128 <= found.code < VGPR:
        fixed = np.full((1, 1), inline_constant(found.code, "f32"), np.uint32)
        return lambda w: fixed
    return access.word(found.code, True)


def _mixed(made: Instruction, reader: OperandReader, access: Access) -> Run:
    """v_fma_mix: each source is a float or one of the halves of a word."""
    results, sources = reader.operands(made)
    fields = made.fields
    reads = [_mixed_source(x, access, i, fields) for i, x in enumerate(sources)]
    code, clamps = results[0].code, fields["clamp"]

    def run(w: Waves) -> None:
        a, b, c = (read(w) for read in reads)
        exact = round_to_odd(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
        form = np.float32 if made.base == "v_fma_mix_f32" else np.float16
        value = exact.astype(form)
        if clamps:
            value = np.where(np.isnan(value), form(0), np.clip(value, form(0), form(1)))
        if form is np.float32:
            w.write_vector(code, value.view(np.uint32))
            return
        raw, old = value.view(np.uint16).astype(np.uint32), w.vector(code)
        if made.base == "v_fma_mixlo_f16":
            w.write_vector(code, old & np.uint32(0xFFFF0000) | raw)
        else:
            w.write_vector(code, old & np.uint32(0xFFFF) | raw << 16)

    return run


def _mixed_source(found: Operand, access: Access, place: int, fields: dict[str, int]) -> Read:
    (upper, _), (is_half, _) = found.packed  # op_sel and op_sel_hi
    raw = _raw(found, access)
    constant_half = is_half and 128 <= found.code < VGPR
    fixed = inline_constant(found.code, "f16") if constant_half and found.code >= 240 else None

    def read(w: Waves) -> Array:
        word = raw(w)
        if is_half and fixed is not None:
            value = np.full((1, 1), fixed, np.uint16).view(np.float16).astype(np.float32)
        elif is_half:
            half = np.ascontiguousarray((word >> np.uint32(16 * upper)).astype(np.uint16))
            value = half.view(np.float16).astype(np.float32)
        else:
            value = np.ascontiguousarray(word).view(np.float32)
        value = np.abs(value) if found.absolute else value
        return -value if found.negate else value

    return read


def _dot_mixed(made: Instruction, reader: OperandReader, access: Access) -> Run:
    """v_dot4_i32_iu8: `neg` states which of the operands has a sign."""
    results, sources = reader.operands(made)
    signed = bool(made.fields["neg"] & 1), bool(made.fields["neg"] & 2)
    reads = [_raw(x, access) for x in sources[:2]]
    last = _integer(sources[2], access)
    write = access.vector_writer(results[0], False)
    return lambda w: write(w, dot(reads[0](w), reads[1](w), last(w).view(np.int32), 8, signed))


def _integer(found: Operand, access: Access) -> Read:
    if 128 <= found.code <= 208:
        fixed = np.full((1, 1), inline_constant(found.code, "i32"), np.uint32)
        return lambda w: fixed
    return _raw(found, access)


def _dot_halves(made: Instruction, reader: OperandReader, access: Access) -> Run:
    results, sources = reader.operands(made)
    reads = [_raw(x, access) for x in sources]
    write = access.vector_writer(results[0], False)

    def run(w: Waves) -> None:
        a, b = (
            np.ascontiguousarray(reads[i](w))[..., None].view(np.float16).astype(np.float32)
            for i in range(2)
        )
        total = np.ascontiguousarray(reads[2](w)).view(np.float32)
        for i in range(2):
            total = fma(a[..., i], b[..., i], total)
        write(w, total)

    return run


def _move_pair(made: Instruction, reader: OperandReader, access: Access) -> Run:
    """v_pk_mov_b32: a word of each source, selected by `op_sel`."""
    results, sources = reader.operands(made)
    reads = [access.reader(x, made) for x in sources]
    code = results[0].code

    def run(w: Waves) -> None:
        # The first element of the first source, and the second source's second.
        first, second = reads[0](w)[..., 0].copy(), reads[1](w)[..., 1].copy()
        w.write_vector(code, first)
        w.write_vector(code + 1, second)

    return run


def _fp8(made: Instruction, reader: OperandReader, access: Access) -> Run:
    kind = "fp8" if "fp8" in made.base else "bf8"
    form = FP8[reader.decoder.processor in ("gfx942", "gfx90a")][kind]
    results, sources = reader.operands(made)
    if made.base.startswith("v_cvt_pk_f32"):
        return _unpack_fp8(made, results[0], sources[0], access, form)
    if made.base.startswith("v_cvt_f32"):
        return _from_fp8(made, results[0], sources[0], access, form)
    if not made.base.startswith("v_cvt_pk_"):
        raise NotImplementedError(f"no semantics of {made.name}")
    reads = [access.reader(x, made) for x in sources]
    code, upper = results[0].code, made.fields["op_sel"] >> 3 & 1

    def run(w: Waves) -> None:
        low, high = (_to_fp8(read(w), form).view(np.uint8).astype(np.uint32) for read in reads)
        pair, old = low | high << 8, w.vector(code)
        if upper:
            w.write_vector(code, old & np.uint32(0xFFFF) | pair << 16)
        else:
            w.write_vector(code, old & np.uint32(0xFFFF0000) | pair)

    return run


def _to_fp8(value: Array, form: type) -> Array:
    """Rounded to nearest even; what is too large is the largest finite number."""
    largest = np.float32(ml_dtypes.finfo(form).max)
    limited = np.where(np.isnan(value), value, np.clip(value, -largest, largest))
    return np.ascontiguousarray(limited.astype(np.float32)).astype(form)


def _half_of(made: Instruction, source: Operand, access: Access) -> Read:
    """The word, with the selected half or byte lowest."""
    word = _raw(source, access)
    if made.sdwa is not None:
        select = source.select
        shift = 8 * select if select < 4 else 16 * (select - 4) if select < 6 else 0
    elif made.format == "VOP3":
        # The two lowest bits of `op_sel` number the byte, or the first of them the half.
        select = made.fields["op_sel"] & 3
        shift = 16 * (select & 1) if "pk" in made.base else 8 * ((select & 1) << 1 | select >> 1)
    else:
        shift = 0
    return lambda w: word(w) >> np.uint32(shift)


def _unpack_fp8(
    made: Instruction, result: Operand, source: Operand, access: Access, form: type
) -> Run:
    word = _half_of(made, source, access)

    def run(w: Waves) -> None:
        raw = word(w)
        for i in range(2):
            byte = np.ascontiguousarray((raw >> np.uint32(8 * i)).astype(np.uint8))
            w.write_vector(result.code + i, byte.view(form).astype(np.float32).view(np.uint32))

    return run


def _from_fp8(
    made: Instruction, result: Operand, source: Operand, access: Access, form: type
) -> Run:
    word = _half_of(made, source, access)

    def run(w: Waves) -> None:
        byte = np.ascontiguousarray(word(w).astype(np.uint8))
        w.write_vector(result.code, byte.view(form).astype(np.float32).view(np.uint32))

    return run

"""The instructions of the vector unit, elementwise ones and those with special operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tests.amd_emulator import floats, integers
from tests.amd_emulator.cross_lane import DPP_SOURCES, cross_lane
from tests.amd_emulator.decode import Instruction
from tests.amd_emulator.floats import Operation
from tests.amd_emulator.matrices import matrix_instruction
from tests.amd_emulator.operands import SDWA_WORD, VCC, Operand, OperandReader
from tests.amd_emulator.packed import packed_instruction
from tests.amd_emulator.state import Array, EmulatorError, Waves
from tests.amd_emulator.text import truth_table
from tests.amd_emulator.values import Access, Read, bits_of, raw_of

Run = Callable[[Waves], None]


@cache
def operations() -> dict[str, Operation]:
    """Elementwise operations by the names of instructions on CDNA."""
    return floats.float_operations() | integers.integer_operations()


def vector_instruction(made: Instruction, reader: OperandReader, access: Access) -> Run:
    """The function that executes a vector instruction.

    Raises:
        NotImplementedError: the emulator does not know its semantics.
    """
    if made.base == "v_nop":
        return lambda w: None
    if made.base.startswith(("v_mfma", "v_wmma")):
        return matrix_instruction(made, reader, access)
    special = cross_lane(made, reader, access) or packed_instruction(made, reader, access)
    if special is not None:
        return special
    results, sources = reader.operands(made)
    reads = [access.reader(x, made) for x in sources]
    if made.dpp is not None:
        return _with_dpp(made, reader, access, reads)
    if len(results) == 2:
        return _two_results(made, results, access, reads)
    if made.base in ("v_div_fmas_f32", "v_div_fmas_f64"):
        write = access.vector_writer(results[0], False)
        a, b, c = reads
        return lambda w: write(w, floats.div_fmas(a(w), b(w), c(w), w.mask(VCC)))
    if made.base == "v_swap_b32":
        return _swap(results[0], sources[1], reads)
    operation = _operation(made, sources)
    if made.base.startswith("v_bitop3"):
        operation = _bit_operation(truth_table(made.fields))
    if results[0].kind == "m":
        return _comparison(made, results[0], access, operation, reads)
    write = _result_writer(made, results[0], reader, access)
    return lambda w: write(w, operation(*(read(w) for read in reads)))


def _operation(made: Instruction, sources: list[Operand]) -> Operation:
    found = operations().get(made.base)
    if found is None:
        raise NotImplementedError(f"no semantics of {made.name}")
    clamps = made.fields.get("clamp", 0) or (made.sdwa or {}).get("clamp", 0)
    scale = made.fields.get("omod", 0) if made.format == "VOP3" else 0
    if not clamps and not scale:
        return found
    if made.base.startswith(("v_cmp", "v_cvt_i", "v_cvt_u")):
        return found
    kind = sources[0].kind
    if kind[0] in "ui":
        return _saturating(found, kind)
    factor = (1.0, 2.0, 4.0, 0.5)[scale]

    def run(*values: Array) -> Array:
        result = found(*values)
        result = result * result.dtype.type(factor)
        if clamps:
            # LLVM takes it for the larger of the result and 0.0, which is not -0.0.
            within = np.clip(result, 0, 1) + result.dtype.type(0)
            result = np.where(np.isnan(result), result.dtype.type(0), within)
        return result

    return run


def _saturating(found: Operation, kind: str) -> Operation:
    form: Any = np.dtype(f"{kind[0]}{bits_of(kind) // 8}").type

    def run(*values: Array) -> Array:
        wide = [v.astype(np.int64) for v in values]
        return integers.saturated(found(*wide), form)

    return run


def _bit_operation(table: int) -> Operation:
    """Any operation on bits, as a table whose index has the bits of a, b and c."""

    def run(a: Array, b: Array, c: Array) -> Array:
        found: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
        for i in range(8):
            if table >> i & 1:
                found |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        return found

    return run


def _zeroes_high(made: Instruction, reader: OperandReader) -> bool:
    """Whether a result of 16 bits clears the other half: CDNA's older instructions do."""
    old = made.name in reader.decoder.short_forms or "_legacy_" in made.name
    return reader.decoder.generation == "gfx9" and old


def _result_writer(
    made: Instruction, result: Operand, reader: OperandReader, access: Access
) -> Callable[[Waves, Array], None]:
    if made.sdwa is not None and made.sdwa["dst_sel"] != SDWA_WORD:
        return _sdwa_writer(made.sdwa, result)
    return access.vector_writer(result, _zeroes_high(made, reader))


def _sdwa_writer(fields: dict[str, int], result: Operand) -> Callable[[Waves, Array], None]:
    select, unused = fields["dst_sel"], fields["dst_unused"]
    byte = select < 4
    shift, size = (8 * select, 8) if byte else (16 * (select - 4), 16)
    keep = np.uint32(((1 << size) - 1) << shift)

    def write(w: Waves, value: Array) -> None:
        raw = raw_of(value, result.kind).astype(np.uint32)
        placed = (raw << np.uint32(shift)) & keep
        if unused == 2:
            placed = placed | w.vector(result.code) & ~keep
        elif unused == 1:
            left = np.uint32(32 - size)
            wide = ((raw << left).view(np.int32) >> np.int32(left)).view(np.uint32)
            placed = wide << np.uint32(shift)
        w.write_vector(result.code, placed)

    return write


def _comparison(
    made: Instruction, result: Operand, access: Access, operation: Operation, reads: list[Read]
) -> Run:
    write = access.mask_writer(result)
    updates_exec = made.base.startswith("v_cmpx")

    def run(w: Waves) -> None:
        mask = operation(*(read(w) for read in reads)) & w.active
        write(w, mask)
        if updates_exec:
            w.set_exec(mask)

    return run


def _swap(first: Operand, second: Operand, reads: list[Read]) -> Run:
    def run(w: Waves) -> None:
        a, b = (read(w).copy() for read in reads)
        w.write_vector(first.code, b)
        w.write_vector(second.code, a)

    return run


def _two_results(
    made: Instruction, results: list[Operand], access: Access, reads: list[Read]
) -> Run:
    write, write_mask = access.vector_writer(results[0], False), access.mask_writer(results[1])
    operation = _FLAGGED.get(made.base)
    if operation is None:
        raise NotImplementedError(f"no semantics of {made.name}")
    clamps = made.fields.get("clamp", 0)
    if clamps:
        raise NotImplementedError(f"no semantics of {made.name} with clamp")

    def run(w: Waves) -> None:
        value, flag = operation(*(read(w) for read in reads))
        write(w, value)
        write_mask(w, flag)

    return run


def _add_carry(a: Array, b: Array, carry: Array | int = 0) -> tuple[Array, Array]:
    wide = a.astype(np.uint64) + b.astype(np.uint64) + np.asarray(carry).astype(np.uint64)
    return wide.astype(np.uint32), wide > 0xFFFFFFFF


def _subtract_borrow(a: Array, b: Array, borrow: Array | int = 0) -> tuple[Array, Array]:
    wide = a.astype(np.int64) - b.astype(np.int64) - np.asarray(borrow).astype(np.int64)
    return (wide & 0xFFFFFFFF).astype(np.uint32), wide < 0


def _multiply_add(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    form = c.dtype
    product = a.astype(form) * b.astype(form)
    total = product + c
    if form == np.uint64:
        return total, total < c
    return total, ((product ^ total) & (c ^ total)) < 0


_FLAGGED: dict[str, Callable[..., tuple[Array, Array]]] = {
    "v_add_co_u32": _add_carry,
    "v_sub_co_u32": _subtract_borrow,
    "v_subrev_co_u32": lambda a, b: _subtract_borrow(b, a),
    "v_addc_co_u32": _add_carry,
    "v_subb_co_u32": _subtract_borrow,
    "v_subbrev_co_u32": lambda a, b, c: _subtract_borrow(b, a, c),
    "v_mad_u64_u32": _multiply_add,
    "v_mad_i64_i32": _multiply_add,
    "v_div_scale_f32": floats.div_scale,
    "v_div_scale_f64": floats.div_scale,
}


_EXCHANGING = ("v_subrev", "v_subbrev", "v_lshlrev", "v_lshrrev", "v_ashrrev")
"""Instructions that the hardware implements by exchanging their operands before it moves the first
between lanes, which no manual says."""


def _with_dpp(made: Instruction, reader: OperandReader, access: Access, reads: list[Read]) -> Run:
    """The first source comes from other lanes; a lane whose source does not exist is disabled, or
    reads zero."""
    assert made.dpp is not None
    if made.base.startswith(_EXCHANGING) and not made.base.endswith(("_f16", "_f32")):
        raise EmulatorError(f"{made.base} moves its second operand between lanes")
    fields = made.dpp
    lane = np.arange(reader.lanes)
    source, exists = DPP_SOURCES(fields["ctrl"], reader.lanes)
    enabled = (fields["row_mask"] >> (lane // 16) % 4 & 1).astype(bool)
    enabled &= (fields["bank_mask"] >> (lane % 16) // 4 & 1).astype(bool)
    results, sources = reader.operands(made)
    two = len(results) == 2
    operation: Callable[..., Any] = _FLAGGED[made.base] if two else _operation(made, sources)

    def run(w: Waves) -> None:
        active = w.active.copy()
        valid = exists & (active[:, source] | bool(fields["fi"]))
        values = [read(w) for read in reads]
        first = np.broadcast_to(values[0], active.shape)[:, source]
        values[0] = np.where(valid, first, first.dtype.type(0))
        writes = active & enabled & (valid | bool(fields["bound_ctrl"]))
        found = operation(*values)
        w.set_exec(writes)
        if two:
            access.vector_writer(results[0], False)(w, found[0])
            access.mask_writer(results[1])(w, found[1])
        elif results[0].kind == "m":
            access.mask_writer(results[0])(w, found)
        else:
            _result_writer(made, results[0], reader, access)(w, found)
        w.set_exec(active)

    return run

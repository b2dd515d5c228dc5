"""The instructions of the scalar unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.amd_emulator import integers
from tests.amd_emulator.decode import Instruction
from tests.amd_emulator.floats import (
    COMPARISONS,
    UNARY,
    fma,
    maximum,
    maximum_number,
    minimum,
    minimum_number,
    quiet,
    to_integer,
)
from tests.amd_emulator.operands import EXEC, OperandReader
from tests.amd_emulator.state import Array, EmulatorError, Waves
from tests.amd_emulator.values import Access

Run = Callable[[Waves], None]
_FLAGGED = Callable[..., tuple[Array, Array]]


def _add(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    return total, total < a


def _signed_add(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


def _signed_subtract(a: Array, b: Array) -> tuple[Array, Array]:
    total = a - b
    return total, ((a ^ b) & (a ^ total)) < 0


def _shift_add(count: int) -> _FLAGGED:
    def run(a: Array, b: Array) -> tuple[Array, Array]:
        wide = (a.astype(np.uint64) << np.uint64(count)) + b
        return wide.astype(np.uint32), wide > 0xFFFFFFFF

    return run


# Results and the condition (SCC).
_WITH_CONDITION: dict[str, _FLAGGED] = {
    "s_add_u32": _add,
    "s_sub_u32": lambda a, b: (a - b, a < b),
    "s_add_i32": _signed_add,
    "s_sub_i32": _signed_subtract,
    "s_min_u32": lambda a, b: (np.minimum(a, b), a < b),
    "s_min_i32": lambda a, b: (np.minimum(a, b), a < b),
    "s_max_u32": lambda a, b: (np.maximum(a, b), a > b),
    "s_max_i32": lambda a, b: (np.maximum(a, b), a > b),
    **{f"s_lshl{n}_add_u32": _shift_add(n) for n in (1, 2, 3, 4)},
}

# The condition is whether the result is not zero.
_TESTED: dict[str, Callable[..., Array]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "not": np.invert,
    "lshl": integers.shift_left,
    "lshr": integers.shift_right,
    "ashr": integers.shift_right,
    "bfe": integers.scalar_bit_field,
    "abs": np.abs,
    "wqm": lambda a: a,
}
_NAMED_TESTED: dict[str, Callable[..., Array]] = {
    "s_absdiff_i32": lambda a, b: np.abs(a - b),
    "s_bcnt0_i32_b32": lambda a: integers.population(~a),
    "s_bcnt0_i32_b64": lambda a: integers.population(~a),
    "s_bcnt1_i32_b32": integers.population,
    "s_bcnt1_i32_b64": integers.population,
}


def _pack(a: Array, b: Array, first: int, second: int) -> Array:
    low, high = (x >> np.uint32(16 * i) & 0xFFFF for x, i in ((a, first), (b, second)))
    return low | high << np.uint32(16)


def _mask_of(count: Array, start: Array, form: Any) -> Array:
    size = np.dtype(form).itemsize * 8 - 1
    one = form(1)
    return ((one << (count & size).astype(form)) - one) << (start & size).astype(form)


# The condition stays.
_PLAIN: dict[str, Callable[..., Array]] = {
    "s_mov_b32": lambda a: a,
    "s_mov_b64": lambda a: a,
    "s_brev_b32": integers.reversed_bits,
    "s_brev_b64": integers.reversed_bits,
    "s_sext_i32_i8": lambda a: a.astype(np.int8).astype(np.int32),
    "s_sext_i32_i16": lambda a: a.astype(np.int16).astype(np.int32),
    "s_flbit_i32": integers.sign_bits,
    "s_flbit_i32_b32": integers.leading_zeros,
    "s_flbit_i32_b64": integers.leading_zeros,
    "s_ff1_i32_b32": integers.trailing_zeros,
    "s_ff1_i32_b64": integers.trailing_zeros,
    "s_ff0_i32_b32": lambda a: integers.trailing_zeros(~a),
    "s_mul_i32": np.multiply,
    "s_mul_u64": np.multiply,
    "s_add_u64": np.add,
    "s_sub_u64": np.subtract,
    "s_mul_hi_u32": integers.high,
    "s_mul_hi_i32": integers.high,
    "s_bfm_b32": lambda a, b: _mask_of(a, b, np.uint32),
    "s_bfm_b64": lambda a, b: _mask_of(a, b, np.uint64),
    "s_pack_ll_b32_b16": lambda a, b: _pack(a, b, 0, 0),
    "s_pack_lh_b32_b16": lambda a, b: _pack(a, b, 0, 1),
    "s_pack_hh_b32_b16": lambda a, b: _pack(a, b, 1, 1),
    "s_pack_hl_b32_b16": lambda a, b: _pack(a, b, 1, 0),
    **{f"s_add_{kind}": np.add for kind in ("f16", "f32")},
    **{f"s_sub_{kind}": np.subtract for kind in ("f16", "f32")},
    **{f"s_mul_{kind}": np.multiply for kind in ("f16", "f32")},
    **{f"s_min_{kind}": minimum_number for kind in ("f16", "f32")},
    **{f"s_max_{kind}": maximum_number for kind in ("f16", "f32")},
    **{f"s_fmac_{kind}": fma for kind in ("f16", "f32")},
    **{f"s_{name}_f32": fma for name in ("fmaak", "fmamk")},
    **{
        f"s_{name}_{kind}": UNARY[name]
        for name in ("ceil", "floor", "trunc", "rndne")
        for kind in ("f16", "f32")
    },
    **{f"s_minimum_{kind}": minimum for kind in ("f16", "f32")},
    **{f"s_maximum_{kind}": maximum for kind in ("f16", "f32")},
    "s_cvt_f16_f32": lambda a: quiet(a.astype(np.float16)),
    "s_cvt_f32_f16": lambda a: quiet(a.astype(np.float32)),
    "s_cvt_hi_f32_f16": lambda a: quiet(
        (a >> 16).astype(np.uint16).view(np.float16).astype(np.float32)
    ),
    "s_cvt_f32_i32": lambda a: a.astype(np.float32),
    "s_cvt_f32_u32": lambda a: a.astype(np.float32),
    "s_cvt_i32_f32": lambda a: to_integer(a, np.int32),
    "s_cvt_u32_f32": lambda a: to_integer(a, np.uint32),
}
_EXEC_UPDATES: dict[str, Callable[[Array, Array], Array]] = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "andn2": lambda s, e: s & ~e,
    "orn2": lambda s, e: s | ~e,
    "andn1": lambda s, e: ~s & e,
}


def scalar_instruction(made: Instruction, reader: OperandReader, access: Access) -> Run:
    """The function that executes a SOP1, SOP2 or SOPC instruction.

    Raises:
        NotImplementedError: the emulator does not know its semantics.
    """
    base = made.base
    results, sources = reader.operands(made)
    reads = [access.reader(x, made) for x in sources]
    write = access.scalar_writer(results[0]) if results else None
    if base.startswith("s_cmp_"):
        return _compare(base, reads)
    if base.startswith("s_bitcmp"):
        expected = int(base[8])
        return _conditional(reads, lambda a, b: (a >> b.astype(a.dtype) & 1) == expected)
    if base.endswith(("saveexec_b32", "saveexec_b64", "wrexec_b32", "wrexec_b64")):
        return _update_exec(base, made.fields["sdst"], reads[0], reader.lanes)
    assert write is not None
    if base in ("s_cselect_b32", "s_cselect_b64"):
        return lambda w: write(w, np.where(w.scc[w.selected], reads[0](w), reads[1](w)))
    if base in ("s_addc_u32", "s_subb_u32"):
        return _with_carry(base, reads, write)
    if base in ("s_cmov_b32", "s_cmov_b64"):
        old = access.reader(results[0], made)
        return lambda w: write(w, np.where(w.scc[w.selected], reads[0](w), old(w)))
    if base.startswith("s_bitset"):
        old, one = access.reader(results[0], made), int(base[8])
        return lambda w: write(w, _with_bit(old(w), reads[0](w), one))
    if base in _PLAIN:
        plain = _PLAIN[base]
        return lambda w: write(w, plain(*(read(w) for read in reads)))
    if base in _WITH_CONDITION:
        return _flagged(_WITH_CONDITION[base], reads, write)
    tested = _NAMED_TESTED.get(base) or _TESTED.get(base.split("_")[1])
    if tested is None:
        raise NotImplementedError(f"no semantics of {made.name}")
    return _flagged(lambda *args: _and_test(tested(*args)), reads, write)


def _and_test(value: Array) -> tuple[Array, Array]:
    return value, value != 0


def _with_bit(old: Array, place: Array, one: int) -> Array:
    bit = np.uint32(1) << (place & 31)
    return old | bit if one else old & ~bit


def _flagged(operation: _FLAGGED, reads: list[Any], write: Any) -> Run:
    def run(w: Waves) -> None:
        value, condition = operation(*(read(w) for read in reads))
        write(w, value)
        w.scc[w.selected] = condition

    return run


def _conditional(reads: list[Any], operation: Callable[..., Array]) -> Run:
    def run(w: Waves) -> None:
        w.scc[w.selected] = operation(*(read(w) for read in reads))

    return run


def _compare(base: str, reads: list[Any]) -> Run:
    _, _, what, kind = base.split("_")
    table = COMPARISONS if kind[0] == "f" else integers.SCALAR_COMPARISONS
    return _conditional(reads, table[what])


def _with_carry(base: str, reads: list[Any], write: Any) -> Run:
    def run(w: Waves) -> None:
        a, b = (read(w).astype(np.int64) for read in reads)
        carry = w.scc[w.selected].astype(np.int64)
        wide = a + b + carry if base == "s_addc_u32" else a - b - carry
        write(w, (wide & 0xFFFFFFFF).astype(np.uint32))
        w.scc[w.selected] = (wide > 0xFFFFFFFF) | (wide < 0)

    return run


def _update_exec(base: str, place: int, read: Any, lanes: int) -> Run:
    update = _EXEC_UPDATES[base.split("_")[1]]
    writes_back = "wrexec" in base
    words = lanes // 32

    def exec_of(w: Waves) -> Array:
        low = w.scalar(EXEC)
        if words == 1:
            return low.copy()
        return low.astype(np.uint64) | w.scalar(EXEC + 1).astype(np.uint64) << 32

    def put(w: Waves, code: int, value: Array) -> None:
        for i in range(words):
            w.write_scalar(code + i, (value >> value.dtype.type(32 * i)).astype(np.uint32))

    def run(w: Waves) -> None:
        before = exec_of(w)
        after = update(read(w), before)
        put(w, EXEC, after)
        put(w, place, after if writes_back else before)
        w.scc[w.selected] = after != 0

    return run


def immediate_instruction(made: Instruction, access: Access) -> Run:
    """The function that executes a SOPK instruction.

    Raises:
        NotImplementedError: the emulator does not know its semantics.
    """
    base, place = made.base, made.fields["sdst"]
    value = np.int32((made.fields["simm16"] ^ 0x8000) - 0x8000)
    if base == "s_movk_i32":
        fixed = np.array([value]).view(np.uint32)
        return lambda w: w.write_scalar(place, fixed)
    if base == "s_cmovk_i32":
        return lambda w: w.write_scalar(
            place, np.where(w.scc[w.selected], np.uint32(value & 0xFFFFFFFF), w.scalar(place))
        )
    if base == "s_mulk_i32":
        return lambda w: w.write_scalar(place, (w.scalar(place).view(np.int32) * value).view("u4"))
    if base == "s_addk_i32":

        def add(w: Waves) -> None:
            total, overflow = _signed_add(w.scalar(place).view(np.int32), np.array([value]))
            w.write_scalar(place, total.view(np.uint32))
            w.scc[w.selected] = overflow

        return add
    if base.startswith("s_cmpk_"):
        return _compare_immediate(made)
    if base == "s_setreg_imm32_b32" or base == "s_setreg_b32":
        raise EmulatorError(f"{made.name}: the mode of floats does not change in our code")
    raise NotImplementedError(f"no semantics of {made.name}")


def _compare_immediate(made: Instruction) -> Run:
    _, _, what, kind = made.base.split("_")
    place, number = made.fields["sdst"], made.fields["simm16"]
    compare = integers.SCALAR_COMPARISONS[what]
    form = np.int32 if kind == "i32" else np.uint32
    fixed = np.array([(number ^ 0x8000) - 0x8000 if kind == "i32" else number]).astype(form)

    def run(w: Waves) -> None:
        w.scc[w.selected] = compare(w.scalar(place).view(form), fixed)

    return run

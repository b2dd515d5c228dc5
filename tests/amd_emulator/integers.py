"""Arithmetic of integers and bits as the vector and scalar units do it, on NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.amd_emulator.floats import Operation
from tests.amd_emulator.state import Array

_COMPARISONS: dict[str, Operation] = {
    "f": lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), bool),
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ne": np.not_equal,
    "lg": np.not_equal,
    "ge": np.greater_equal,
    "t": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
}


def shift_left(a: Array, count: Array) -> Array:
    """a << count, of which the low bits count."""
    size = a.dtype.itemsize * 8
    return a << (count & (size - 1)).astype(a.dtype)


def shift_right(a: Array, count: Array) -> Array:
    """a >> count, of which the low bits count; arithmetic for signed types."""
    size = a.dtype.itemsize * 8
    return a >> (count & (size - 1)).astype(a.dtype)


def leading_zeros(a: Array) -> Array:
    """The number of zeros above the highest one, all ones if there is none."""
    size = a.dtype.itemsize * 8
    count = np.zeros(a.shape, np.int64)
    left = a.copy()
    for step in (32, 16, 8, 4, 2, 1):
        if step < size:
            empty = left >> a.dtype.type(size - step) == 0
            count += np.where(empty, step, 0)
            left = np.where(empty, left << a.dtype.type(step), left)
    return np.where(a == 0, -1, count).astype(np.int32)


def trailing_zeros(a: Array) -> Array:
    """The number of zeros below the lowest one, all ones if there is none."""
    lowest = a & (~a + a.dtype.type(1))
    return np.where(a == 0, -1, a.dtype.itemsize * 8 - 1 - leading_zeros(lowest)).astype(np.int32)


def sign_bits(a: Array) -> Array:
    """The number of bits that equal the sign, all ones if all do."""
    unsigned = a.view(np.uint32)
    return leading_zeros(np.where(a < 0, ~unsigned, unsigned))


def population(a: Array) -> Array:
    """The number of ones."""
    return np.bitwise_count(a).astype(np.int32)


def reversed_bits(a: Array) -> Array:
    """The bits in reverse order."""
    rows = np.unpackbits(np.ascontiguousarray(a)[..., None].view(np.uint8), axis=-1)
    from_lowest = rows.reshape(*rows.shape[:-1], -1, 8)[..., ::-1].reshape(rows.shape)
    flat = np.packbits(from_lowest[..., ::-1], axis=-1, bitorder="little")
    return np.ascontiguousarray(flat).view(a.dtype)[..., 0]


def bit_field(a: Array, start: Array, count: Array) -> Array:
    """The bits from `start` on, extended by sign for signed types."""
    start, count = (start & 31).astype(np.int64), (count & 31).astype(np.int64)
    wide = a.astype(np.int64) >> start
    if a.dtype == np.uint32:
        return (wide & (1 << count) - 1).astype(np.uint32)
    left = 64 - count
    return np.where(count == 0, 0, wide << left % 64 >> left % 64).astype(np.int32)


def scalar_bit_field(a: Array, control: Array) -> Array:
    """A bit field whose start and size are in one operand."""
    size = a.dtype.itemsize * 8
    start = (control & (size - 1)).astype(a.dtype)
    count = np.minimum(control >> 16 & 127, size).astype(np.int64)
    found = a >> start
    left = (size - count).clip(0, size - 1).astype(a.dtype)
    return np.where(count == 0, a.dtype.type(0), found << left >> left)


def high(a: Array, b: Array) -> Array:
    """The upper word of a product."""
    wide = np.int64 if a.dtype == np.int32 else np.uint64
    return (a.astype(wide) * b.astype(wide) >> wide(32)).astype(a.dtype)


def permute_bytes(a: Array, b: Array, select: Array) -> Array:
    """v_perm: each byte of the result is one of the eight of a and b, a sign, or a constant."""
    both = a.astype(np.uint64) << 32 | b.astype(np.uint64)
    found = np.zeros(np.broadcast_shapes(a.shape, b.shape, select.shape), np.uint64)
    for i in range(4):
        which = (select >> np.uint32(8 * i) & 255).astype(np.uint64)
        byte = both >> (which & 7) * 8 & 255
        sign = both >> ((which & 3) * 16 + 15) & 1
        byte = np.where(which >= 8, sign * 255, byte)
        byte = np.where(which == 12, 0, np.where(which > 12, 255, byte))
        found |= byte.astype(np.uint64) << np.uint64(8 * i)
    return found.astype(np.uint32)


def align(a: Array, b: Array, count: Array) -> Array:
    """v_alignbit: a word of the 64 bits of a and b."""
    both = a.astype(np.uint64) << 32 | b.astype(np.uint64)
    return (both >> (count & 31).astype(np.uint64)).astype(np.uint32)


def dot(a: Array, b: Array, c: Array, size: int, signed: tuple[bool, bool]) -> Array:
    """The sum of products of the integers of `size` bits in two words, added to c."""
    total = c.astype(np.int64)
    for i in range(0, 32, size):
        parts: list[Array] = []
        for word, has_sign in zip((a, b), signed, strict=True):
            part = (word >> np.uint32(i)).astype(np.int64) & (1 << size) - 1
            parts.append(part - ((part >> size - 1 & 1) << size) if has_sign else part)
        total = total + parts[0] * parts[1]
    return total.astype(c.dtype)


def _low_24(a: Array) -> Array:
    if a.dtype == np.uint32:
        return (a & np.uint32(0xFFFFFF)).astype(np.uint64)
    return (a.astype(np.int64) << 40) >> 40


def multiply_24(a: Array, b: Array) -> Array:
    """The product of the lower 24 bits."""
    return (_low_24(a) * _low_24(b)).astype(a.dtype)


def saturated(result: Array, form: Any) -> Array:
    """A wide result, clamped to the type."""
    limits = np.iinfo(form)
    return np.clip(result, limits.min, limits.max).astype(form)


_BINARY: dict[str, Operation] = {
    "add": np.add,
    "sub": np.subtract,
    "subrev": lambda a, b: b - a,
    "mul_lo": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "lshlrev": lambda n, a: shift_left(a, n),
    "lshrrev": lambda n, a: shift_right(a, n),
    "ashrrev": lambda n, a: shift_right(a, n),
}
_TERNARY: dict[str, Operation] = {
    "min3": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "max3": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "med3": lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)),
    "minmax": lambda a, b, c: np.maximum(np.minimum(a, b), c),
    "maxmin": lambda a, b, c: np.minimum(np.maximum(a, b), c),
    "mad": lambda a, b, c: a * b + c,
    "mad_legacy": lambda a, b, c: a * b + c,
}
_BITS: dict[str, Operation] = {
    "not": np.invert,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xnor": lambda a, b: ~(a ^ b),
}
_WORDS: dict[str, Operation] = {
    "v_mov_b32": lambda a: a,
    "v_mov_b64": lambda a: a,
    "v_mov_b16": lambda a: a,
    "v_accvgpr_read_b32": lambda a: a,
    "v_accvgpr_write_b32": lambda a: a,
    "v_accvgpr_mov_b32": lambda a: a,
    "v_bfrev_b32": reversed_bits,
    "v_ffbh_u32": leading_zeros,
    "v_ffbl_b32": trailing_zeros,
    "v_ffbh_i32": sign_bits,
    "v_mul_hi_u32": high,
    "v_mul_hi_i32": high,
    "v_mul_u32_u24": multiply_24,
    "v_mul_i32_i24": multiply_24,
    "v_mul_hi_u32_u24": lambda a, b: _low_24(a) * _low_24(b) >> np.uint64(32),
    "v_mul_hi_i32_i24": lambda a, b: _low_24(a) * _low_24(b) >> 32,
    "v_mad_u32_u24": lambda a, b, c: multiply_24(a, b) + c,
    "v_mad_i32_i24": lambda a, b, c: multiply_24(a, b) + c,
    "v_mad_u32_u16": lambda a, b, c: a.astype(np.uint32) * b + c,
    "v_mad_i32_i16": lambda a, b, c: a.astype(np.int32) * b + c,
    "v_bcnt_u32_b32": lambda a, b: population(a).astype(np.uint32) + b,
    "v_bfm_b32": lambda a, b: ((np.uint32(1) << (a & 31)) - np.uint32(1)) << (b & 31),
    "v_bfe_u32": bit_field,
    "v_bfe_i32": bit_field,
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_lshl_add_u32": lambda a, b, c: shift_left(a, b) + c,
    "v_add_lshl_u32": lambda a, b, c: shift_left(a + b, c),
    "v_lshl_add_u64": lambda a, b, c: (a << (b & 7).astype(np.uint64)) + c,
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_lshl_or_b32": lambda a, b, c: shift_left(a, b) | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xor3_b32": lambda a, b, c: a ^ b ^ c,
    "v_perm_b32": permute_bytes,
    "v_bitop3_b16": lambda a, b, c: a,  # by its table, in `vector`
    "v_bitop3_b32": lambda a, b, c: a,
    "v_alignbit_b32": align,
    "v_alignbyte_b32": lambda a, b, c: align(a, b, (c & 3) * 8),
    "v_cndmask_b32": lambda a, b, m: np.where(m, b, a),
    "v_cndmask_b16": lambda a, b, m: np.where(m, b, a),
    "v_cvt_pk_i16_i32": lambda a, b: (
        saturated(a, np.int16).view(np.uint16).astype(np.uint32)
        | saturated(b, np.int16).view(np.uint16).astype(np.uint32) << 16
    ),
    "v_cvt_pk_u16_u32": lambda a, b: (
        saturated(a, np.uint16).astype(np.uint32) | saturated(b, np.uint16).astype(np.uint32) << 16
    ),
    "v_add_u64": np.add,
    "v_sub_u64": np.subtract,
    "v_mul_lo_u64": np.multiply,
    "v_dot4c_i32_i8": lambda a, b, c: dot(a, b, c, 8, (True, True)),
    "v_dot4_i32_i8": lambda a, b, c: dot(a, b, c, 8, (True, True)),
    "v_dot4_u32_u8": lambda a, b, c: dot(a, b, c, 8, (False, False)),
    "v_dot8_i32_i4": lambda a, b, c: dot(a, b, c, 4, (True, True)),
}


def integer_operations() -> dict[str, Operation]:
    """Operations by the names of vector instructions."""
    found = dict(_WORDS)
    for size in ("16", "32", "64"):
        for letter in "uib":
            kind = f"{letter}{size}"
            for table in (_BINARY, _TERNARY):
                found |= {f"v_{name}_{kind}": run for name, run in table.items()}
            for name, run in _COMPARISONS.items():
                found[f"v_cmp_{name}_{kind}"] = found[f"v_cmpx_{name}_{kind}"] = run
        found |= {f"v_{name}_b{size}": run for name, run in _BITS.items()}
    for kind in ("u16", "i16", "b16"):
        found |= {f"v_pk_{name}_{kind}": run for name, run in _BINARY.items()}
        found[f"v_pk_mad_{kind}"] = _TERNARY["mad"]
    for name in ("v_mad_u32_u24", "v_mad_i32_i24", "v_bfe_u32", "v_bfe_i32"):
        found[name] = _WORDS[name]
    return found


SCALAR_COMPARISONS = _COMPARISONS

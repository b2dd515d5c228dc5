"""Accesses of the threads of a warp to tiles in shared memory.

The layout of a buffer maps an offset, in elements, to a position in the tile. An access composes
the layout of the tile with the inverse of the buffer's, which yields the offset of each register,
lane and warp; register bits that count successive offsets are combined into vector accesses of up
to 16 bytes, or into matrix loads and stores where the hardware has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.layout.linear import OFFSET, REGISTER, LinearLayout, dim_name
from tilewright.layout.matrix import MatrixAccess, matrix_access
from tilewright.lowering.emit import I8, LType, V, int_type, vector
from tilewright.lowering.simt.buffer_vectors import VECTOR_BYTES, bits_of_vectors, offsets_in
from tilewright.lowering.simt.kernel import Kernel
from tilewright.lowering.simt.words import note_words, row, words
from tilewright.lowering.types import memory_type


def layout_of(value: Value) -> LinearLayout:
    assert value.layout is not None, "buffers, and tiles moved to and from them, have layouts"
    return value.layout


class Move(NamedTuple):
    """The registers of one access, in memory order, and the offset of the first, in elements."""

    registers: tuple[int, ...]
    offset: V


def moves(
    kernel: Kernel,
    tile: LinearLayout,
    buffer: LinearLayout,
    vector_bits: Sequence[int],
) -> Iterator[Move]:
    """The accesses that move a tile to or from a buffer, without registers that hold copies.

    Args:
        vector_bits: the register bits that count the elements of one access, lowest first
            (`bits_of_vectors`).
    """
    offsets = offsets_in(tile, buffer)
    copies = tile.free_variables(REGISTER)
    within = sum(1 << bit for bit in vector_bits)
    starts = kernel.coordinates(offsets, dim_name(0), within | copies)
    for register in range(offsets.in_size(REGISTER)):
        if register & (within | copies):
            continue
        row = [register]
        for bit in vector_bits:
            row += [r | 1 << bit for r in row]
        yield Move(tuple(row), starts[register])


def element_type(value: Value) -> LType:
    return int_type(memory_type(value.type).bits)


def store_tile(kernel: Kernel, value: Value, buffer: LinearLayout, base: V) -> None:
    """Store a tile to a buffer at the address `base`."""
    store_registers(kernel, kernel.env[value], value.type, layout_of(value), buffer, base)


def store_registers(
    kernel: Kernel,
    values: Sequence[V],
    type: ir.Type,
    tile: LinearLayout,
    buffer: LinearLayout,
    base: V,
) -> None:
    """Store elements of `type`, which registers hold in the layout `tile`, to a buffer."""
    b, element = kernel.b, int_type(memory_type(type).bits)
    holder = kernel.is_first_holder(tile)
    if holder is None and kernel.hw.stores_matrices:
        matrices = matrices_of(tile, buffer, element.bits)
        if matrices is not None:
            store_by_matrices(kernel, matrices, base, values, type)
            return
    with kernel.only_if(holder):
        vectors = bits_of_vectors(tile, buffer, VECTOR_BYTES * 8 // element.bits)
        for registers, offset in moves(kernel, tile, buffer, vectors):
            joined = row(b, [values[r] for r in registers], type)
            b.store(joined, b.gep(element, base, offset), align=len(registers) * element.bits // 8)


def load_rows(
    kernel: Kernel, tile: LinearLayout, buffer: LinearLayout, base: V, element: LType
) -> dict[int, V]:
    """The elements of a thread by register, loaded as vectors."""
    b = kernel.b
    result: dict[int, V] = {}
    vectors = bits_of_vectors(tile, buffer, VECTOR_BYTES * 8 // element.bits)
    for registers, offset in moves(kernel, tile, buffer, vectors):
        place = b.gep(element, base, offset)
        if len(registers) == 1:
            result[registers[0]] = b.load(element, place)
            continue
        kind = vector(element, len(registers))
        loaded = b.load(kind, place, align=len(registers) * element.bits // 8)
        elements = [b.extract(loaded, i) for i in range(len(registers))]
        if element.bits == I8.bits:
            note_words(b, loaded, elements)
        result |= dict(zip(registers, elements, strict=True))
    return result


class Matrices(NamedTuple):
    """The matrix loads or stores of a warp (`layout.matrix`), and whether they transpose."""

    access: MatrixAccess
    transposed: bool


def matrices_of(tile: LinearLayout, buffer: LinearLayout, bits: int) -> Matrices | None:
    """Matrix accesses of 8x8 units that move a tile from or to a buffer.

    None where there are none, or where they would move one untransposed matrix each, which is no
    better than an access of 32 bits by each thread.
    """
    if tile.free_variables(REGISTER):
        return None
    for transposed in (False, True):
        access = matrix_access(tile, buffer, bits, transposed=transposed)
        if access is not None and (transposed or access.width > 1):
            return Matrices(access, transposed)
    return None


def store_by_matrices(
    kernel: Kernel, stores: Matrices, base: V, values: Sequence[V], type: ir.Type
) -> None:
    """Store elements of `type` to a buffer at the address `base`."""
    b, (access, transposed) = kernel.b, stores
    element = int_type(memory_type(type).bits)
    starts = kernel.coordinates(access.rows, OFFSET)
    for start, operands in zip(starts, access.registers, strict=True):
        packed = [words(b, [values[r] for r in registers], type) for registers in operands]
        place = b.gep(element, base, start)
        kernel.hw.store_matrices(b, place, [word for (word,) in packed], transposed)


def load_by_matrices(kernel: Kernel, loads: Matrices, base: V, element: LType) -> dict[int, V]:
    b = kernel.b
    access, transposed = loads
    result: dict[int, V] = {}
    starts = kernel.coordinates(access.rows, OFFSET)
    for start, operands in zip(starts, access.registers, strict=True):
        row = b.gep(element, base, start)
        words = kernel.hw.load_matrices(b, row, access.width, transposed)
        for word, registers in zip(words, operands, strict=True):
            if len(registers) == 1:
                result[registers[0]] = word
                continue
            units = b.bitcast(word, vector(element, len(registers)))
            result |= {r: b.extract(units, i) for i, r in enumerate(registers)}
    return result

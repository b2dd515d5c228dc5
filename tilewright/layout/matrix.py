"""The register layouts that `ldmatrix` and `stmatrix` can load from or store to shared memory.

The instructions move 8x8 matrices of 16-bit units, one, two or four at once. Lane 8m + i gives the
address of row i of matrix m: 16 bytes, aligned. Lane 4g + t then holds, in its 32-bit register m,
units 2t and 2t + 1 of row g of matrix m; with `.trans`, the units in column g of rows 2t and
2t + 1. (PTX ISA, "Warp-level matrix load instruction: ldmatrix", and stmatrix.)

Without `.trans`, the units need not be elements: a row is 16 bytes of elements of any size, of
which each lane receives 4 bytes. So a layout qualifies if the offset within a row is determined by
the position in a register word and by lane bits 0 and 1, in this order. With `.trans`, it is
determined by lane bits 2 to 4 and, for elements of 8 bits, of which a unit holds two, by the
position in half a word below them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.record import record
from tilewright.layout import gf2
from tilewright.layout.banks import Memory, lane_wavefronts
from tilewright.layout.linear import LANE, OFFSET, REGISTER, WARP, LinearLayout, log2

WARP_LANE_BITS = 5
ROW_BYTES = 16
WORD_BITS = 32
UNIT_BITS = 16


@record
class MatrixAccess:
    """The instructions that move all registers of a thread.

    Attributes:
        width: matrices per instruction: 1, 2 or 4.
        rows: (register, lane, warp) -> the offset, in elements, of the row whose address the lane
            supplies. `register` is the number of the instruction; only lanes below `8 * width`
            matter.
        registers: for each instruction and each of its 32-bit operands, the registers of the layout
            in that operand, from the lowest bits.
        wavefronts: the wavefronts of all instructions of a warp.
    """

    width: int
    rows: LinearLayout
    registers: tuple[tuple[tuple[int, ...], ...], ...]
    wavefronts: int


@record
class _Fit:
    """A qualifying layout: the registers of one operand, and the offsets of row bits 0 to 2."""

    packed: tuple[int, ...]
    rows: tuple[int, ...]


def matrix_access(
    registers: LinearLayout,
    shared: LinearLayout,
    element_bits: int,
    *,
    transposed: bool = False,
) -> MatrixAccess | None:
    """The `ldmatrix` (or `stmatrix`) instructions that move a tile between these layouts; None if
    they cannot.

    `transposed` selects `.trans`. Registers must not hold duplicates: see
    `families.without_duplicates`.
    """
    if element_bits not in (8, 16, 32) or registers.in_bits(LANE) != WARP_LANE_BITS:
        return None
    offsets = registers.select_ins(REGISTER, LANE, WARP).invert_and_compose(shared)
    fit = _fit_transposed(offsets, element_bits) if transposed else _fit(offsets, element_bits)
    if fit is None or gf2.rank(offsets.bases(REGISTER)) < offsets.in_bits(REGISTER):
        return None
    row = (1 << log2(ROW_BYTES * 8 // element_bits)) - 1
    others = _other_registers(offsets.bases(REGISTER), fit.packed, row)
    aligned = (*gf2.multiply(offsets.bases(REGISTER), others), *offsets.bases(WARP), *fit.rows)
    if any(offset & row for offset in aligned):
        return None
    return _access(offsets, fit, others, Memory(element_bits))


def _fit(offsets: LinearLayout, element_bits: int) -> _Fit | None:
    """The fit without `.trans`: the offset in a row is the position in a word, and lane bits 0 and
    1."""
    packing = log2(WORD_BITS // element_bits)
    lanes = offsets.bases(LANE)
    packed = gf2.solve_all(offsets.bases(REGISTER), gf2.units(packing))
    if packed is None or list(lanes[:2]) != gf2.units(2, packing):
        return None
    return _Fit(packed, lanes[2:])


def _fit_transposed(offsets: LinearLayout, element_bits: int) -> _Fit | None:
    """The fit with `.trans`: the offset in a row is the position in a unit, and lane bits 2 to 4;
    the row is another register bit and lane bits 0 and 1."""
    lanes, registers = offsets.bases(LANE), offsets.bases(REGISTER)
    unit = log2(UNIT_BITS) - log2(element_bits)
    if unit < 0 or list(lanes[2:]) != gf2.units(3, unit):
        return None
    within = gf2.solve_all(registers, gf2.units(unit))
    if within is None or len(within) == len(registers):
        return None
    row = gf2.extend(within, gf2.units(len(registers)))[0]
    return _Fit((*within, row), (gf2.apply(registers, row), *lanes[:2]))


def _other_registers(offsets: Sequence[int], packed: Sequence[int], row: int) -> tuple[int, ...]:
    """A complement of the packed register bits, chosen such that their offsets are aligned to
    rows."""
    images = gf2.multiply(offsets, packed)
    others: list[int] = []
    for unit in gf2.extend(packed, gf2.units(len(offsets))):
        within = gf2.solve(images, gf2.apply(offsets, unit) & row)
        others.append(unit ^ gf2.apply(packed, within or 0))
    return tuple(others)


def _access(
    offsets: LinearLayout, fit: _Fit, others: Sequence[int], memory: Memory
) -> MatrixAccess:
    """The instructions: two register bits select the matrix in an instruction, the others the
    instruction."""
    registers = offsets.bases(REGISTER)
    together = min(2, len(others))
    images = gf2.multiply(registers, others)
    rows = LinearLayout.from_columns(
        {
            REGISTER: images[together:],
            LANE: (*fit.rows, *images[:together]),
            WARP: offsets.bases(WARP),
        },
        {OFFSET: offsets.out_size(OFFSET)},
    )
    instructions = 1 << (len(others) - together)
    operands = [
        tuple(
            gf2.apply(others, number) ^ gf2.apply(fit.packed, i)
            for i in range(1 << len(fit.packed))
        )
        for number in range(1 << len(others))
    ]
    width = 1 << together
    vector = ROW_BYTES // memory.element_bytes
    return MatrixAccess(
        width=width,
        rows=rows,
        registers=tuple(tuple(operands[i * width : (i + 1) * width]) for i in range(instructions)),
        wavefronts=instructions * lane_wavefronts(rows, vector, memory),
    )

"""Ops on buffers in shared memory. A buffer's value is lowered to the address of its first byte.

The layout of a buffer maps an offset, in elements, to a position in the tile. An access composes
the layout of the tile with the inverse of the buffer's, which yields the offset of each register,
lane and warp; register bits that count successive offsets are combined into vector accesses of up
to 16 bytes, or into matrix loads where the hardware has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.layout.families import row_major
from tilewright.layout.linear import LANE, OFFSET, REGISTER, WARP, LinearLayout, dim_name
from tilewright.layout.matrix import MatrixAccess, matrix_access
from tilewright.lowering.emit import I8, I32, LType, V, const, int_type, vector
from tilewright.lowering.simt.convert import from_bits
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.shared_memory import VIEWS
from tilewright.lowering.simt.words import row, words
from tilewright.lowering.types import memory_type
from tilewright.ops.gpu import (
    Allocate,
    CommitCopies,
    CopyAsync,
    Fetch,
    PermuteBuffer,
    Share,
    Slot,
    WaitCopies,
)

VECTOR_BYTES = 16


def layout_of(value: Value) -> LinearLayout:
    assert value.layout is not None, "buffers, and tiles moved to and from them, have layouts"
    return value.layout


class Move(NamedTuple):
    """The registers of one access, in memory order, and the offset of the first, in elements."""

    registers: tuple[int, ...]
    offset: V


def moves(kernel: Kernel, tile: LinearLayout, buffer: LinearLayout, limit: int) -> Iterator[Move]:
    """The accesses that move a tile to or from a buffer, without registers that hold copies.

    Args:
        limit: the maximum number of elements of one access.
    """
    places = tile.select_ins(REGISTER, LANE, WARP).compose(buffer.invert())
    offsets = places.flatten_outs(dim_name(0))
    vector_bits = _vector_bits(offsets, limit)
    copies = tile.free_variables(REGISTER)
    within = sum(1 << bit for bit in vector_bits)
    starts = kernel.coordinates(offsets, dim_name(0))
    for register in range(offsets.in_size(REGISTER)):
        if register & (within | copies):
            continue
        row = [register]
        for bit in vector_bits:
            row += [r | 1 << bit for r in row]
        yield Move(tuple(row), starts[register])


def _vector_bits(offsets: LinearLayout, limit: int) -> list[int]:
    """The register bits that count successive offsets, lowest first.

    No other register, lane or warp bit may contribute to these low bits of the offset, so that
    every access is aligned to its size.
    """
    registers = offsets.bases(REGISTER)
    found: list[int] = []
    while 1 << (len(found) + 1) <= limit:
        unit = 1 << len(found)
        if unit not in registers or sum(bool(c & unit) for c in offsets.columns) != 1:
            break
        found.append(registers.index(unit))
    return found


def _element(value: Value) -> LType:
    return int_type(memory_type(value.type).bits)


@emits(Share)
def emit_share(kernel: Kernel, op: Share) -> None:
    base = kernel.shared.address(kernel.b, op)
    _store_tile(kernel, op.src, layout_of(op.result), base)
    if any(user.in_flight for user in _readers(op.result)):
        # A barrier alone does not order these writes before the reads of asynchronous products.
        kernel.hw.publish(kernel.b)
    kernel.env[op.result] = [base]


def _store_tile(kernel: Kernel, value: Value, buffer: LinearLayout, base: V) -> None:
    """Store a tile to a buffer at the address `base`."""
    b, element = kernel.b, _element(value)
    values, tile = kernel.env[value], layout_of(value)
    holder = kernel.is_first_holder(tile)
    if holder is None and kernel.hw.stores_matrices:
        matrices = _matrices(tile, buffer, element.bits)
        if matrices is not None:
            _store_matrices(kernel, matrices, base, value)
            return
    with kernel.only_if(holder):
        limit = VECTOR_BYTES * 8 // element.bits
        for registers, offset in moves(kernel, tile, buffer, limit):
            joined = row(b, [values[r] for r in registers], value.type)
            b.store(joined, b.gep(element, base, offset), align=len(registers) * element.bits // 8)


def _readers(buffer: Value) -> Iterator[Op]:
    """The ops that access the buffer's memory, directly or through views."""
    for user in buffer.users:
        if isinstance(user, VIEWS):
            yield from _readers(user.results[0])
        else:
            yield user


@emits(Fetch)
def emit_fetch(kernel: Kernel, op: Fetch) -> None:
    base = kernel.scalar(op.src)
    element = _element(op.result)
    tile, buffer = layout_of(op.result), layout_of(op.src)
    # A matrix load reads what other threads of the warp have copied.
    loads = kernel.hw.loads_matrices and not op.own
    matrices = _matrices(tile, buffer, element.bits) if loads else None
    found = (
        _load_rows(kernel, tile, buffer, base, element)
        if matrices is None
        else _load_matrices(kernel, matrices, base, element)
    )
    copies = tile.free_variables(REGISTER)
    bits: Registers = [found[r & ~copies] for r in range(tile.in_size(REGISTER))]
    kernel.bind(op, from_bits(kernel, op.result.type, bits))


def _load_rows(
    kernel: Kernel, tile: LinearLayout, buffer: LinearLayout, base: V, element: LType
) -> dict[int, V]:
    """The elements of a thread by register, loaded as vectors."""
    b = kernel.b
    found: dict[int, V] = {}
    limit = VECTOR_BYTES * 8 // element.bits
    for registers, offset in moves(kernel, tile, buffer, limit):
        place = b.gep(element, base, offset)
        if len(registers) == 1:
            found[registers[0]] = b.load(element, place)
            continue
        kind = vector(element, len(registers))
        loaded = b.load(kind, place, align=len(registers) * element.bits // 8)
        found |= {r: b.extract(loaded, i) for i, r in enumerate(registers)}
    return found


class _Matrices(NamedTuple):
    """The matrix loads or stores of a warp (`layout.matrix`), and whether they transpose."""

    access: MatrixAccess
    transposed: bool


def _matrices(tile: LinearLayout, buffer: LinearLayout, bits: int) -> _Matrices | None:
    """Matrix accesses of 8x8 units that move a tile from or to a buffer.

    None where there are none, or where they would move one untransposed matrix each, which is no
    better than an access of 32 bits by each thread.
    """
    if tile.free_variables(REGISTER):
        return None
    for transposed in (False, True):
        access = matrix_access(tile, buffer, bits, transposed=transposed)
        if access is not None and (transposed or access.width > 1):
            return _Matrices(access, transposed)
    return None


def _store_matrices(kernel: Kernel, stores: _Matrices, base: V, value: Value) -> None:
    b, (access, transposed) = kernel.b, stores
    values, element = kernel.env[value], _element(value)
    starts = kernel.coordinates(access.rows, OFFSET)
    for start, operands in zip(starts, access.registers, strict=True):
        packed = [words(b, [values[r] for r in registers], value.type) for registers in operands]
        place = b.gep(element, base, start)
        kernel.hw.store_matrices(b, place, [word for (word,) in packed], transposed)


def _load_matrices(kernel: Kernel, loads: _Matrices, base: V, element: LType) -> dict[int, V]:
    b = kernel.b
    access, transposed = loads
    found: dict[int, V] = {}
    starts = kernel.coordinates(access.rows, OFFSET)
    for start, operands in zip(starts, access.registers, strict=True):
        row = b.gep(element, base, start)
        words = kernel.hw.load_matrices(b, row, access.width, transposed)
        for word, registers in zip(words, operands, strict=True):
            if len(registers) == 1:
                found[registers[0]] = word
                continue
            units = b.bitcast(word, vector(element, len(registers)))
            found |= {r: b.extract(units, i) for i, r in enumerate(registers)}
    return found


@emits(Allocate)
def emit_allocate(kernel: Kernel, op: Allocate) -> None:
    kernel.env[op.result] = [kernel.shared.address(kernel.b, op)]


@emits(Slot)
def emit_slot(kernel: Kernel, op: Slot) -> None:
    b = kernel.b
    kind = op.results[0].type
    assert isinstance(kind, ir.Shared)
    start = b.mul(kernel.scalar(op.index), const(I32, kind.nbytes))
    kernel.env[op.results[0]] = [b.gep(I8, kernel.scalar(op.buffer), start)]


@emits(PermuteBuffer)
def emit_permute(kernel: Kernel, op: PermuteBuffer) -> None:
    kernel.env[op.results[0]] = kernel.env[op.buffer]


@emits(CopyAsync)
def emit_copy_async(kernel: Kernel, op: CopyAsync) -> None:
    b = kernel.b
    base = kernel.scalar(op.buffer)
    element = _element(op.buffer)
    info = kernel.infos[op.ptr]
    axis = max(row_major(info.rank), key=lambda a: info.contiguity[a])
    size = element.bits // 8
    limit = min(VECTOR_BYTES // size, info.vector_length(axis, size))
    if op.mask is not None:
        limit = min(limit, kernel.infos[op.mask].constancy[axis])
    pointers = kernel.env[op.ptr]
    masks = kernel.env[op.mask] if op.mask is not None else None
    tile = layout_of(op.ptr)
    with kernel.only_if(kernel.is_first_holder(tile)):
        for registers, offset in moves(kernel, tile, layout_of(op.buffer), limit):
            first = registers[0]
            mask = masks[first] if masks else None
            place = b.gep(element, base, offset)
            kernel.hw.copy_async(b, place, pointers[first], len(registers) * size, mask)


@emits(CommitCopies)
def emit_commit(kernel: Kernel, op: CommitCopies) -> None:
    kernel.hw.commit_copies(kernel.b)


@emits(WaitCopies)
def emit_wait(kernel: Kernel, op: WaitCopies) -> None:
    kernel.hw.wait_copies(kernel.b, op.pending)

"""Families of layouts, as functions of a tile's shape.

Distributed layouts map (register, lane, warp, block) to the tile. Each is defined by a list of
*factors*, which assign the next bits of one dimension to registers, lanes or warps. If a tile is
larger than the product of its factors, registers repeat the pattern; if it is smaller, the
remaining lanes and warps hold duplicates (bases of zero). Registers never hold duplicates.

An `order` lists dimensions from the fastest, so (1, 0) is row-major. Matrices are the last two
dimensions of a tile; dimensions before them are batches.

The fragments of matrix instructions are those of the PTX ISA, "Warp Level Matrix Instructions" and
"Asynchronous Warpgroup Level Matrix Instructions". There a lane is `4 * groupID +
threadID_in_group`; here these are lane bits 2 to 4 and 0 to 1. Those of AMD's matrix cores (MFMA
and WMMA) are in AMD's instruction set reference guides of CDNA3, RDNA3 and RDNA4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from tilewright.layout import gf2
from tilewright.layout.linear import (
    HARDWARE,
    LANE,
    OFFSET,
    REGISTER,
    WARP,
    LinearLayout,
    dim_name,
    log2,
)
from tilewright.layout.shape import drop_dim, reorder_bits

WARPS_PER_GROUP = 4
CHUNK_BITS = 128  # of the widest access of a thread to shared memory


class Factor(NamedTuple):
    """Assigns the next log2(size) bits of dimension `dim` to an input; None for duplicates."""

    in_name: str
    dim: int | None
    size: int


def row_major(rank: int) -> tuple[int, ...]:
    """The order in which the last dimension is the fastest: (rank - 1, …, 1, 0)."""
    return tuple(reversed(range(rank)))


def distributed(
    shape: Sequence[int], factors: Iterable[Factor], order: Sequence[int]
) -> LinearLayout:
    """The layout of these factors, the lowest first, with registers repeated in `order`."""
    extents = [log2(size) for size in shape]
    starts = [sum(extents[dim + 1 :]) for dim in range(len(shape))]
    used = [0] * len(shape)
    columns: dict[str, list[int]] = {name: [] for name in HARDWARE}

    def take(in_name: str, dim: int) -> None:
        fits = used[dim] < extents[dim]
        if fits or in_name != REGISTER:
            columns[in_name].append(1 << (starts[dim] + used[dim]) if fits else 0)
        used[dim] += 1

    for in_name, dim, size in factors:
        for _ in range(log2(size)):
            if dim is None:
                columns[in_name].append(0)
            else:
                take(in_name, dim)
    for dim in order:
        while used[dim] < extents[dim]:
            take(REGISTER, dim)
    sizes = {dim_name(dim): size for dim, size in enumerate(shape)}
    return LinearLayout.from_columns(columns, sizes)


def _check_order(shape: Sequence[int], order: Sequence[int]) -> None:
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"order {tuple(order)} must list the dimensions of {tuple(shape)}")


def _check_rank(shape: Sequence[int], per_dim: Sequence[int], what: str) -> None:
    if len(per_dim) != len(shape):
        raise ValueError(f"{what} {tuple(per_dim)} must have one entry per dimension of {shape}")


def blocked(
    shape: Sequence[int],
    registers_per_thread: Sequence[int],
    lanes_per_warp: Sequence[int],
    warps: Sequence[int],
    order: Sequence[int],
) -> LinearLayout:
    """Rectangles in rectangles: registers within lanes within warps, each laid out in `order`.

    `blocked((4, 4), (1, 2), (4, 1), (1, 2), (1, 0))`, shown as lane.register of warps a and b:

        a0.0 a0.1 b0.0 b0.1
        a1.0 a1.1 b1.0 b1.1
        a2.0 a2.1 b2.0 b2.1
        a3.0 a3.1 b3.0 b3.1
    """
    _check_order(shape, order)
    grids = ((REGISTER, registers_per_thread), (LANE, lanes_per_warp), (WARP, warps))
    for in_name, sizes in grids:
        _check_rank(shape, sizes, in_name)
    factors = (Factor(in_name, dim, sizes[dim]) for in_name, sizes in grids for dim in order)
    return distributed(shape, factors, order)


def thread_blocks(
    shape: Sequence[int],
    block: tuple[int, int],
    adjacent: int,
    lanes: tuple[int, int],
    warps: tuple[int, int],
) -> LinearLayout:
    """Results of products of which each thread reads its rows and columns in shared memory.

    A thread has `block` rows and columns: `adjacent` columns side by side, as many as an access
    has, and rows and further columns at a distance, so that lanes access adjacent ones, in other
    banks. Lanes that differ in their lowest bit have the same columns, those that differ in the
    second the same rows: NVIDIA's shared memory serves accesses of 16 bytes to a half of a warp at
    once where these pairs have equal addresses, and to a quarter otherwise.
    """
    m, n = _matrix_dims(shape)
    pair = min(2, lanes[0])
    factors = [
        Factor(REGISTER, n, adjacent),
        Factor(LANE, m, pair),
        Factor(LANE, n, lanes[1]),
        Factor(LANE, m, lanes[0] // pair),
        Factor(REGISTER, n, block[1] // adjacent),
        Factor(REGISTER, m, block[0]),
        Factor(WARP, m, warps[0]),
        Factor(WARP, n, warps[1]),
    ]
    return distributed(shape, factors, row_major(len(shape)))


def _warp_grid(
    warps: Sequence[int], order: Sequence[int], shared: int | None = None
) -> list[Factor]:
    """Warps over a grid; those that differ only along dimension `shared` hold duplicates."""
    return [Factor(WARP, None if dim == shared else dim, warps[dim]) for dim in order]


def _matrix_dims(shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) < 2:
        raise ValueError(f"a matrix has two dimensions or more, not {tuple(shape)}")
    return len(shape) - 2, len(shape) - 1


def _packed(element_bits: int) -> int:
    """The number of elements of an operand in a register, of 32 bits or of one element."""
    if element_bits not in (8, 16, 32, 64):
        raise ValueError(f"matrix operands have 8, 16, 32 or 64 bits, not {element_bits}")
    return max(1, 32 // element_bits)


def mma_m16n8(
    shape: Sequence[int], warps: Sequence[int], order: Sequence[int] | None = None
) -> LinearLayout:
    """Accumulators (and C) of `mma.sync.m16n8k*`: 16 x 8 per warp, 4 registers per lane.

    PTX ISA, "Matrix Fragments for mma.m16n8k16", C and D: register i of lane 4g + t is row
    `g + 8 * (i >> 1)`, column `2 * t + (i & 1)`. `warps` is the grid of warps over the tile, laid
    out in `order`.
    """
    order = row_major(len(shape)) if order is None else order
    _check_order(shape, order)
    _check_rank(shape, warps, "warps")
    m, n = _matrix_dims(shape)
    tile = [
        Factor(REGISTER, n, 2),
        Factor(LANE, n, 4),
        Factor(LANE, m, 8),
        Factor(REGISTER, m, 2),
    ]
    return distributed(shape, tile + _warp_grid(warps, order), row_major(len(shape)))


def _operand_a(m: int, k: int, element_bits: int) -> list[Factor]:
    """The fragment of A, 16 rows by 256 bits (fp64: 512), that mma.sync and wgmma share.

    Four registers: rows g, g + 8, g, g + 8, the last two in the upper half of k.
    """
    return [
        Factor(REGISTER, k, _packed(element_bits)),
        Factor(LANE, k, 4),
        Factor(LANE, m, 8),
        Factor(REGISTER, m, 2),
        Factor(REGISTER, k, 2),
    ]


def mma_operand_a(
    shape: Sequence[int],
    element_bits: int,
    warps: Sequence[int],
    order: Sequence[int] | None = None,
) -> LinearLayout:
    """Operand A, (…, m, k), of `mma.sync` m16n8k16 (16-bit), k32 (8-bit) or k8 (tf32, fp64).

    `warps` and `order` are those of the accumulators: warps in one row of the grid use the same
    rows of A and hold duplicates. PTX ISA, "Matrix Fragments for mma.m16n8k8 / k16 / k32", A.
    """
    order = row_major(len(shape)) if order is None else order
    _check_order(shape, order)
    _check_rank(shape, warps, "warps")
    m, k = _matrix_dims(shape)
    factors = _operand_a(m, k, element_bits) + _warp_grid(warps, order, shared=k)
    return distributed(shape, factors, row_major(len(shape)))


def mma_operand_b(
    shape: Sequence[int],
    element_bits: int,
    warps: Sequence[int],
    order: Sequence[int] | None = None,
) -> LinearLayout:
    """Operand B, (…, k, n), of the same instructions: two registers, lower and upper k.

    `warps` and `order` are those of the accumulators: warps in one column of the grid hold
    duplicates.
    PTX ISA, "Matrix Fragments for mma.m16n8k8 / k16 / k32", B. Registers repeat along k first.
    """
    order = row_major(len(shape)) if order is None else order
    _check_order(shape, order)
    _check_rank(shape, warps, "warps")
    k, n = _matrix_dims(shape)
    tile = [
        Factor(REGISTER, k, _packed(element_bits)),
        Factor(LANE, k, 4),
        Factor(LANE, n, 8),
        Factor(REGISTER, k, 2),
    ]
    repeat = (k, n, *row_major(len(shape))[2:])
    return distributed(shape, tile + _warp_grid(warps, order, shared=k), repeat)


def mma_scales_a(shape: Sequence[int], warps: Sequence[int]) -> LinearLayout:
    """Scales of A, (m, groups of k), for block-scaled `mma.sync`, a byte each.

    PTX ISA, "Block Scaling for mma.sync", thread-id-a 0: of the lanes 4g + t, that of t = 0 has the
    scales of row g, and that of t = 1 of row g + 8; the others hold copies. Registers repeat along
    k first, so that the scales of an instruction are adjacent bytes. `warps` is the grid of warps
    over the accumulators.
    """
    factors = [
        Factor(LANE, 0, 2),
        Factor(LANE, None, 2),
        Factor(LANE, 0, 8),
        Factor(WARP, None, warps[1]),
        Factor(WARP, 0, warps[0]),
    ]
    # The lane's lowest bit is bit 3 of the row.
    return reorder_bits(distributed(shape, factors, (1, 0)), 0, (3, 0, 1, 2))


def mma_scales_b(shape: Sequence[int], warps: Sequence[int]) -> LinearLayout:
    """Scales of B, (n, groups of k), as `mma_scales_a`: lane 4g + t has those of column g."""
    factors = [
        Factor(LANE, None, 4),
        Factor(LANE, 0, 8),
        Factor(WARP, 0, warps[1]),
        Factor(WARP, None, warps[0]),
    ]
    return distributed(shape, factors, (1, 0))


def _warpgroups(shape: Sequence[int], warps: int) -> tuple[int, int]:
    """The grid of warpgroups over a tile: at most one per 64 rows along m, the rest along n."""
    if warps % WARPS_PER_GROUP:
        raise ValueError(f"a warpgroup has 4 warps, and {warps} is not a multiple")
    if len(shape) != 2:
        raise ValueError(f"wgmma works on matrices, not on {tuple(shape)}")
    groups = warps // WARPS_PER_GROUP
    over_m = min(groups, max(1, shape[0] // 64))
    return over_m, groups // over_m


def wgmma_accumulator(shape: Sequence[int], warps: int, instr_n: int) -> LinearLayout:
    """Accumulators of `wgmma.mma_async.m64nNk*`, N = `instr_n`: 64 rows per warpgroup, 16 per warp.

    PTX ISA, "Register Fragments" of wgmma, accumulator D: register i of lane 4g + t of warp w is
    row `16 * w + g + 8 * (i >> 1 & 1)`, column `8 * (i >> 2) + 2 * t + (i & 1)`. Warpgroups are
    tiled over the rows, then over the columns; then registers repeat, columns first.
    """
    if not 8 <= instr_n <= 256:
        raise ValueError(f"wgmma has between 8 and 256 columns, not {instr_n}")
    over_m, over_n = _warpgroups(shape, warps)
    factors = [
        Factor(REGISTER, 1, 2),
        Factor(LANE, 1, 4),
        Factor(LANE, 0, 8),
        Factor(REGISTER, 0, 2),
        Factor(WARP, 0, WARPS_PER_GROUP),
        Factor(REGISTER, 1, instr_n // 8),
        Factor(WARP, 0, over_m),
        Factor(WARP, 1, over_n),
    ]
    return distributed(shape, factors, (1, 0))


def wgmma_operand_a(shape: Sequence[int], element_bits: int, warps: int) -> LinearLayout:
    """Operand A, (m, k), of wgmma from registers: m64k16 (16-bit), k32 (8-bit) or k8 (tf32).

    Each warp has the fragment of mma.sync for its 16 rows. Warpgroups are tiled over the rows as
    in `wgmma_accumulator`; those over the columns hold duplicates. PTX ISA, "Register Fragments" of
    wgmma, A.
    """
    over_m, over_n = _warpgroups(shape, warps)
    factors = [
        *_operand_a(0, 1, element_bits),
        Factor(WARP, 0, WARPS_PER_GROUP),
        Factor(WARP, 0, over_m),
        Factor(WARP, None, over_n),
    ]
    return distributed(shape, factors, (1, 0))


def tensor_memory(shape: Sequence[int], warps: int) -> LinearLayout:
    """A tile as `tcgen05.ld` and `tcgen05.st` move it from and to tensor memory.

    By shape 32x32b, row m is row m % 128 of tensor memory, of which warp w has rows
    32 (w % 4) + lane; register i of an instruction is column i. Warpgroups are tiled over blocks of
    128 rows, then over the columns, of which each has adjacent ones; then registers repeat over
    blocks. PTX ISA, "tcgen05 Data Movement Shape", and "tcgen05 Memory Layout", Layout D.

    Of 64 rows, warp w has 16, in the first half of its rows (Layout F). Shape 16x256b moves them as
    `wgmma` holds its results.
    """
    if warps % WARPS_PER_GROUP or len(shape) != 2 or (shape[0] != 64 and shape[0] % 128):
        raise ValueError(f"{warps} warps do not share tensor memory of {tuple(shape)}")
    groups = warps // WARPS_PER_GROUP
    if shape[0] == 64:
        return wgmma_accumulator(shape, warps, shape[1] // groups)
    over_m = min(groups, shape[0] // 128)
    over_n = groups // over_m
    factors = [
        Factor(LANE, 0, 32),
        Factor(WARP, 0, WARPS_PER_GROUP),
        Factor(REGISTER, 1, shape[1] // over_n),
        Factor(WARP, 0, over_m),
        Factor(WARP, 1, over_n),
    ]
    return distributed(shape, factors, (1, 0))


def tensor_scales(shape: Sequence[int], warps: int) -> LinearLayout:
    """Scales of block-scaled products, (rows, groups of k), as threads store them to tensor memory.

    Lane l has those of rows l, l + 32, …: registers first repeat over the four scales of a word,
    then over rows, then over words. All warps hold the same, as each of the four parts of tensor
    memory has copies. PTX ISA, "Scale Factor A Layout" and "Scale Factor B Layout".
    """
    rows, groups = shape
    lanes = min(rows, 32)
    factors = [
        Factor(LANE, 0, lanes),
        Factor(LANE, None, 32 // lanes),
        Factor(REGISTER, 1, min(groups, 4)),
        Factor(REGISTER, 0, rows // lanes),
        Factor(WARP, None, warps),
    ]
    return distributed(shape, factors, (1, 0))


def amd_operand(
    shape: Sequence[int],
    k: int,
    side: int,
    width: int,
    lanes: int,
    warps: Sequence[int],
    pack: int = 1,
) -> LinearLayout:
    """An operand of MFMA and WMMA, of which each lane holds a part of one row (A) or column (B).

    Lane l has row `l % side` and `width` elements along dimension `k` from `width * (l // side)`
    on; lanes beyond K, those of WMMA on RDNA3, hold copies. With `pack`, it has those of as many
    instructions next to each other, which is a permutation of K.

    Args:
        shape: of the operand, a matrix.
        k: the dimension along which products are summed, 1 for A and 0 for B.
        side: rows and columns of an instruction's result.
        width: elements of a lane for one instruction.
        lanes: of a warp.
        warps: the grid of warps over the result; those along K hold copies.
    """
    step = amd_step(side, width, lanes)
    factors = [
        Factor(REGISTER, k, width * pack),
        Factor(LANE, 1 - k, side),
        Factor(LANE, k, step // width),
        Factor(LANE, None, lanes // side * width // step),
    ]
    return distributed(shape, factors + _warp_grid(warps, (1, 0), shared=k), (k, 1 - k))


def amd_step(side: int, width: int, lanes: int) -> int:
    """Elements along K of one instruction: 16 at most for WMMA on RDNA3 (`width` 16)."""
    return width if lanes == 32 and width == WMMA_K else width * (lanes // side)


WMMA_K = 16


def amd_accumulator(
    shape: Sequence[int], side: int, group: int, lanes: int, warps: Sequence[int]
) -> LinearLayout:
    """Accumulators of MFMA and WMMA, of the transposed product: a lane holds a part of one row.

    With A and B exchanged, an instruction computes the transposed result, so that adjacent
    registers are adjacent columns. Lane l has row `l % side`; its registers are groups of `group`
    columns, those of the other lanes of the row in between:

        MFMA 32 x 32      group 4: column 8 * (r // 4) + 4 * (l // 32) + r % 4
        MFMA 16 x 16      group 4: column 4 * (l // 16) + r
        MFMA 16 x 16, f64 group 1: column 4 * r + l // 16
        WMMA on RDNA3     group 1: column 2 * r + l // 16
        WMMA on RDNA4     group 8: column 8 * (l // 16) + r
    """
    copies = lanes // side
    factors = [
        Factor(REGISTER, 1, group),
        Factor(LANE, 0, side),
        Factor(LANE, 1, copies),
        Factor(REGISTER, 1, side // (group * copies)),
    ]
    return distributed(shape, factors + _warp_grid(warps, (1, 0)), (1, 0))


def sliced(parent: LinearLayout, dim: int) -> LinearLayout:
    """The layout of the result of a reduction along `dim`: each thread that held an element of a
    row holds its result.

    Threads along `dim` hold duplicates, and so do registers: see `without_duplicates`.
    """
    return drop_dim(parent, dim)


def without_duplicates(layout: LinearLayout) -> LinearLayout:
    """The same layout without register bits whose elements other registers of the thread hold."""
    needed = [
        column
        for i, column in enumerate(layout.bases(REGISTER))
        if not layout.free_variables(REGISTER) >> i & 1
    ]
    columns = {name: layout.bases(name) for name, _ in layout.ins}
    return LinearLayout.from_columns(
        {**columns, REGISTER: needed}, {name: 1 << count for name, count in layout.outs}
    )


def without_idle_threads(layout: LinearLayout) -> LinearLayout:
    """The same tile, with registers distributed to lanes and warps that hold copies.

    The highest register bits go, so that neighbours stay in one thread. A layout that reaches each
    element once, or whose threads have one register, is returned as it is.
    """
    columns = {name: list(layout.bases(name)) for name, _ in layout.ins}
    for name in (LANE, WARP):
        free = layout.free_variables(name)
        for bit in range(len(columns[name])):
            if free >> bit & 1 and columns[REGISTER]:
                columns[name][bit] = columns[REGISTER].pop()
    return LinearLayout.from_columns(columns, {name: 1 << count for name, count in layout.outs})


def _shared(shape: Sequence[int], columns: Sequence[int]) -> LinearLayout:
    sizes = {dim_name(dim): size for dim, size in enumerate(shape)}
    return LinearLayout.from_columns({OFFSET: columns}, sizes)


def _dim_units(shape: Sequence[int]) -> list[list[int]]:
    """For each dimension, the flat index of each bit of its coordinate."""
    return [gf2.units(log2(size), log2(prod(shape[dim + 1 :]))) for dim, size in enumerate(shape)]


def shared_row_major(shape: Sequence[int], order: Sequence[int] | None = None) -> LinearLayout:
    """Unswizzled memory; `order` lists the dimensions from the fastest."""
    order = row_major(len(shape)) if order is None else order
    _check_order(shape, order)
    units = _dim_units(shape)
    return _shared(shape, [unit for dim in order for unit in units[dim]])


def shared_chunks(shape: Sequence[int], element_bits: int) -> LinearLayout:
    """Rows in which chunks of 16 bytes are swizzled by the row: chunk j of row i, of which there
    are n, is stored as j ^ i % n.

    An element each of the rows of a column are in one bank otherwise, if rows fill the banks.
    """
    strided, contiguous = len(shape) - 2, len(shape) - 1
    row, chunk = log2(shape[contiguous]), log2(CHUNK_BITS // element_bits)
    return _in_chunks(
        shape, (strided, contiguous), row, min(chunk, row), repeat=row - min(chunk, row)
    )


def shared_hopper(
    shape: Sequence[int], element_bits: int, swizzle_bytes: int, transposed: bool = False
) -> LinearLayout:
    """The shared-memory layouts of wgmma operands and TMA.

    The contiguous dimension is the last, or the one before it if `transposed`; the other of the
    two is the strided one. An *atom* has 8 consecutive rows (strided) of `swizzle_bytes`
    (contiguous; 16 for `swizzle_bytes` 0). Within it, 16-byte chunks are swizzled: chunk j of row i
    is stored as chunk

        128 bytes: j ^ i % 8      64 bytes: j ^ i // 2 % 4      32 bytes: j ^ i // 4 % 2

    and as chunk j without a swizzle. Atoms are ordered along the strided dimension, then along the
    contiguous one, then along the batches. PTX ISA, "Shared Memory Matrix Layout" of wgmma: K-major
    operands have k as contiguous dimension, MN-major ones m or n.
    """
    m, n = _matrix_dims(shape)
    if swizzle_bytes not in (0, 32, 64, 128):
        raise ValueError(f"hardware swizzles have 0, 32, 64 or 128 bytes, not {swizzle_bytes}")
    strided, contiguous = (n, m) if transposed else (m, n)
    row = (swizzle_bytes or 16) * 8 // element_bits
    chunk = log2(16 * 8 // element_bits)
    if shape[contiguous] < row or (shape[strided] < 8 and shape[contiguous] > row):
        raise ValueError(
            f"{tuple(shape)} does not consist of 8 rows of {row} elements along dim{contiguous}"
        )
    return _in_chunks(shape, (strided, contiguous), log2(row), chunk, repeat=3)


def shared_across(shape: Sequence[int], element_bits: int, contiguous: int) -> LinearLayout:
    """Operands of m16n8 instructions in rows across K, of 32 bytes or more, of elements of 32 or 64
    bits: threads load single elements, of 8 adjacent ones in each of 4 rows, without conflicts.

    In rows of up to 128 bytes, chunks of 32 bytes are swizzled, as four rows of them fill the
    banks: chunk j of row i is stored as

        128 bytes: j ^ i % 4      64 bytes: j ^ i // 2 % 2      32 bytes: j
    """
    row = min(log2(shape[contiguous]), log2(128 * 8 // element_bits))
    return _in_chunks(
        shape, (1 - contiguous, contiguous), row, log2(32 * 8 // element_bits), repeat=2
    )


def _in_chunks(
    shape: Sequence[int], dims: tuple[int, int], row: int, chunk: int, *, repeat: int
) -> LinearLayout:
    """Rows of 2 ** `row` elements, in which chunks of 2 ** `chunk` are combined with the row.

    Args:
        dims: that along which rows follow each other, and that along which they lie.
        repeat: log2 of the rows after which the swizzle of the longest ones repeats.
    """
    strided, contiguous = dims
    units = _dim_units(shape)
    phases = row - chunk
    rows = list(units[strided])
    for i in range(min(phases, len(rows) - (repeat - phases))):
        rows[repeat - phases + i] ^= units[contiguous][chunk + i]
    inner, outer = units[contiguous][:row], units[contiguous][row:]
    batches = [unit for dim in reversed(range(len(shape) - 2)) for unit in units[dim]]
    return _shared(shape, [*inner, *rows, *outer, *batches])

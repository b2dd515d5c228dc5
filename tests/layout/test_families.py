"""Each family against the formula of its documentation, thread by thread."""

from collections.abc import Callable, Iterator
from itertools import product

import pytest

from tilewright.layout.banks import wavefronts
from tilewright.layout.families import (
    blocked,
    mma_m16n8,
    mma_operand_a,
    mma_operand_b,
    mma_scales_a,
    mma_scales_b,
    row_major,
    shared_across,
    shared_chunks,
    shared_hopper,
    shared_row_major,
    sliced,
    tensor_memory,
    tensor_scales,
    thread_blocks,
    wgmma_accumulator,
    wgmma_operand_a,
    without_duplicates,
)
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout

GRIDS = [(1, 1), (4, 1), (1, 4), (2, 2), (4, 2)]
SHAPES = [(16, 8), (64, 64), (32, 128), (128, 16)]


def at(layout: LinearLayout, register: int, lane: int, warp: int) -> tuple[int, ...]:
    return tuple(layout.apply({REGISTER: register, LANE: lane, WARP: warp}).values())


def threads(layout: LinearLayout) -> Iterator[tuple[int, int, int]]:
    return product(
        range(layout.in_size(REGISTER)), range(layout.in_size(LANE)), range(layout.in_size(WARP))
    )


def check_invariants(layout: LinearLayout) -> None:
    """Every element is held, and no register holds a copy."""
    assert layout.is_surjective()
    assert layout.free_variables(REGISTER) == 0


def digits(index: int, sizes: tuple[int, ...], order: tuple[int, ...]) -> list[int]:
    """The coordinates of an index in a grid, the dimensions of `order` from the fastest."""
    result = [0] * len(sizes)
    for dim in order:
        result[dim] = index % sizes[dim]
        index //= sizes[dim]
    return result


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("shape", [(16, 16), (64, 32), (4, 4), (1, 128)])
@pytest.mark.parametrize(
    ("per_thread", "lanes", "warps"),
    [((1, 4), (8, 4), (2, 2)), ((2, 2), (32, 1), (1, 4)), ((1, 1), (4, 8), (4, 1))],
)
def test_blocked_layout(
    shape: tuple[int, ...],
    per_thread: tuple[int, ...],
    lanes: tuple[int, ...],
    warps: tuple[int, ...],
    order: tuple[int, ...],
) -> None:
    layout = blocked(shape, per_thread, lanes, warps, order)
    check_invariants(layout)
    held = tuple(min(p, s) for p, s in zip(per_thread, shape, strict=True))
    tile = tuple(p * n * w for p, n, w in zip(per_thread, lanes, warps, strict=True))
    repeats = tuple(max(1, s // t) for s, t in zip(shape, tile, strict=True))
    first = held[0] * held[1]
    assert layout.in_size(REGISTER) == first * repeats[0] * repeats[1]
    for register, lane, warp in threads(layout):
        r, big = digits(register % first, held, order), digits(register // first, repeats, order)
        n, w = digits(lane, lanes, order), digits(warp, warps, order)
        expected = tuple(
            (((big[d] * warps[d] + w[d]) * lanes[d] + n[d]) * per_thread[d] + r[d]) % shape[d]
            for d in range(2)
        )
        assert at(layout, register, lane, warp) == expected


def test_blocked_lanes_beyond_the_tile_hold_copies() -> None:
    layout = blocked((8,), (4,), (32,), (2,), (0,))
    assert str(layout) == "register[1 2] lane[4 0 0 0 0] warp[0] block[] -> dim0:8"
    assert layout.free_variables(LANE) == 0b11110
    assert layout.free_variables(WARP) == 1


def test_thread_blocks_access_adjacent_places_by_pairs_of_lanes() -> None:
    layout = thread_blocks((64, 64), (4, 4), 4, (4, 8), (4, 1))
    check_invariants(layout)
    assert layout.in_size(REGISTER) == 32
    places = [at(layout, 0, lane, 0) for lane in range(32)]
    assert sorted({m for m, _ in places}) == [0, 1, 2, 3]
    assert sorted({n for _, n in places}) == list(range(0, 32, 4))
    for lane in range(32):
        assert places[lane][1] == places[lane ^ 1][1]
        assert places[lane][0] == places[lane ^ 2][0]
    assert [at(layout, register, 0, 0)[1] for register in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("warps", GRIDS)
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_mma_accumulators(
    shape: tuple[int, int], warps: tuple[int, int], order: tuple[int, int]
) -> None:
    layout = mma_m16n8(shape, warps, order)
    check_invariants(layout)
    for i, lane, warp in threads(layout):
        group, thread = lane >> 2, lane % 4
        tile, i = divmod(i, 4)
        w = digits(warp, warps, order)
        across = max(1, shape[1] // (8 * warps[1]))
        row = group + 8 * (i >= 2) + 16 * (w[0] + warps[0] * (tile // across))
        column = thread * 2 + (i & 1) + 8 * (w[1] + warps[1] * (tile % across))
        assert at(layout, 4 * tile + i, lane, warp) == (row % shape[0], column % shape[1])


def a_fragment(i: int, lane: int, bits: int) -> tuple[int, int]:
    """Row and column of element a_i, from the PTX ISA's formulas for m16n8k8, k16 and k32."""
    group, thread = lane >> 2, lane % 4
    if bits == 32:  # tf32: a0 to a3
        return group + 8 * (i in (1, 3)), thread + 4 * (i >= 2)
    if bits == 16:
        row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
        return row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)
    row = group if 0 <= i < 4 or 8 <= i < 12 else group + 8
    return row, thread * 4 + (i & 3) + (16 if i >= 8 else 0)


def b_fragment(i: int, lane: int, bits: int) -> tuple[int, int]:
    """Row and column of element b_i, from the same formulas."""
    group, thread = lane >> 2, lane % 4
    if bits == 32:
        return thread + 4 * i, group
    if bits == 16:
        return thread * 2 + (i & 1) + (8 if i >= 2 else 0), group
    return thread * 4 + (i & 3) + (16 if i >= 4 else 0), group


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("warps", GRIDS)
def test_mma_operands(bits: int, warps: tuple[int, int]) -> None:
    k, per_k = 512 // bits, 256 // bits
    m, n = 32 * warps[0], 16 * warps[1]
    a, b = mma_operand_a((m, k), bits, warps), mma_operand_b((k, n), bits, warps)
    check_invariants(a)
    check_invariants(b)
    a_size, b_size = 16 * per_k // 32, 8 * per_k // 32
    for register, lane, warp in threads(a):
        tile, i = divmod(register, a_size)
        row, column = a_fragment(i, lane, bits)
        w = digits(warp, warps, (1, 0))[0]
        expected = row + 16 * (w + warps[0] * (tile // 2)), column + per_k * (tile % 2)
        assert at(a, register, lane, warp) == expected
    for register, lane, warp in threads(b):
        tile, i = divmod(register, b_size)
        row, column = b_fragment(i, lane, bits)
        w = digits(warp, warps, (1, 0))[1]
        expected = row + per_k * (tile % 2), column + 8 * (w + warps[1] * (tile // 2))
        assert at(b, register, lane, warp) == expected


@pytest.mark.parametrize("warps", GRIDS)
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_warps_hold_the_operands_of_their_accumulators(
    warps: tuple[int, int], order: tuple[int, int]
) -> None:
    shape, k = (64, 64), 32
    c = mma_m16n8(shape, warps, order)
    a, b = mma_operand_a((64, k), 16, warps, order), mma_operand_b((k, 64), 16, warps, order)

    def coordinates(layout: LinearLayout, warp: int, dim: int) -> set[int]:
        return {at(layout, r, lane, w)[dim] for r, lane, w in threads(layout) if w == warp}

    for warp in range(c.in_size(WARP)):
        assert coordinates(c, warp, 0) == coordinates(a, warp, 0)
        assert coordinates(c, warp, 1) == coordinates(b, warp, 1)


def test_batches_come_before_matrices() -> None:
    c = mma_m16n8((2, 16, 8), (2, 1, 1))
    flat = mma_m16n8((16, 8), (1, 1))
    for register, lane, warp in threads(c):
        assert at(c, register, lane, warp) == (warp, *at(flat, register, lane, 0))
    assert mma_operand_a((2, 16, 16), 16, (2, 1, 1)).bases(WARP) == (256,)
    assert mma_operand_b((2, 16, 8), 16, (2, 1, 1)).bases(WARP) == (128,)


@pytest.mark.parametrize("n", [8, 64, 256])
def test_wgmma_accumulators_of_one_warpgroup(n: int) -> None:
    layout = wgmma_accumulator((64, n), 4, n)
    assert layout.is_invertible()
    for i, lane, warp in threads(layout):
        row = 16 * warp + (lane >> 2) + 8 * (i >> 1 & 1)
        column = 8 * (i >> 2) + 2 * (lane % 4) + (i & 1)
        assert at(layout, i, lane, warp) == (row, column)


def test_wgmma_warpgroups_go_over_rows_then_columns() -> None:
    one = wgmma_accumulator((64, 32), 4, 32)
    grid = wgmma_accumulator((128, 128), 16, 32)  # 2 x 2 warpgroups, each twice over the columns
    for register, lane, warp in threads(grid):
        row, column = at(one, register % 16, lane, warp % 4)
        group = warp // 4
        expected = row + 64 * (group % 2), column + 32 * (group // 2 + 2 * (register // 16))
        assert at(grid, register, lane, warp) == expected
    narrow = wgmma_accumulator((64, 32), 8, 32)
    assert narrow.free_variables(WARP) == 0b100


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_wgmma_operand_a_has_the_fragments_of_mma(bits: int) -> None:
    k = 512 // bits
    layout = wgmma_operand_a((128, k), bits, 16)
    check_invariants(layout)
    size = 128 // bits
    for register, lane, warp in threads(layout):
        row, column = a_fragment(register % size, lane, bits)
        expected = row + 16 * (warp % 8), column + (256 // bits) * (register // size)
        assert at(layout, register, lane, warp) == expected
    assert layout.free_variables(WARP) == 0b1000


def test_slice_drops_a_dimension() -> None:
    parent = mma_m16n8((32, 32), (2, 2))
    for dim in range(2):
        result = sliced(parent, dim)
        for register, lane, warp in threads(parent):
            assert at(result, register, lane, warp) == (at(parent, register, lane, warp)[1 - dim],)
        lean = without_duplicates(result)
        check_invariants(lean)
        assert lean.in_size(REGISTER) == (2 if dim == 1 else 4)
        for name in (LANE, WARP):
            assert lean.bases(name) == result.bases(name)


def offsets(layout: LinearLayout) -> dict[tuple[int, ...], int]:
    """Coordinates -> offset."""
    assert layout.is_invertible()
    size = layout.in_size("offset")
    return {tuple(layout.apply({"offset": i}).values()): i for i in range(size)}


def test_shared_row_major() -> None:
    for (i, j), offset in offsets(shared_row_major((4, 8))).items():
        assert offset == i * 8 + j
    for (i, j, k), offset in offsets(shared_row_major((2, 4, 8), (1, 2, 0))).items():
        assert offset == i * 32 + k * 4 + j


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("shape", [(16, 32), (2, 32), (4, 64), (2, 16, 32), (16, 2)])
def test_shared_chunks_are_swizzled_by_the_row(shape: tuple[int, ...], bits: int) -> None:
    length = min(128 // bits, shape[-1])
    count = min(shape[-1] // length, shape[-2])
    for (*batch, i, j), offset in offsets(shared_chunks(shape, bits)).items():
        start = (sum(batch) * shape[-2] + i) * shape[-1]
        assert offset == start + (j ^ i % count * length)


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("transposed", [False, True])
def test_shared_hopper(bits: int, swizzle: int, transposed: bool) -> None:
    """The address of the documentation's tiling, with bits 4 to 6 xored by bits 7 to 9."""
    size, width = bits // 8, swizzle or 16
    strided, contiguous = 16, 2 * 128 // size
    shape = (contiguous, strided) if transposed else (strided, contiguous)
    mask = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]
    for place, offset in offsets(shared_hopper(shape, bits, swizzle, transposed)).items():
        c, row = (place[0], place[1]) if transposed else (place[1], place[0])
        panel, byte = divmod(c * size, width)
        address = panel * strided * width + row * width + byte
        address ^= (address >> 7 & mask) << 4
        assert offset * size == address
        if not panel:
            formula = {0: 0, 32: row // 4 % 2, 64: row // 2 % 4, 128: row % 8}[swizzle]
            assert offset * size % width // 16 == byte // 16 ^ formula


def test_shared_hopper_of_few_rows_is_one_panel_only() -> None:
    rows = offsets(shared_hopper((4, 64), 16, 128))
    assert all(at == i * 64 + (j // 8 ^ i) * 8 + j % 8 for (i, j), at in rows.items())
    with pytest.raises(ValueError, match="8 rows of 64 elements along dim1"):
        shared_hopper((4, 128), 16, 128)
    with pytest.raises(ValueError, match="8 rows of 64 elements along dim0"):
        shared_hopper((32, 64), 16, 128, transposed=True)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("row", [32, 64, 128, 256])
@pytest.mark.parametrize("contiguous", [0, 1])
def test_shared_across(bits: int, row: int, contiguous: int) -> None:
    """Rows of up to 128 bytes, with bits 5 and 6 of the address xored by bits 7 and 8."""
    size, width, length = bits // 8, min(row, 128), row * 8 // bits
    shape = (length, 16) if contiguous == 0 else (16, length)
    mask = {32: 0, 64: 1, 128: 3}[width]
    for place, offset in offsets(shared_across(shape, bits, contiguous)).items():
        panel, byte = divmod(place[contiguous] * size, width)
        address = panel * 16 * width + place[1 - contiguous] * width + byte
        assert offset * size == address ^ (address >> 7 & mask) << 5


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("row", [32, 64, 128, 256])
def test_operands_across_k_have_no_bank_conflicts(bits: int, row: int) -> None:
    length, least = row * 8 // bits, bits // 32
    of_b = mma_operand_b((16, length), bits, (1, 1))
    assert wavefronts(of_b, shared_across((16, length), bits, 1), bits, 1) == least
    if length >= 16:
        of_a = mma_operand_a((length, 16), bits, (1, 1))
        assert wavefronts(of_a, shared_across((length, 16), bits, 0), bits, 1) == least


def test_batches_are_outermost_in_memory() -> None:
    one = offsets(shared_hopper((16, 64), 16, 128))
    for (b, i, j), offset in offsets(shared_hopper((4, 16, 64), 16, 128)).items():
        assert offset == b * 1024 + one[i, j]


def test_row_major_order() -> None:
    assert row_major(3) == (2, 1, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: blocked((4, 4), (1,), (4, 8), (1, 1), (1, 0)), "register"),
        (lambda: blocked((4, 4), (1, 1), (4, 8), (1, 1), (1, 1)), "must list the dimensions"),
        (lambda: blocked((3, 4), (1, 1), (4, 8), (1, 1), (1, 0)), "power of two, not 3"),
        (lambda: mma_m16n8((16,), (1,)), "two dimensions or more"),
        (lambda: mma_operand_a((16, 16), 128, (1, 1)), "8, 16, 32 or 64 bits, not 128"),
        (lambda: wgmma_accumulator((64, 64), 2, 64), "2 is not a multiple"),
        (lambda: wgmma_accumulator((64, 64), 4, 512), "between 8 and 256"),
        (lambda: wgmma_accumulator((1, 64, 64), 4, 64), "works on matrices"),
        (lambda: shared_hopper((8, 64), 16, 16), "0, 32, 64 or 128 bytes"),
        (lambda: shared_hopper((8, 32), 16, 128), "8 rows of 64 elements"),
    ],
)
def test_misuse_is_rejected(call: Callable[[], LinearLayout], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
@pytest.mark.parametrize("warps", GRIDS)
def test_scales_of_block_scaled_mma(warps: tuple[int, int], groups: int) -> None:
    """PTX ISA, "Block Scaling for mma.sync", thread-id 0: lane 4g has the scales of row g of A and
    column g of B, lane 4g + 1 those of row g + 8 of A."""
    a = mma_scales_a((32 * warps[0], groups), warps)
    b = mma_scales_b((16 * warps[1], groups), warps)
    check_invariants(a)
    check_invariants(b)
    for register, lane, warp in threads(a):
        block, scale = divmod(register, groups)
        row = (lane >> 2) + 8 * (lane & 1) + 16 * (digits(warp, warps, (1, 0))[0])
        assert at(a, register, lane, warp) == (row + 16 * warps[0] * block, scale)
    for register, lane, warp in threads(b):
        block, scale = divmod(register, groups)
        column = (lane >> 2) + 8 * digits(warp, warps, (1, 0))[1]
        assert at(b, register, lane, warp) == (column + 8 * warps[1] * block, scale)


@pytest.mark.parametrize("warps", [4, 8, 16])
@pytest.mark.parametrize("shape", [(128, 16), (128, 64), (256, 32), (512, 128)])
def test_tensor_memory(shape: tuple[int, int], warps: int) -> None:
    """A warp reads the rows of its number modulo 4; a thread has adjacent columns of a row."""
    layout = tensor_memory(shape, warps)
    assert layout.is_invertible()
    over_m = min(warps // 4, shape[0] // 128)
    columns = shape[1] // (warps // 4 // over_m)
    for register, lane, warp in threads(layout):
        block, column = divmod(register, columns)
        group = warp // 4
        row = lane + 32 * (warp % 4) + 128 * (group % over_m + over_m * block)
        assert at(layout, register, lane, warp) == (row, column + columns * (group // over_m))


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("shape", [(128, 4), (64, 8), (256, 2), (16, 1)])
def test_tensor_scales(shape: tuple[int, int], warps: int) -> None:
    """A lane has rows of its number modulo 32; registers are the scales of a word, rows, words."""
    layout = tensor_scales(shape, warps)
    rows, groups = shape
    each, repeats = min(groups, 4), max(rows // 32, 1)
    assert layout.in_size("register") == repeats * groups
    for register, lane, warp in threads(layout):
        rest, scale = divmod(register, each)
        word, block = divmod(rest, repeats)
        assert at(layout, register, lane, warp) == (lane % rows + 32 * block, 4 * word + scale)

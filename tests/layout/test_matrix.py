"""ldmatrix, emulated by the PTX ISA, places elements as the layout describes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.layout.random_layouts import named
from tilewright.layout import gf2
from tilewright.layout.banks import wavefronts
from tilewright.layout.families import (
    blocked,
    mma_m16n8,
    mma_operand_a,
    mma_operand_b,
    shared_hopper,
    shared_row_major,
    sliced,
    wgmma_operand_a,
)
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.layout.matrix import MatrixAccess, matrix_access
from tilewright.layout.shape import reorder_bits
from tilewright.targets.nvidia.choose_mma import TURNED_ROWS


def check(
    access: MatrixAccess,
    registers: LinearLayout,
    shared: LinearLayout,
    bits: int,
    transposed: bool,
) -> None:
    """Load everything, unit by unit, and compare with the layout."""
    row, word, unit = 128 // bits, 32 // bits, 16 // bits
    moved: set[int] = set()
    for warp in range(registers.in_size(WARP)):
        for instruction, operands in enumerate(access.registers):
            assert len(operands) == access.width
            starts = [
                access.rows.apply({REGISTER: instruction, LANE: lane, WARP: warp})["offset"]
                for lane in range(8 * access.width)
            ]
            assert all(start % row == 0 for start in starts)
            for m, operand in enumerate(operands):
                assert len(operand) == word
                moved.update(operand)
                for lane in range(32):
                    g, t = divmod(lane, 4)
                    for i, register in enumerate(operand):
                        at = (
                            starts[8 * m + 2 * t + i // unit] + unit * g + i % unit
                            if transposed
                            else starts[8 * m + g] + word * t + i
                        )
                        want = registers.apply({REGISTER: register, LANE: lane, WARP: warp})
                        assert shared.apply({"offset": at}) == want
    assert len(moved) == registers.in_size(REGISTER)
    assert sum(len(o) for i in access.registers for o in i) == len(moved)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_operands_are_loaded_four_matrices_at_once(bits: int, swizzle: int) -> None:
    k = 2048 // bits
    a, b = mma_operand_a((64, k), bits, (2, 2)), mma_operand_b((k, 64), bits, (2, 2))
    rows, columns = (
        shared_hopper((64, k), bits, swizzle),
        shared_hopper((k, 64), bits, swizzle, transposed=True),
    )
    for registers, shared in ((a, rows), (b, columns)):
        access = matrix_access(registers, shared, bits)
        assert access is not None
        assert access.width == 4
        check(access, registers, shared, bits, False)
        if swizzle == 128:  # every matrix in one wavefront
            assert access.wavefronts == sum(map(len, access.registers))


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_transposed_operands_are_loaded_with_trans(swizzle: int) -> None:
    a, b = mma_operand_a((64, 64), 16, (2, 2)), mma_operand_b((64, 64), 16, (2, 2))
    rows, columns = (
        shared_hopper((64, 64), 16, swizzle),
        shared_hopper((64, 64), 16, swizzle, transposed=True),
    )
    for registers, shared in ((a, columns), (b, rows)):
        assert matrix_access(registers, shared, 16) is None
        access = matrix_access(registers, shared, 16, transposed=True)
        assert access is not None
        check(access, registers, shared, 16, True)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("warps", [4, 8])
def test_bytes_are_loaded_with_trans_if_two_rows_of_a_thread_are_adjacent(
    swizzle: int, warps: int
) -> None:
    shared = shared_hopper((128, 64), 8, swizzle, transposed=True)
    plain = wgmma_operand_a((128, 64), 8, warps)
    assert matrix_access(plain, shared, 8, transposed=True) is None
    registers = reorder_bits(plain, 0, TURNED_ROWS[1])
    access = matrix_access(registers, shared, 8, transposed=True)
    assert access is not None
    assert access.width == 4
    check(access, registers, shared, 8, True)
    if swizzle == 128:  # the swizzle does not know bit 3 along K, which differs between rows
        assert access.wavefronts == 2 * sum(map(len, access.registers))


@pytest.mark.parametrize("warps", [4, 8])
def test_turned_operands_of_32_bits_are_loaded_as_pairs_without_conflicts(warps: int) -> None:
    shared = shared_hopper((128, 32), 32, 128, transposed=True)
    registers = reorder_bits(wgmma_operand_a((128, 32), 32, warps), 0, TURNED_ROWS[4])
    assert registers.num_consecutive((0, 1)) == 2
    assert wavefronts(registers, shared, 32, 2) == 2  # as few as 64 bits of 32 lanes can take


def test_fewer_matrices_make_narrower_instructions() -> None:
    for shape, width in (((8, 8), 1), ((16, 8), 2), ((16, 16), 4)):
        registers, shared = mma_m16n8(shape, (1, 1)), shared_row_major(shape)
        if shape == (8, 8):
            registers = named((1, 2, 4, 8, 16, 32), (1, 5), (3, 3))
        access = matrix_access(registers, shared, 16)
        assert access is not None
        assert access.width == width
        check(access, registers, shared, 16, False)


def test_layouts_that_do_not_fit_are_rejected() -> None:
    memory = shared_row_major((64, 64))
    assert matrix_access(blocked((64, 64), (1, 8), (4, 8), (1, 1), (1, 0)), memory, 16) is None
    accumulators = mma_m16n8((64, 64), (2, 2))
    assert matrix_access(accumulators, memory, 16) is not None
    assert matrix_access(accumulators, memory, 32) is None  # two 32-bit elements in a row's lane
    assert matrix_access(accumulators, memory, 64) is None
    assert matrix_access(accumulators, memory, 32, transposed=True) is None
    assert matrix_access(sliced(accumulators, 0), shared_row_major((64,)), 16) is None
    # A swizzle finer than 16 bytes tears rows apart.
    torn = LinearLayout.from_columns(
        {"offset": [*gf2.units(6), 64 | 1, *gf2.units(5, 7)]}, {"dim0": 64, "dim1": 64}
    )
    assert matrix_access(accumulators, torn, 16) is None


@given(st.permutations(range(6)), st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_layouts_near_a_fragment_are_loaded_correctly_or_rejected(
    order: list[int], changed: int, other: int, transposed: bool
) -> None:
    """Registers in any order, one of them changed by another: what is accepted is right."""
    base = mma_operand_a((32, 64), 16, (1, 1)).select_ins(REGISTER, LANE, WARP)
    columns = [base.bases(REGISTER)[i] for i in order]
    if changed != other:
        columns[changed] ^= columns[other]
    registers = LinearLayout.from_columns(
        {REGISTER: columns, LANE: base.bases(LANE), WARP: ()}, {"dim0": 32, "dim1": 64}
    )
    shared = shared_hopper((32, 64), 16, 64, transposed=False)
    if transposed:
        shared = shared_hopper((32, 64), 16, 64, transposed=True)
    access = matrix_access(registers, shared, 16, transposed=transposed)
    assert transposed or access is not None
    if access is not None:
        check(access, registers, shared, 16, transposed)

"""Wavefronts: the ranks count what one sees by looking, and computed layouts reach the least."""

from collections import defaultdict
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.layout.random_layouts import conversions
from tilewright.layout.banks import Memory, lane_wavefronts, wavefronts
from tilewright.layout.convert import plan_shared
from tilewright.layout.families import (
    blocked,
    mma_operand_a,
    shared_chunks,
    shared_hopper,
    shared_row_major,
)
from tilewright.layout.linear import HARDWARE, LANE, OFFSET, LinearLayout
from tilewright.layout.shape import transpose


def counted(offsets: LinearLayout, vector: int, memory: Memory) -> int:
    """The wavefronts, by going through lanes, words and banks."""
    size = memory.element_bytes
    line = memory.banks * memory.bank_bytes
    together = line // max(vector * size, memory.bank_bytes)
    lanes = range(offsets.in_size(LANE))
    total = 0
    for first in lanes[::together]:
        words: dict[int, set[int]] = defaultdict(set)
        for lane in lanes[first : first + together]:
            start = offsets.apply({LANE: lane})[OFFSET] * size
            for byte in range(start, start + vector * size):
                word = byte // memory.bank_bytes
                words[word % memory.banks].add(word)
        total += max(map(len, words.values()))
    return total


def from_lanes(columns: tuple[int, ...], bits: int, vector: int) -> LinearLayout:
    """Offsets of lanes, in vectors."""
    aligned = [column * vector for column in columns]
    return LinearLayout.from_columns({LANE: aligned}, {OFFSET: vector << bits})


@pytest.mark.parametrize("element_bits", [8, 16, 32, 64])
@pytest.mark.parametrize("vector", [1, 2, 4])
def test_all_accesses_of_a_small_memory(element_bits: int, vector: int) -> None:
    """Two banks of two bytes: every linear access by four lanes of sixteen places."""
    memory = Memory(element_bits, banks=4, bank_bytes=2, max_vector_bytes=8)
    if vector * memory.element_bytes > 8:
        vector = 1
    seen: set[int] = set()
    for columns in product(range(16), repeat=2):
        offsets = from_lanes(columns, 4, vector)
        seen.add(lane_wavefronts(offsets, vector, memory))
        assert lane_wavefronts(offsets, vector, memory) == counted(offsets, vector, memory)
    assert len(seen) > 1 or vector * memory.element_bytes == 8


@settings(max_examples=200)
@given(
    st.tuples(*[st.integers(0, 1023)] * 5),
    st.sampled_from([8, 16, 32, 64]),
    st.sampled_from([1, 2, 4, 8, 16]),
)
def test_random_accesses_of_a_warp(columns: tuple[int, ...], bits: int, vector: int) -> None:
    memory = Memory(bits)
    vector = min(vector, 16 // memory.element_bytes)
    offsets = from_lanes(columns, 10, vector)
    assert lane_wavefronts(offsets, vector, memory) == counted(offsets, vector, memory)


def test_well_known_accesses() -> None:
    columns = blocked((32, 32), (1, 32), (32, 1), (1, 1), (1, 0))  # a row per lane
    rows = blocked((32, 32), (32, 1), (1, 32), (1, 1), (0, 1))  # a column per lane
    plain = shared_row_major((32, 32))
    swizzled = shared_hopper((32, 32), 32, 128)
    assert wavefronts(rows, plain, 32, 1) == 1
    assert wavefronts(columns, plain, 32, 1) == 32
    assert wavefronts(columns, swizzled, 32, 1) == 4  # chunks of four words move as one
    assert wavefronts(rows, swizzled, 32, 1) == 1
    chunks = shared_chunks((32, 32), 32)
    assert wavefronts(columns, chunks, 32, 1) == 4
    assert wavefronts(rows, chunks, 32, 1) == 1
    # 16 bytes a lane: four wavefronts are the least, for 512 bytes.
    vectors = blocked((32, 32), (1, 4), (32, 1), (1, 1), (1, 0))
    assert wavefronts(vectors, plain, 32, 4) == 32
    assert wavefronts(vectors, swizzled, 32, 4) == 4


def least(offsets: LinearLayout, vector: int, memory: Memory) -> int:
    """What no layout can do better: each group of lanes in one wavefront."""
    group = memory.banks * memory.bank_bytes // max(vector * memory.element_bytes, 4)
    return max(1, offsets.in_size(LANE) // group)


@settings(max_examples=300)
@given(conversions(9), st.sampled_from([8, 16, 32, 64]))
def test_computed_layouts_have_no_conflicts_where_both_sides_use_one_vector(
    pair: tuple[LinearLayout, LinearLayout], bits: int
) -> None:
    """The theorem of `swizzle.py`, for any two layouts of a tile; counted, not by rank."""
    memory = Memory(bits)
    found = plan_shared(pair[0].select_ins(*HARDWARE), pair[1].select_ins(*HARDWARE), memory)
    for access in (found.store, found.load):
        one = counted(access.offsets, access.vector, memory)
        assert access.wavefronts == one * len(access.vectors)
        if found.store_vector == found.load_vector:
            assert one == least(access.offsets, access.vector, memory)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_a_transpose_has_no_conflicts(bits: int) -> None:
    src = blocked((128, 128), (1, 16), (16, 2), (1, 4), (1, 0))
    found = plan_shared(src, transpose(src, (1, 0)), Memory(bits))
    for access in (found.store, found.load):
        assert counted(access.offsets, access.vector, Memory(bits)) == least(
            access.offsets, access.vector, Memory(bits)
        )


def test_both_sides_use_the_widest_vector_they_share() -> None:
    src = blocked((64, 64), (1, 8), (4, 8), (4, 1), (1, 0))
    same = blocked((64, 64), (1, 8), (8, 4), (2, 2), (1, 0))
    found = plan_shared(src, same, Memory(16))
    assert (found.store_vector, found.load_vector) == (8, 8)
    assert found.store_wavefronts == found.load_wavefronts == 64 * 64 * 2 // 128 // 4
    operand = plan_shared(src, mma_operand_a((64, 64), 16, (4, 1)), Memory(16))
    assert min(operand.store_vector, operand.load_vector) >= 2
    wide = plan_shared(src, same, Memory(16, max_vector_bytes=8))
    assert wide.store_vector == 4


def test_narrow_elements_contiguous_on_one_side_only_are_stored_contiguously() -> None:
    src = blocked((128, 128), (1, 16), (16, 2), (1, 4), (1, 0))
    found = plan_shared(src, transpose(src, (1, 0)), Memory(8))
    assert max(found.store_vector, found.load_vector) > min(found.store_vector, found.load_vector)

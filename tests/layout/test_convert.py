"""Executing a conversion plan puts into each register the element of the destination layout."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.layout.random_layouts import (
    conversions,
    execute,
    held,
    invertible_layouts,
    named,
    threads,
    warp_conversions,
)
from tilewright.layout.banks import Memory
from tilewright.layout.convert import (
    Identity,
    Plan,
    Registers,
    Shared,
    plan,
    plan_parts,
    plan_shared,
    register_sources,
)
from tilewright.layout.families import (
    blocked,
    mma_m16n8,
    mma_operand_a,
    sliced,
    wgmma_accumulator,
    wgmma_operand_a,
    without_duplicates,
)
from tilewright.layout.linear import BLOCK, HARDWARE, LANE, LinearLayout
from tilewright.layout.shape import transpose
from tilewright.layout.shuffles import Shuffles, plan_shuffles
from tilewright.passes.layout_rules import coalesced_within

BITS = st.sampled_from([8, 16, 32, 64])
Pair = tuple[LinearLayout, LinearLayout]


def check(found: Plan, src: LinearLayout, dst: LinearLayout) -> None:
    assert execute(found, src, held(src)) == held(dst)


@settings(max_examples=200)
@given(conversions(), BITS)
def test_plans_of_random_layouts_move_every_element(pair: Pair, bits: int) -> None:
    check(plan(*pair, bits), *pair)


@settings(max_examples=150)
@given(conversions(), BITS)
def test_shared_memory_serves_every_conversion(pair: Pair, bits: int) -> None:
    check(plan_shared(*pair, Memory(bits)), *pair)


@settings(max_examples=300)
@given(warp_conversions(), BITS)
def test_shuffles_serve_every_conversion_within_warps(pair: Pair, bits: int) -> None:
    found = plan_shuffles(*pair, bits)
    assert found is not None
    check(found, *pair)


def stays_in_warp(src: LinearLayout, dst: LinearLayout) -> bool:
    """Whether every warp has all it needs, by looking."""
    have: dict[tuple[int, int], set[int]] = {}
    for (_, warp, block), elements in held(src).items():
        have.setdefault((warp, block), set()).update(elements)
    return all(
        set(elements) <= have[warp, block] for (_, warp, block), elements in held(dst).items()
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("in_bits", [(1, 1, 1, 0), (2, 1, 0, 0), (1, 2, 0, 0), (0, 1, 2, 0)])
def test_all_conversions_of_a_tile_of_four_elements(in_bits: tuple[int, ...]) -> None:
    every = [named(columns, in_bits, (1, 1)) for columns in product(range(4), repeat=3)]
    every = [layout for layout in every if layout.is_surjective()]
    kinds: set[type] = set()
    for src, dst in product(every, repeat=2):
        found = plan(src, dst, 16)
        kinds.add(type(found))
        if isinstance(found, Identity | Registers):
            check(found, src, dst)
        check(plan_shared(src, dst, Memory(16)), src, dst)
        shuffles = plan_shuffles(src, dst, 16)
        assert (shuffles is not None) == stays_in_warp(src, dst)
        if shuffles is not None:
            check(shuffles, src, dst)
    assert Identity in kinds


def test_all_conversions_between_a_register_and_two_lanes() -> None:
    """By symmetry one source represents all sources that hold each element once."""
    src = named((1, 2, 4), (1, 2, 0, 0), (3,))
    for columns in product(range(8), repeat=3):
        dst = named(columns, (1, 2, 0, 0), (3,))
        found = plan_shuffles(src, dst, 32)
        assert found is not None
        check(found, src, dst)


# --- Which plan -----------------------------------------------------------------------------------


def test_equal_layouts_need_no_conversion() -> None:
    layout = blocked((64, 64), (1, 4), (4, 8), (4, 1), (1, 0))
    assert plan(layout, layout, 32) == Identity()


def test_accumulators_are_operands_of_the_next_product() -> None:
    """The registers of a product's result, converted to 16 bits, are those of an operand A."""
    warp = mma_m16n8((64, 64), (4, 1)), mma_operand_a((64, 64), 16, (4, 1))
    group = wgmma_accumulator((128, 64), 8, 64), wgmma_operand_a((128, 64), 16, 8)
    assert plan(*warp, 16) == plan(*group, 16) == Identity()


def test_registers_are_renumbered_where_threads_agree() -> None:
    rows = blocked((32, 32), (4, 4), (8, 4), (1, 1), (1, 0))
    columns = blocked((32, 32), (4, 4), (8, 4), (1, 1), (1, 0))
    order = (2, 3, 0, 1, 4)
    src = LinearLayout.from_columns({n: rows.bases(n) for n in HARDWARE}, {"dim0": 32, "dim1": 32})
    swapped = [src.bases("register")[i] for i in order[:4]]
    dst = LinearLayout.from_columns(
        {**{n: columns.bases(n) for n in HARDWARE}, "register": swapped},
        {"dim0": 32, "dim1": 32},
    )
    found = plan(src, dst, 32)
    assert isinstance(found, Registers)
    assert found.sources == tuple(r >> 2 | (r & 3) << 2 for r in range(16))
    check(found, src, dst)


@given(conversions())
def test_register_sources_exist_exactly_where_threads_hold_their_elements(pair: Pair) -> None:
    src, dst = (layout.select_ins(*HARDWARE) for layout in pair)
    found = register_sources(src, dst)
    have, want = held(src), held(dst)
    if found is not None:
        assert all(want[t] == [have[t][s] for s in found] for t in threads(dst))
    else:
        same = src.bases(LANE) == dst.bases(LANE) and src.bases("warp") == dst.bases("warp")
        assert not same or any(not set(want[t]) <= set(have[t]) for t in threads(dst))


def words_from_elsewhere(src: LinearLayout, dst: LinearLayout) -> int:
    """The most elements that a thread of the destination lacks."""
    have, want = held(src), held(dst)
    return max(len(set(want[t]) - set(have[t])) for t in threads(dst))


@given(invertible_layouts(), st.randoms())
def test_shuffles_are_as_few_as_words_that_must_move(src: LinearLayout, random: object) -> None:
    """No thread can receive more than one word in a shuffle; where lanes stay, that is reached."""
    src = src.select_ins("register", LANE, BLOCK, "warp")
    shape = [d.bits for d in reversed(src.outs)]
    columns = [*src.bases("register"), *src.bases(LANE)]
    random.shuffle(columns)  # pyright: ignore[reportAttributeAccessIssue]
    counts = [src.in_bits(name) for name in HARDWARE]
    dst = named([*columns, *src.bases("warp")], counts, shape)
    found = plan_shuffles(src, dst, 32)
    assert found is not None
    assert words_from_elsewhere(src, dst) <= found.shuffle_count <= dst.in_size("register")
    lanes = LinearLayout.identity1d(src.in_size(LANE), LANE, LANE)
    if found.source.bases(LANE) == lanes.columns:
        assert found.shuffle_count == words_from_elsewhere(src, dst)


def test_transposing_registers_and_lanes_leaves_the_diagonal_in_place() -> None:
    """8 lanes of 8 registers: 7 shuffles; with 16-bit pairs that stay together, 3 for 16."""
    src = blocked((8, 8), (1, 8), (8, 1), (1, 1), (1, 0))
    found = plan_shuffles(src, transpose(src, (1, 0)), 32)
    assert found is not None
    assert found.shuffle_count == 7
    pairs = blocked((4, 8), (1, 8), (4, 1), (1, 1), (1, 0))
    dst = blocked((4, 8), (4, 2), (1, 4), (1, 1), (1, 0))
    packed = plan_shuffles(pairs, dst, 16)
    assert packed is not None
    assert len(packed.words) == 4
    assert packed.shuffle_count == 3
    check(packed, pairs, dst)
    alone = plan_shuffles(pairs, dst, 32)
    assert alone is not None
    assert alone.shuffle_count == 6


def test_elements_of_two_words_take_two_shuffles() -> None:
    src = blocked((2, 32), (2, 1), (1, 32), (1, 1), (1, 0))
    dst = blocked((2, 32), (1, 2), (2, 16), (1, 1), (1, 0))
    narrow, wide = plan_shuffles(src, dst, 32), plan_shuffles(src, dst, 64)
    assert narrow is not None
    assert wide is not None
    assert wide.cost == 2 * narrow.cost


def test_a_result_that_all_lanes_hold_is_distributed_without_shuffles() -> None:
    parent = blocked((32, 128), (1, 32), (8, 4), (4, 1), (1, 0))
    whole = named((1, 2, 4, 0, 0, 0), (3, 3, 0, 0), (3,))
    one_each = named((1, 2, 4), (0, 3, 0, 0), (3,))
    found = plan(whole, one_each, 32)
    assert isinstance(found, Shuffles)
    assert found.shuffle_count == 0
    check(found, whole, one_each)
    result = without_duplicates(sliced(parent, 1))
    check(
        plan(result, blocked((32,), (1,), (32,), (4,), (0,)), 32),
        result,
        blocked((32,), (1,), (32,), (4,), (0,)),
    )


def test_an_exchange_between_warps_goes_through_memory() -> None:
    src = blocked((64, 64), (1, 4), (2, 16), (4, 1), (1, 0))
    dst = blocked((64, 64), (1, 4), (8, 4), (1, 4), (1, 0))
    found = plan(src, dst, 32)
    assert isinstance(found, Shared)
    assert found.bytes == 64 * 64 * 4
    assert (found.store_vector, found.load_vector) == (4, 4)
    assert found.store_wavefronts == found.load_wavefronts == 32
    assert not found.warp_private
    check(found, src, dst)


def test_an_exchange_within_warps_synchronizes_the_warp_only() -> None:
    src = blocked((128, 32), (1, 32), (32, 1), (4, 1), (1, 0))
    dst = blocked((128, 32), (32, 1), (1, 32), (4, 1), (1, 0))
    shared = plan_shared(src, dst, Memory(32))
    assert shared.warp_private
    check(shared, src, dst)
    copies = plan_shared(sliced(src, 0), sliced(dst, 0), Memory(32))
    assert not copies.warp_private
    assert copies.idle_warps == 3


@pytest.mark.parametrize(("bits", "parts"), [(8, 1), (16, 4), (32, 8), (64, 16)])
def test_an_exchange_within_warps_takes_little_memory(bits: int, parts: int) -> None:
    src = wgmma_accumulator((128, 128), 8, 128)
    dst = coalesced_within(src, (1, 0), 128 // bits, bits // 8)
    assert dst is not None
    found = plan_parts(src, dst, Memory(bits))
    assert found is not None
    assert found.bytes * len(found.taken) == 16 * 128 * bits // 8
    assert len(found.taken) == parts
    check(found, src, dst)


def test_an_exchange_between_warps_has_no_parts() -> None:
    src = wgmma_accumulator((128, 64), 4, 64)
    assert plan_parts(src, blocked((128, 64), (1, 8), (4, 8), (4, 1), (1, 0)), Memory(16)) is None
    copies = blocked((16, 64), (1, 8), (4, 8), (8, 1), (1, 0))
    assert plan_parts(copies, copies, Memory(16)) is None


@settings(max_examples=100)
@given(st.permutations(range(10)), st.permutations(range(8)), st.integers(1, 6), BITS)
def test_parts_move_every_element(
    places: list[int], within: list[int], registers: int, bits: int
) -> None:
    """Warps hold the same elements; their registers and lanes hold them in any order."""
    units = [1 << place for place in places]
    own, warps = units[:8], units[8:]
    src, dst = (
        named((*columns, *warps), (registers, 8 - registers, 2), (4, 6))
        for columns in (own, [own[i] for i in within])
    )
    found = plan_parts(src.select_ins(*HARDWARE), dst.select_ins(*HARDWARE), Memory(bits))
    assert found is not None
    check(found, src, dst)


@settings(max_examples=60)
@given(conversions(), BITS)
def test_the_cheaper_conversion_is_chosen(pair: Pair, bits: int) -> None:
    found = plan(*pair, bits)
    shared = plan_shared(pair[0].select_ins(*HARDWARE), pair[1].select_ins(*HARDWARE), Memory(bits))
    shuffles = plan_shuffles(*pair, bits)
    assert found.cost <= shared.cost
    assert shuffles is None or found.cost <= shuffles.cost


def test_blocks_keep_their_part_of_the_tile() -> None:
    split = LinearLayout.identity1d(2, BLOCK, "dim0")
    src = blocked((32, 32), (1, 4), (4, 8), (2, 1), (1, 0)) * split
    dst = blocked((32, 32), (4, 1), (8, 4), (1, 2), (0, 1)) * split
    found = plan(src, dst, 16)
    assert isinstance(found, Shared)
    assert found.bytes == 32 * 32 * 2
    check(found, src, dst)


def test_impossible_conversions_are_rejected() -> None:
    layout = blocked((16, 16), (1, 1), (8, 4), (2, 2), (1, 0))
    rows = layout * LinearLayout.identity1d(2, BLOCK, "dim0")
    columns = blocked((32, 8), (1, 1), (8, 4), (2, 2), (1, 0)) * LinearLayout.identity1d(
        2, BLOCK, "dim1"
    )
    with pytest.raises(ValueError, match=r"cannot move between blocks: .*block:2 -> dim0:32"):
        plan(rows, columns, 32)
    with pytest.raises(
        ValueError, match=r"must preserve the tile's shape: .*dim1:16. to .*dim1:32"
    ):
        plan(layout, blocked((16, 32), (1, 1), (8, 4), (2, 2), (1, 0)), 32)
    with pytest.raises(ValueError, match="must preserve the numbers of lanes, warps and blocks"):
        plan(layout, blocked((16, 16), (1, 1), (8, 4), (4, 2), (1, 0)), 32)
    with pytest.raises(ValueError, match="8, 16, 32 or 64 bits, not 1"):
        plan(layout, layout, 1)

"""The algebra of layouts: each law on random layouts, definitions on small ones."""

import doctest
import random
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.layout.random_layouts import bijections, invertible_layouts, layouts, matrices, named
from tilewright.layout import draw, gf2, linear, text
from tilewright.layout.linear import HARDWARE, LANE, REGISTER, WARP, LinearLayout
from tilewright.layout.text import parse

identity1d, strided1d = LinearLayout.identity1d, LinearLayout.strided1d
SMALL = [
    named(columns, (1, 1, 1), (1, 1)) for columns in product(range(4), repeat=3)
]  # every layout of a 2x2 tile on a register, a lane and a warp bit


def values(layout: LinearLayout) -> list[int]:
    return [layout.apply_flat(x) for x in range(1 << layout.total_in_bits)]


@pytest.mark.parametrize("module", [linear, text, draw])
def test_examples_in_the_documentation_hold(module: object) -> None:
    tried = doctest.testmod(module)  # pyright: ignore[reportArgumentType]
    assert tried.attempted > 0
    assert tried.failed == 0


def test_one_dimensional_layouts() -> None:
    assert values(identity1d(8, REGISTER, "dim0")) == list(range(8))
    assert values(strided1d(4, 2, LANE, "dim0")) == [0, 2, 4, 6]
    assert strided1d(4, 2, LANE, "dim0").out_size("dim0") == 8


def test_names_settle_the_order_of_bits() -> None:
    made = LinearLayout.from_bases(
        {WARP: [(2, 0)], REGISTER: [(0, 1)], LANE: [(1, 0)]}, {"dim0": 4, "dim1": 2}
    )
    swapped = LinearLayout.from_bases(
        {REGISTER: [(1, 0)], LANE: [(0, 1)], WARP: [(0, 2)]}, {"dim1": 2, "dim0": 4}
    )
    assert made == swapped
    assert hash(made) == hash(swapped)
    assert [dim.name for dim in made.ins] == [REGISTER, LANE, WARP]
    assert made.columns == (1, 2, 4)
    assert made.shape == (4, 2)


@given(layouts())
def test_named_and_flat_maps_are_equal_and_linear(layout: LinearLayout) -> None:
    assert layout.apply_flat(0) == 0
    for _ in range(5):
        indices = {d.name: random.Random(0).randrange(1 << d.bits) for d in layout.ins}
        flat, start = 0, 0
        for name, count in layout.ins:
            flat |= indices[name] << start
            start += count
        found = layout.apply(indices)
        assert list(found) == [f"dim{i}" for i in range(len(found))]
        assert tuple(found.values()) == layout.coordinates(layout.apply_flat(flat))
        row_major = 0
        for name, coordinate in found.items():
            row_major = row_major * layout.out_size(name) + coordinate
        assert row_major == layout.apply_flat(flat)


@given(layouts())
def test_text_parses_back(layout: LinearLayout) -> None:
    assert parse(str(layout)) == layout


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("register[1]", "inputs -> outputs"),
        ("register[1] -> dim0", "not a layout at 'dim0'"),
        ("register[2] -> dim0:2", r"\(2,\) is outside of dim0:2"),
        ("register[1,0] -> dim0:2", "needs 1 coordinates"),
        ("register[1] register[1] -> dim0:2", "named twice"),
        ("register[1] -> dim0:3", "power of two, not 3"),
    ],
)
def test_text_of_another_form_is_rejected(wrong: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(wrong)


@given(layouts(), layouts())
def test_product_puts_the_second_above_the_first(a: LinearLayout, b: LinearLayout) -> None:
    both = a * b
    for name in {dim.name for dim in (*a.ins, *b.ins)}:
        assert both.in_bits(name) == a.in_bits(name) + b.in_bits(name)
    lows = {d.name: (1 << d.bits) - 1 for d in a.ins}
    highs = {d.name: 1 << d.bits >> 1 for d in b.ins}
    joined = {n: lows.get(n, 0) | highs.get(n, 0) << a.in_bits(n) for n in {**lows, **highs}}
    low, high = a.apply(lows), b.apply(highs)
    for name, coordinate in both.apply(joined).items():
        assert coordinate == low.get(name, 0) | high.get(name, 0) << a.out_bits(name)


@given(layouts(), layouts(), layouts())
def test_product_is_associative(a: LinearLayout, b: LinearLayout, c: LinearLayout) -> None:
    assert (a * b) * c == a * (b * c)


@given(matrices(5, 4), matrices(4, 6))
def test_composition_applies_sequentially(inner: tuple[int, ...], outer: tuple[int, ...]) -> None:
    first = LinearLayout.from_columns({LANE: inner}, {"offset": 16})
    second = LinearLayout.from_columns({"offset": outer}, {"dim0": 64})
    both = first.compose(second)
    assert values(both) == [second.apply_flat(y) for y in values(first)]


@given(invertible_layouts())
def test_inverse_undoes_the_map(layout: LinearLayout) -> None:
    inverse = layout.invert()
    assert inverse.invert() == layout
    assert values(layout.compose(inverse)) == list(range(1 << layout.total_in_bits))
    assert inverse == layout.pseudo_invert()


def test_predicates_hold_for_all_small_layouts() -> None:
    for layout in SMALL:
        distinct = len(set(values(layout)))
        assert layout.is_injective() == (distinct == 8)
        assert layout.is_surjective() == (distinct == 4)
        assert not layout.is_invertible()
        square = layout.select_ins(REGISTER, LANE)
        assert square.is_invertible() == (len(set(values(square))) == 4)


@given(layouts())
def test_pseudo_inverse_finds_the_lowest_holder(layout: LinearLayout) -> None:
    lowest: dict[int, int] = {}
    for x, element in enumerate(values(layout)):
        lowest.setdefault(element, x)
    inverse = layout.pseudo_invert()
    assert all(inverse.apply_flat(element) == x for element, x in lowest.items())


def test_inverse_and_composition_finds_the_lowest_holder_in_all_small_layouts() -> None:
    rejected = 0
    for want, have in product(SMALL, repeat=2):
        held = values(have)
        if not set(values(want)) <= set(held):
            rejected += 1
            with pytest.raises(ValueError, match=r"second does not: .register:2 lane:2 warp:2 -> "):
                want.invert_and_compose(have)
            continue
        found = want.invert_and_compose(have)
        assert values(found) == [held.index(element) for element in values(want)]
    assert 0 < rejected < len(SMALL) ** 2


@given(layouts())
def test_free_variables_leave_one_holder_of_each_element(layout: LinearLayout) -> None:
    needed = [
        x
        for x in range(1 << layout.total_in_bits)
        if not x & _flat_mask(layout, {d.name: layout.free_variables(d.name) for d in layout.ins})
    ]
    elements = [layout.apply_flat(x) for x in needed]
    assert len(set(elements)) == len(elements)
    assert set(elements) == set(values(layout))


def _flat_mask(layout: LinearLayout, masks: dict[str, int]) -> int:
    flat, start = 0, 0
    for name, count in layout.ins:
        flat |= masks[name] << start
        start += count
    return flat


@given(layouts())
def test_parts_of_a_layout_have_its_values(layout: LinearLayout) -> None:
    for register, lane in product(range(layout.in_size(REGISTER)), range(layout.in_size(LANE))):
        indices = {REGISTER: register, LANE: lane}
        assert layout.select_ins(LANE, REGISTER, "block").apply(indices) == layout.apply(indices)
    assert values(layout.flatten_outs("index")) == values(layout)
    assert len(layout.flatten_outs("index").outs) == 1


@given(layouts())
def test_rows_and_moves_compute_the_map(layout: LinearLayout) -> None:
    rows, moves = layout.rows(), layout.bit_moves()
    assert len({(m.in_name, m.out_name, m.shift) for m in moves}) == len(moves)
    for flat in range(0, 1 << layout.total_in_bits, 3):
        rest, indices = flat, dict[str, int]()
        for name, count in layout.ins:
            indices[name] = rest & ((1 << count) - 1)
            rest >>= count
        by_row = {
            name: sum((mask & flat).bit_count() % 2 << i for i, mask in enumerate(masks))
            for name, masks in rows.items()
        }
        by_move = dict.fromkeys(rows, 0)
        for in_name, out_name, mask, shift in moves:
            term = indices[in_name] & mask
            by_move[out_name] ^= term << shift if shift >= 0 else term >> -shift
        assert by_row == by_move == layout.apply(indices)


def test_contiguous_bits_move_together() -> None:
    layout = identity1d(4, REGISTER, "dim0") * identity1d(32, LANE, "dim0")
    assert layout.bit_moves() == ((REGISTER, "dim0", 3, 0), (LANE, "dim0", 31, 2))


def _consecutive(layout: LinearLayout, dim: str) -> int:
    """`num_consecutive` by its definition."""
    n = 1
    size = layout.in_size(REGISTER)
    threads = [
        dict(zip(HARDWARE[1:], t, strict=True))
        for t in product(*(range(layout.in_size(name)) for name in HARDWARE[1:]))
    ]
    while 2 * n <= size and all(
        (at := layout.apply({REGISTER: r, **t}))[dim] % (2 * n) == r % (2 * n)
        and {**at, dim: 0} == {**(base := layout.apply({REGISTER: r - r % (2 * n), **t})), dim: 0}
        and at[dim] - base[dim] == r % (2 * n)
        for t in threads
        for r in range(size)
    ):
        n *= 2
    return n


@given(st.one_of(layouts(), invertible_layouts()))
def test_consecutive_elements_agree_with_the_definition(layout: LinearLayout) -> None:
    rank = len(layout.shape)
    assert layout.num_consecutive() == _consecutive(layout, f"dim{rank - 1}")
    assert layout.num_consecutive(tuple(range(rank))) == _consecutive(layout, "dim0")


def test_consecutive_elements_of_all_small_layouts() -> None:
    found: set[int] = set()
    for columns in product(range(8), repeat=3):
        layout = named(columns, (2, 1), (3,))
        found.add(layout.num_consecutive())
        assert layout.num_consecutive() == _consecutive(layout, "dim0")
    assert found == {1, 2, 4}


@given(bijections(6))
def test_misuse_names_dims_and_sizes(columns: tuple[int, ...]) -> None:
    a = named(columns, (3, 3), (2, 4))
    b = named(columns, (3, 3), (4, 2))
    assume(a.outs != b.outs)
    with pytest.raises(ValueError, match=r"dim0:4 dim1:16\) and \(.*dim0:16 dim1:4\)"):
        a.invert_and_compose(b)
    with pytest.raises(ValueError, match=r"register:8 lane:8 -> dim0:4 dim1:16"):
        a.apply({REGISTER: 8})
    with pytest.raises(ValueError, match="inner layout's outputs"):
        a.compose(b)
    with pytest.raises(ValueError, match="holds each element exactly once"):
        named((*columns, 0), (3, 4), (2, 4)).invert()
    with pytest.raises(ValueError, match="bases for 6 bits"):
        LinearLayout(a.ins, a.outs, columns[1:])
    with pytest.raises(ValueError, match="outside of the output space"):
        LinearLayout(a.ins, a.outs, (64, *columns[1:]))


def test_total_size_of_a_tile_may_be_one() -> None:
    layout = named((0, 0), (0, 1, 1), ())
    assert layout.shape == ()
    assert layout.is_surjective()
    assert gf2.rank(layout.columns) == 0

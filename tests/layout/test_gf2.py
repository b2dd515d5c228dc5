"""Linear algebra over GF(2), against definitions by enumeration."""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from tests.layout.random_layouts import bijections, matrices
from tilewright.layout import gf2

VECTORS = st.lists(st.integers(0, 31), max_size=6)
SMALL = list(product(range(8), repeat=3))


def members(vectors: list[int] | tuple[int, ...]) -> set[int]:
    """The span, vector by vector."""
    found = {0}
    for vector in vectors:
        found |= {member ^ vector for member in found}
    return found


def test_all_small_matrices_have_the_rank_and_kernel_of_their_values() -> None:
    for columns in SMALL:
        values = [gf2.apply(columns, x) for x in range(8)]
        assert 1 << gf2.rank(columns) == len(set(values)) == len(members(columns))
        assert members(gf2.kernel(columns)) == {x for x in range(8) if not values[x]}
        for target in range(8):
            expected = values.index(target) if target in values else None
            assert gf2.solve(columns, target) == expected


def test_all_small_matrices_have_their_inverse_or_none() -> None:
    for columns in SMALL:
        inverse = gf2.inverse(columns)
        assert (inverse is None) == (gf2.rank(columns) < 3)
        if inverse:
            assert gf2.multiply(columns, inverse) == gf2.multiply(inverse, columns) == (1, 2, 4)


def test_echelon_form_depends_on_the_space_only() -> None:
    forms: dict[frozenset[int], tuple[int, ...]] = {}
    for columns in SMALL:
        form = gf2.echelon(columns)
        assert forms.setdefault(frozenset(members(columns)), form) == form
        leading = [1 << (v.bit_length() - 1) for v in form]
        assert leading == sorted(leading)
        assert all(not v & bit for v in form for bit in leading if 1 << v.bit_length() - 1 != bit)
    assert len(forms) == 16  # the subspaces of a space of dimension 3


def test_transposing_exchanges_rows_and_columns() -> None:
    assert gf2.transpose((0b01, 0b11, 0b00), 2) == (0b011, 0b010)
    for columns in SMALL:
        assert gf2.transpose(gf2.transpose(columns, 3), 3) == columns


@given(VECTORS, VECTORS)
def test_intersection_holds_what_both_spans_hold(first: list[int], second: list[int]) -> None:
    common = gf2.intersection(first, second)
    assert members(common) == members(first) & members(second)
    assert gf2.rank(common) == len(common)


@given(VECTORS, VECTORS)
def test_extending_takes_the_first_that_are_independent(first: list[int], more: list[int]) -> None:
    taken = gf2.extend(first, more)
    assert members([*first, *taken]) == members([*first, *more])
    assert gf2.rank([*first, *taken]) == gf2.rank(first) + len(taken)
    whole = [*first, *gf2.complement(first, 5)]
    assert len(members(whole)) == 32
    assert gf2.rank(first) + len(gf2.complement(first, 5)) == 5


@given(VECTORS)
def test_reduction_modulo_a_space_identifies_cosets(vectors: list[int]) -> None:
    span = gf2.Span(vectors)
    for x, y in combinations(range(32), 2):
        assert (span.reduce(x) == span.reduce(y)) == (x ^ y in span) == (x ^ y in members(vectors))


@given(matrices(5, 4), matrices(4, 5))
def test_product_of_matrices_applies_sequentially(
    inner: tuple[int, ...], outer: tuple[int, ...]
) -> None:
    both = gf2.multiply(outer, inner)
    assert all(gf2.apply(both, x) == gf2.apply(outer, gf2.apply(inner, x)) for x in range(32))


@given(bijections(24))
def test_large_matrices_are_inverted(columns: tuple[int, ...]) -> None:
    inverse = gf2.inverse(columns)
    assert inverse is not None
    assert gf2.multiply(columns, inverse) == tuple(gf2.units(24))


def test_bits_and_units() -> None:
    assert gf2.bits(0b1010) == [1, 3]
    assert gf2.units(3, 2) == [4, 8, 16]

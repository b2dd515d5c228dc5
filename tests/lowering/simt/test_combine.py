"""The order in shared memory of the partial results of warps."""

from __future__ import annotations

import itertools

from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.simt.combine import FLAT, numbers_by_lanes, renumbered


def layout(registers: list[int], lanes: list[int], warps: list[int], size: int) -> LinearLayout:
    columns = {REGISTER: registers, LANE: lanes, WARP: warps}
    return LinearLayout.from_columns(columns, {FLAT: size})


def numbered_by_lanes(found: LinearLayout) -> LinearLayout:
    return renumbered(found, numbers_by_lanes(found))


def test_partial_results_of_adjacent_lanes_are_adjacent() -> None:
    """8 lanes hold 8 successive columns each, of which 4 lanes and all warps hold copies: in the
    order of the columns, all lanes would access the same banks."""
    found = numbered_by_lanes(layout([1, 2, 4], [8, 16, 32, 0, 0], [0, 0], 64))
    assert found.bases(LANE) == (1, 2, 4, 0, 0)
    assert found.bases(REGISTER) == (8, 16, 32)
    assert found.bases(WARP) == (0, 0)


def test_each_element_has_one_number() -> None:
    """Lanes 0 and 1 hold column 1 as warps 0 and 1 do."""
    found = numbered_by_lanes(layout([4, 8], [1, 2], [1, 16], 32))
    assert found.bases(LANE) == (1, 2)
    assert found.bases(WARP) == (1, 4)
    places = itertools.product(range(4), repeat=3)
    numbers = {found.apply({REGISTER: r, LANE: n, WARP: w})[FLAT] for r, n, w in places}
    assert numbers == set(range(32))


def test_columns_of_several_bits_keep_the_order_of_the_tile() -> None:
    swizzled = layout([1, 2], [5, 8], [4], 16)
    assert numbered_by_lanes(swizzled) == swizzled

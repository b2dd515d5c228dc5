"""Shape operations keep every element in its thread; NumPy determines its new index."""

from collections.abc import Callable
from math import prod
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.layout.random_layouts import invertible_layouts, layouts, named
from tilewright.layout.linear import REGISTER, LinearLayout
from tilewright.layout.shape import (
    broadcast_to,
    drop_dim,
    expand_dims,
    join,
    reshape,
    split,
    transpose,
)


def tile(layout: LinearLayout) -> np.ndarray:
    """A tile of distinct values."""
    return np.arange(prod(layout.shape)).reshape(layout.shape)


def contents(layout: LinearLayout, values: np.ndarray) -> list[int]:
    """The value that each flat input holds."""
    flat = values.reshape(-1)
    assert values.shape == layout.shape
    return [int(flat[layout.apply_flat(x)]) for x in range(1 << layout.total_in_bits)]


@given(layouts(), st.randoms())
def test_transposed_tile_does_not_move(layout: LinearLayout, random: Random) -> None:
    order = list(range(len(layout.shape)))
    random.shuffle(order)
    moved = transpose(layout, order)
    assert contents(moved, tile(layout).transpose(order)) == contents(layout, tile(layout))
    back = [order.index(i) for i in range(len(order))]
    assert transpose(moved, back) == layout


@given(layouts())
def test_reshaped_tile_does_not_move(layout: LinearLayout) -> None:
    for shape in ((prod(layout.shape),), (1, *layout.shape[::-1]), layout.shape):
        moved = reshape(layout, shape)
        assert contents(moved, tile(layout).reshape(shape)) == contents(layout, tile(layout))
        assert reshape(moved, layout.shape) == layout


@given(layouts())
def test_expanded_tile_does_not_move(layout: LinearLayout) -> None:
    for axis in range(len(layout.shape) + 1):
        wide = expand_dims(layout, axis)
        expected = np.expand_dims(tile(layout), axis)
        assert contents(wide, expected) == contents(layout, tile(layout))
        assert drop_dim(wide, axis) == layout


@given(layouts())
def test_dropped_dimension_is_removed_from_the_layout(layout: LinearLayout) -> None:
    for axis in range(len(layout.shape)):
        rest = drop_dim(layout, axis)
        for x in range(1 << layout.total_in_bits):
            coordinates = list(layout.coordinates(layout.apply_flat(x)))
            del coordinates[axis]
            assert list(rest.coordinates(rest.apply_flat(x))) == coordinates


@given(invertible_layouts(), st.integers(0, 3), st.integers(0, 2))
def test_broadcast_repeats_registers(layout: LinearLayout, axis: int, bits: int) -> None:
    axis = min(axis, len(layout.shape))
    narrow = expand_dims(layout, axis)
    shape = list(narrow.shape)
    shape[axis] = 1 << bits
    wide = broadcast_to(narrow, shape)
    values = np.broadcast_to(tile(narrow), shape)
    assert wide.is_invertible()
    registers, count = layout.in_size(REGISTER), wide.in_size(REGISTER)
    before, after = contents(narrow, tile(narrow)), contents(wide, values)
    for thread in range(len(before) // registers):
        old = before[thread * registers : (thread + 1) * registers]
        assert after[thread * count : (thread + 1) * count] == old * (count // registers)


@given(invertible_layouts())
def test_join_stacks_registers_and_split_takes_them_apart(layout: LinearLayout) -> None:
    both = join(layout)
    first = tile(layout)
    second = first + first.size
    stacked = contents(both, np.stack([first, second], axis=-1))
    assert stacked[0::2] == contents(layout, first)
    assert stacked[1::2] == contents(layout, second)
    assert split(both) == (layout, 0)


@given(layouts(), st.integers(0, 3))
def test_split_halves_hold_their_values(layout: LinearLayout, extra: int) -> None:
    above = LinearLayout.identity1d(2, REGISTER, f"dim{len(layout.shape)}")
    whole = expand_dims(layout, len(layout.shape)) * above
    halves = split(whole)
    assert halves is not None
    half, bit = halves
    for x in range(1 << whole.total_in_bits):
        rest = x & ((1 << bit) - 1) | x >> (bit + 1) << bit
        element = whole.coordinates(whole.apply_flat(x))
        assert element[-1] == x >> bit & 1
        assert element[:-1] == half.coordinates(half.apply_flat(rest))


def test_split_of_a_pair_in_two_lanes_needs_a_move() -> None:
    assert split(named((2, 1), (1, 1), (1, 1))) is None
    assert split(named((1, 1), (1, 1), (0, 1))) is None  # register and lane both choose the half
    assert split(named((3, 2), (2,), (1, 1))) is None  # the register bit moves dim0 as well


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: reshape(x, (4, 4)), r"cannot reshape to \(4, 4\): \(register:2 lane:4"),
        (lambda x: transpose(x, (0, 0)), r"\(0, 0\) does not permute"),
        (lambda x: expand_dims(x, 3), "no place for a new dimension 3"),
        (lambda x: drop_dim(x, 2), "no dimension 2"),
        (lambda x: broadcast_to(x, (4, 8)), r"cannot broadcast to \(4, 8\)"),
        (lambda x: broadcast_to(x, (2, 4, 1)), "cannot broadcast"),
        (split, "only a last dimension of size 2"),
    ],
)
def test_misuse_is_rejected(call: Callable[[LinearLayout], object], message: str) -> None:
    layout = named((1, 2, 4), (1, 2), (1, 2))
    with pytest.raises(ValueError, match=message):
        call(layout)

"""Slices of arrays through ragged descriptors: nothing past their end is read or written."""

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.tools.ragged_tma import (
    atomic_add_ragged,
    create_ragged_descriptor,
    load_ragged,
    store_ragged,
)

ROWS, COLUMNS = 40, 32


@tw.jit
def move_kernel(x, out, begin, length, at, ADD: tl.constexpr):
    """One block of a slice, doubled, to the same place."""
    tile = load_ragged(x, begin, length, [at, 16]) * 2
    if ADD:
        atomic_add_ragged(out, begin, length, [at, 16], tile)
    else:
        store_ragged(out, begin, length, [at, 16], tile)


def _aligned(*shape: int) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape))
    room = np.zeros(size + 4, np.float32)
    return room[-room.ctypes.data // 4 % 4 :][:size].reshape(shape)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(
    ("begin", "length", "at"), [(0, 40, 0), (3, 5, 0), (3, 21, 16), (7, 8, 0), (9, 3, 8), (5, 0, 0)]
)
def test_block_of_a_slice(begin: int, length: int, at: int, add: bool) -> None:
    x, out = _aligned(ROWS, COLUMNS), _aligned(ROWS, COLUMNS)
    x[:] = np.arange(x.size).reshape(x.shape)
    out[:] = -1
    expected = out.copy()
    rows = slice(begin + at, max(begin + at, begin + min(length, at + 8)))
    expected[rows, 16:] = 2 * x[rows, 16:] - (1 if add else 0)
    descriptors = [create_ragged_descriptor(t, [8, 16]) for t in (x, out)]
    move_kernel[(1,)](*descriptors, begin, length, at, ADD=add)
    np.testing.assert_array_equal(out, expected)


def test_elements_beyond_a_slice_are_zero() -> None:
    @tw.jit
    def kernel(x, out, DIM: tl.constexpr):
        tile = load_ragged(x, 2, 3, [1, 1, 0], DIM)
        i = tl.arange(0, 4)
        row = tl.sum(tl.sum(tile, 2), 1) if DIM == 0 else tl.sum(tl.sum(tile, 2), 0)
        tl.store(out + i, row)

    x = _aligned(8, 8, 8)
    x[:] = 1
    for axis in (0, 1):
        out = np.full(4, -1, np.float32)
        desc = create_ragged_descriptor(x, [4, 4, 8], axis)
        kernel[(1,)](desc, out, DIM=axis)
        # Of rows 1 to 4 of a slice of three rows, two are there, with 4 * 8 elements each.
        assert out.tolist() == [32, 32, 0, 0]


def test_it_compiles_for_a_gpu() -> None:
    desc = "tensordesc<fp32[1, 1, 8, 16]>"
    types = {"x": desc, "out": desc, "begin": "i32", "length": "i32", "at": "i32"}
    source = tw.compiler.ASTSource(move_kernel, types, {"ADD": False})
    assert "entry move_kernel" in tw.compile(source, GPUTarget("cuda", 90, 32)).asm["ptx"]


@pytest.mark.parametrize(
    ("shape", "axis", "message"),
    [
        ((16,), 0, "rank 2 or 3, not 1"),
        ((4, 16), 1, "before the last, not 1"),
        ((4, 16), -1, "before the last, not -1"),
    ],
)
def test_wrong_axes_are_rejected(shape: tuple[int, ...], axis: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_ragged_descriptor(_aligned(*shape), list(shape), axis)

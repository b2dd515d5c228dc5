"""Loads that are contiguous along another axis than the stores: blocks are transposed in registers,
in a loop nest of their own."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets.cpu.harness import PLAIN_AVX2, PLAIN_SSE2, assert_same, host
from tests.targets.cpu.test_kernels import module_of
from tilewright.ir.types import Tile
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.plan import Group
from tilewright.targets.cpu.plan_loops import plan_function
from tilewright.targets.cpu.transposes import transposed

ROWS, COLUMNS = 32, 64


@tw.jit
def transpose(x, o, m, n, x_stride, o_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (r < m) & (c < n)
    tl.store(o + c * o_stride + r, tl.load(x + r * x_stride + c, mask), mask)


@tw.jit
def transpose_tile(x, o, m, n, x_stride, o_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """With `tl.trans`: the nest of the store has other axes than the load."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    from_x = (r < m)[:, None] & (c < n)[None, :]
    to_o = (c < n)[:, None] & (r < m)[None, :]
    v = tl.load(x + r[:, None] * x_stride + c[None, :], from_x)
    tl.store(o + c[:, None] * o_stride + r[None, :], tl.trans(v), to_o)


@tw.jit
def add_transposed(x, y, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """In place in y, of which x is the transpose."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (r < m) & (c < n)
    at = y + r * n + c
    tl.store(at, tl.load(at, mask) - tl.load(x + c * m + r, mask, other=1), mask)


@tw.jit
def difference(x, o, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile that is read at two points, itself and transposed, is no gather at one of them."""
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    v = tl.load(x + r[:, None] * COLUMNS + c[None, :])
    tl.store(o + r[:, None] * COLUMNS + c[None, :], v - tl.trans(v))


@tw.jit
def sums_of_columns(x, y, o, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Products of a matrix and a transposed one, in a loop; the rows' sums."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, n, COLUMNS):
        c = start + tl.arange(0, COLUMNS)[None, :]
        mask = (r < m) & (c < n)
        total += tl.load(x + r * n + c, mask, other=0) * tl.load(y + c * m + r, mask, other=0)
    sums = tl.sum(total, axis=1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(o + rows, sums, rows < m)


@tw.jit
def channels_last(x, o, C: tl.constexpr, PLANE: tl.constexpr, ROWS: tl.constexpr):
    """[N, C, PLANE] to [N, PLANE, C], whose first two axes are one, split by `//` and `%`."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, C)[None, :]
    v = tl.load(x + i % PLANE + PLANE * c + C * PLANE * (i // PLANE))
    tl.store(o + i * C + c, v)


@tw.jit
def swap_last_axes(x, o, A: tl.constexpr, B: tl.constexpr, ROWS: tl.constexpr):
    """[N, A, B] to [N, B, A]; the first two axes are one."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    b = tl.arange(0, B)[None, :]
    tl.store(o + i % A + A * b + A * B * (i // A), tl.load(x + i * B + b))


@tw.jit
def rotate_axes(x, o, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    """[A, B, C] to [B, C, A]."""
    a = tl.arange(0, A)[:, None, None]
    b = tl.arange(0, B)[None, :, None]
    c = tl.arange(0, C)[None, None, :]
    tl.store(o + (b * C + c) * A + a, tl.load(x + (a * B + b) * C + c))


@tw.jit
def transpose_and_scan(x, o, s, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A scan takes its operand row by row."""
    r, c = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    v = tl.load(x + r * COLUMNS + c)
    tl.store(o + c * ROWS + r, v)
    tl.store(s + r * COLUMNS + c, tl.cumsum(v, axis=1))


@tw.jit
def is_negative(x, o, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Booleans, which are bytes in memory."""
    r, c = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(o + c * ROWS + r, tl.where(tl.load(x + r * COLUMNS + c), 3, 5))


@tw.jit
def transpose_in_branches(x, o, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Both branches of a loop read one tile, which is loaded before the loop."""
    r, c = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    to = o + tl.arange(0, COLUMNS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
    v = tl.trans(tl.load(x + r * COLUMNS + c))
    for i in range(n):
        if i % 3 > 1:
            tl.store(to + i * ROWS * COLUMNS, v)
        else:
            tl.store(to + i * ROWS * COLUMNS, v + 1)


@tw.jit
def normalize_channels(x, mean, scale, shift, o, C: tl.constexpr, N: tl.constexpr):
    """From channels last to channels first, with values of each channel: [C, 1] tiles."""
    c, i = tl.arange(0, C)[:, None], tl.arange(0, N)[None, :]
    v = tl.load(x + i * C + c) - tl.load(mean + c)
    tl.store(o + c * N + i, v * tl.load(scale + c) + tl.load(shift + c))


def values(dtype: Any, *shape: int) -> Any:
    x = np.random.default_rng(len(shape)).integers(-100, 100, shape)
    return np.ascontiguousarray(x.astype(dtype))


def transposes(kernel: Any, args: list[Any], **constexprs: Any) -> list[tuple[int, ...]]:
    """The shapes of the tiles that are transposed."""
    fn = module_of(kernel, args, **constexprs).entry
    steps = [s for found in plan_function(fn).steps.values() for s in found]
    kept = [v for s in steps if isinstance(s, Group) and s.transposed for v in s.keep]
    return [v.type.shape for v in kept if isinstance(v.type, Tile)]


@pytest.mark.parametrize("features", [None, PLAIN_AVX2, PLAIN_SSE2])
@pytest.mark.parametrize("kernel", [transpose, transpose_tile])
@pytest.mark.parametrize("size", [(64, 128), (50, 77), (1, 200), (200, 1), (1, 1)])
def test_matrices(kernel: Any, size: tuple[int, int], features: str | None) -> None:
    m, n = size
    args = [values(np.float32, m, n), np.zeros((n, m), np.float32), m, n, n, m]
    grid = -(-m // ROWS), -(-n // COLUMNS), 1
    module = module_of(kernel, args, ROWS=ROWS, COLUMNS=COLUMNS)
    assert_same(module, grid, args, machine=host(features))


@pytest.mark.parametrize("features", [None, PLAIN_AVX2])
@pytest.mark.parametrize(
    "dtype",
    [np.int8, np.uint8, np.float16, ml_dtypes.bfloat16, np.int32, np.int64, np.float64],
)
def test_types(dtype: Any, features: str | None) -> None:
    args = [values(dtype, 40, 100), np.zeros((100, 40), dtype), 40, 100, 100, 40]
    module = module_of(transpose, args, ROWS=ROWS, COLUMNS=COLUMNS)
    assert_same(module, (2, 2, 1), args, machine=host(features))


@pytest.mark.parametrize("shape", [(8, 8), (8, 64), (64, 8), (16, 16), (4, 64), (24, 40)])
def test_shapes_of_tiles(shape: tuple[int, int]) -> None:
    rows, columns = shape
    args = [values(np.float32, 60, 60), np.zeros((60, 60), np.float32), 60, 60, 60, 60]
    module = module_of(transpose, args, ROWS=rows, COLUMNS=columns)
    assert_same(module, (-(-60 // rows), -(-60 // columns), 1), args)


def test_a_transposed_tile_is_added_in_place() -> None:
    m, n = 40, 100
    args = [values(np.float32, n, m), values(np.float32, m, n), m, n]
    assert_same(module_of(add_transposed, args, ROWS=ROWS, COLUMNS=COLUMNS), (2, 2, 1), args)


def test_other_ops_take_row_major_tiles() -> None:
    x = values(np.float32, ROWS, COLUMNS)
    args = [x, np.zeros_like(x), np.zeros_like(x)]
    module = module_of(transpose_and_scan, args, ROWS=ROWS, COLUMNS=COLUMNS)
    assert_same(module, (1, 1, 1), args)
    assert transposes(transpose_and_scan, args, ROWS=ROWS, COLUMNS=COLUMNS) == []


def test_a_tile_read_at_two_points() -> None:
    args = [values(np.float32, 16, 16), np.zeros((16, 16), np.float32)]
    assert_same(module_of(difference, args, ROWS=16, COLUMNS=16), (1, 1, 1), args)


@pytest.mark.parametrize("n", [0, 64, 100])
def test_loads_in_a_loop(n: int) -> None:
    args = [values(np.float32, 40, n), values(np.float32, n, 40), np.zeros(40, np.float32), 40, n]
    assert_same(module_of(sums_of_columns, args, ROWS=ROWS, COLUMNS=COLUMNS), (2, 1, 1), args)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_load_before_a_loop_with_branches(n: int) -> None:
    """It is transposed where it is loaded, so that all regions inside find it."""
    args = [values(np.float32, ROWS, COLUMNS), np.zeros((n + 1, COLUMNS, ROWS), np.float32), n]
    module = module_of(transpose_in_branches, args, ROWS=ROWS, COLUMNS=COLUMNS)
    assert_same(module.clone(), (1, 1, 1), args)
    for region, steps in plan_function(module.entry).steps.items():
        for value in (v for s in steps if isinstance(s, Group) for v in s.keep):
            assert value.op is not None
            assert value.op.parent is region


@pytest.mark.parametrize("plane", [16, 24, 20])
def test_flat_indices(plane: int) -> None:
    args = [values(np.float32, 2, 16, plane * 4), np.zeros((2, plane * 4, 16), np.float32)]
    module = module_of(channels_last, args, C=16, PLANE=plane * 4, ROWS=16)
    assert_same(module, (2 * plane * 4 // 16, 1, 1), args)


@pytest.mark.parametrize("shape", [(16, 4, 32), (8, 8, 8), (32, 1, 16), (2, 16, 16)])
def test_three_axes(shape: tuple[int, int, int]) -> None:
    a, b, c = shape
    args = [values(np.float32, a, b, c), np.zeros((b, c, a), np.float32)]
    assert_same(module_of(rotate_axes, args, A=a, B=b, C=c), (1, 1, 1), args)


def test_booleans() -> None:
    x = values(np.int32, ROWS, COLUMNS) < 0
    args = [x, np.zeros((COLUMNS, ROWS), np.int32)]
    assert_same(module_of(is_negative, args, ROWS=ROWS, COLUMNS=COLUMNS), (1, 1, 1), args)


def test_what_is_transposed() -> None:
    sides = {"ROWS": ROWS, "COLUMNS": COLUMNS}
    x = values(np.float32, ROWS, COLUMNS)
    both = [x, x, 1, 1, 1, 1]
    assert transposes(transpose, both, **sides) == [(ROWS, COLUMNS)]
    assert transposes(transpose_tile, both, **sides) == [(ROWS, COLUMNS)]
    assert transposes(add_transposed, [x, x, 1, 1], **sides) == [(ROWS, COLUMNS)]
    assert transposes(sums_of_columns, [x, x, x, 1, 1], **sides) == [(ROWS, COLUMNS)]
    assert transposes(channels_last, [x, x], C=16, PLANE=64, ROWS=16) == [(16, 16)]
    assert transposes(rotate_axes, [x, x], A=16, B=4, C=32) == [(16, 4, 32)]
    # Two points, an axis that is too short, and rows that end within a block.
    assert transposes(difference, [x, x], ROWS=16, COLUMNS=16) == []
    assert transposes(transpose, both, ROWS=4, COLUMNS=64) == []
    assert transposes(channels_last, [x, x], C=16, PLANE=20, ROWS=16) == []


def test_lanes_lie_along_the_store() -> None:
    """Also where that is contiguous in the runs of a remainder only."""
    x = values(np.float32, 2, 16, 16)
    module = module_of(swap_last_axes, [x, x], A=16, B=16, ROWS=16)
    text = generate(module, host())[0]
    assert transposes(swap_last_axes, [x, x], A=16, B=16, ROWS=16) == [(16, 16)]
    assert "llvm.masked.scatter" not in text
    args = [x, np.zeros_like(x)]
    assert_same(module, (2, 1, 1), args)


def test_lanes_lie_along_most_elements() -> None:
    """Loads of one element for each row do not decide, however many there are."""
    x = values(np.float32, 64, 16)
    args = [x, *(values(np.float32, 16) for _ in range(3)), np.zeros((16, 64), np.float32)]
    module = module_of(normalize_channels, args, C=16, N=64)
    assert transposes(normalize_channels, args, C=16, N=64) == [(16, 64)]
    assert "llvm.masked.scatter" not in generate(module, host())[0]
    assert_same(module, (1, 1, 1), args)


def test_a_transposed_load_is_no_gather() -> None:
    x = values(np.float32, ROWS, COLUMNS)
    for kernel in (transpose, transpose_tile):
        module = module_of(kernel, [x, x, 1, 1, 1, 1], ROWS=ROWS, COLUMNS=COLUMNS)
        text = generate(module, host())[0]
        assert "llvm.masked.gather" not in text
        assert "llvm.masked.scatter" not in text


class _Shuffles:
    """A builder of vectors that are lists."""

    def shuffle(self, x: list[int], y: list[int], indices: list[int]) -> list[int]:
        return [(x + y)[i] for i in indices]


@pytest.mark.parametrize("side", [1, 2, 4, 8, 16])
def test_a_block_is_transposed(side: int) -> None:
    block = np.arange(side * side).reshape(side, side)
    builder: Any = _Shuffles()
    rows: Any = block.tolist()
    assert transposed(builder, rows) == block.T.tolist()

"""Updates whose results are unused: their operands are computed in vectors."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.covering import covering
from tests.frontend.kernels import build, kernel_from, type_string
from tests.ir_values import random_array
from tests.language.test_atomic import SUPPORTED
from tests.targets.cpu.harness import PLAIN_AVX2, PLAIN_SSE2, assert_same, host
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.passes import PassContext, run
from tilewright.ir.types import SCALARS, Tile

TYPES = {t.short: t for t in SCALARS}
KINDS = [(kind, short) for kind, types in SUPPORTED.items() for short in types]
MASKS = ("None", "tl.load(values + i) != 0", "i < n")
FEATURES = {"host": None, "AVX2": PLAIN_AVX2, "SSE2": PLAIN_SSE2}
SHAPES = ((64,), (3, 32), (4, 1), (24,), (5, 3), (2, 4, 16))

NAMES = "x", "at", "values", "n"
TEXT = """
def kernel(x, at, values, n):
    i = tl.arange(0, {count}).reshape({shape})
    tl.atomic_{kind}(x + tl.load(at + i), tl.load(values + i), mask={mask}, sem="relaxed")
    x.atomic_{kind}(tl.load(values))
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("of", "shape", "mask", "features"), covering(KINDS, SHAPES, MASKS, FEATURES)
)
def test_order_is_that_of_the_elements(
    of: tuple[str, str], shape: tuple[int, ...], mask: str, features: str
) -> None:
    """Several elements update one place: sums of numbers round differently in another order."""
    rng = np.random.default_rng(3)
    kind, short = of
    count = int(np.prod(shape))
    values = random_array(Tile((count,), TYPES[short]), rng)
    at = rng.integers(0, 7, count).astype(np.int32)
    text = TEXT.format(count=count, shape=shape, kind=kind, mask=mask)
    args = [random_array(Tile((7,), TYPES[short]), rng), at, values, count // 2]
    with np.errstate(all="ignore"):
        module = build(
            kernel_from(text), {n: type_string(a) for n, a in zip(NAMES, args, strict=True)}
        )
        run(module, STEPS, PassContext(), [])
        assert_same(module, (1, 1, 1), args, machine=host(FEATURES[features]))


@tw.jit
def scatter(x, at, values, n, SIZE: tl.constexpr, ROWS: tl.constexpr):
    i = tl.program_id(0) * SIZE * ROWS + tl.arange(0, SIZE * ROWS).reshape(ROWS, SIZE)
    place, v = tl.load(at + i, i < n), tl.load(values + i, i < n)
    tl.atomic_add(x + place, v, i < n, sem="relaxed")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint64])
@pytest.mark.parametrize("size", [1, 8, 64])
def test_single_threaded_launches_add_without_atomics(dtype: type, size: int) -> None:
    rng = np.random.default_rng(1)
    n = 5000
    at, values = rng.integers(0, 300, n).astype(np.int32), rng.integers(0, 5, n).astype(dtype)
    expected = np.zeros(300, dtype)
    np.add.at(expected, at, values)
    codes = []
    for alone in (False, True):
        x = np.zeros(300, dtype)
        grid = (tw.cdiv(n, 4 * size),)
        # The option limits the launch to one thread, whatever another option says.
        compiled = scatter[grid](
            x, at, values, n, size, 4, single_threaded=alone, num_cpu_threads=4
        )
        np.testing.assert_array_equal(x, expected)
        codes.append(compiled.asm["llir"])
    shared, alone = codes
    assert "atomicrmw" in shared or "cmpxchg" in shared
    assert "atomicrmw" not in alone
    assert "cmpxchg" not in alone


@tw.jit
def update(x, n, LARGEST: tl.constexpr, SEM: tl.constexpr):
    i = tl.arange(0, 32)
    if LARGEST:
        tl.atomic_max(x + i % 3, i + n, sem=SEM)
    else:
        tl.atomic_add(x + i % 3, i + n, sem=SEM)


@pytest.mark.parametrize(("largest", "sem"), [(False, "acq_rel"), (True, "relaxed")])
def test_only_relaxed_additions_are_ordinary(largest: bool, sem: str) -> None:
    x = np.zeros(3, np.int32)
    compiled = update[(1,)](x, 1, largest, sem, single_threaded=True)
    assert "atomicrmw" in compiled.asm["llir"]


@tw.jit
def add_rows(x, at, values, mask, n, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    i = tl.program_id(0) * WIDTH * ROWS + tl.arange(0, WIDTH * ROWS)
    row, column = i // WIDTH, i % WIDTH
    chosen = (i < n) & (tl.load(mask + i, i < n, 0) > 0)
    place = x + tl.load(at + row, i < n) * WIDTH + column
    tl.atomic_add(place, tl.load(values + i, i < n), chosen, sem="relaxed")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint64])
@pytest.mark.parametrize("width", [64, 16, 8, 4, 2, 1])
def test_single_threaded_launches_add_adjacent_elements_as_vectors(dtype: type, width: int) -> None:
    rng = np.random.default_rng(1)
    rows = 50
    # Rows occur more than once, next to each other as well.
    at = np.repeat(rng.integers(0, 7, rows // 2), 2).astype(np.int64)
    values = rng.integers(0, 5, (rows, width)).astype(dtype)
    mask = rng.integers(0, 2, (rows, width)).astype(np.int8)
    last = rows * width - 3
    expected = np.zeros((7, width), dtype)
    counted = mask.astype(bool) & (np.arange(rows * width) < last).reshape(rows, width)
    np.add.at(expected, at, np.where(counted, values, 0).astype(dtype))
    x = np.zeros_like(expected)
    add_rows[(tw.cdiv(rows, 4),)](x, at, values, mask, last, width, 4, single_threaded=True)
    np.testing.assert_array_equal(x, expected)


@tw.jit
def accumulate(x, y, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.atomic_add(x + i, tl.load(y + i, i < n), i < n, sem="relaxed")


def test_vectors_are_added_without_a_loop_over_their_lanes() -> None:
    x, y = np.ones(1000, np.float32), np.arange(1000, dtype=np.float32)
    compiled = accumulate[(2,)](x, y, x.size, 512, single_threaded=True)
    np.testing.assert_array_equal(x, 1 + y)
    assert "alloca" not in compiled.asm["llir"]

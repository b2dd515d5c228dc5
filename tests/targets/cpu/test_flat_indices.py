"""Indices that are split by `%` and `//`: where the lanes stay within one run, accesses are those
of vectors, and of one element where all lanes have one quotient; elsewhere they are gathers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets.cpu.harness import assert_same, host
from tests.targets.cpu.test_kernels import module_of
from tilewright.targets.cpu.codegen import generate

BLOCK = 256


@tw.jit
def scale_channels(x, scale, o, n, C: tl.constexpr, BLOCK: tl.constexpr):
    """The channel is the last axis."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(o + i, tl.load(x + i, mask) * tl.load(scale + i % C, mask), mask)


@tw.jit
def scale_planes(x, scale, o, n, C: tl.constexpr, PLANE: tl.constexpr, BLOCK: tl.constexpr):
    """The channel is the axis before planes of PLANE elements."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(o + i, tl.load(x + i, mask) * tl.load(scale + (i // PLANE) % C, mask), mask)


@tw.jit
def halve_width(x, o, n, C: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The greater of two neighbours, of arrays [..., WIDTH, C]."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    at = i % C + 2 * C * ((i // C) % (WIDTH // 2)) + C * WIDTH * (i // (C * (WIDTH // 2)))
    tl.store(o + i, tl.maximum(tl.load(x + at, mask), tl.load(x + (at + C), mask)), mask)


@tw.jit
def spread_channels(x, o, n, C: tl.constexpr, GAP: tl.constexpr, BLOCK: tl.constexpr):
    """Stores rows of C elements with a gap after each."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(o + (i % C + (C + GAP) * (i // C)), tl.load(x + i, mask), mask)


@tw.jit
def look_up(table, o, first, C: tl.constexpr, BLOCK: tl.constexpr):
    """The remainders of negative numbers are negative: `table` points into an array."""
    i = tl.arange(0, BLOCK)
    at = (i + first) % C
    tl.store(o + i, tl.load(table + (at + C)))
    tl.store(o + BLOCK + i, tl.load(table + ((i + first) // C + BLOCK)))


@tw.jit
def look_up_hash(table, o, C: tl.constexpr, BLOCK: tl.constexpr):
    """The product overflows; most of the hashes are negative."""
    i = tl.arange(0, BLOCK)
    at = (tl.program_id(0) * 1640531520 + i) % C
    tl.store(o + tl.program_id(0) * BLOCK + i, tl.load(table + (at + C)))


@tw.jit
def look_up_modulo(table, o, divisor, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    divisor = tl.multiple_of(divisor, 16)
    tl.store(o + i, tl.load(table + i % divisor))
    tl.store(o + BLOCK + i, tl.load(table + i // divisor))


@tw.jit
def interpolate(x, o, n, C: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of WIDTH channels-last pixels from rows of WIDTH // 2, between two pixels each."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    place = tl.maximum(((i // C) % WIDTH + 0.5) * 0.5 - 0.5, 0.0)
    left = place.to(tl.int32)
    right = tl.minimum(left + 1, WIDTH // 2 - 1)
    row = (i // (C * WIDTH)) * (C * (WIDTH // 2)) + i % C
    a, b = tl.load(x + row + C * left, mask), tl.load(x + row + C * right, mask)
    tl.store(o + i, a + (b - a) * (place - left), mask)


@tw.jit
def look_up_half(table, o, first, C: tl.constexpr, BLOCK: tl.constexpr):
    """The quotients of negative numbers are equal in other runs: `table` points into an array."""
    i = tl.arange(0, BLOCK)
    at = (((i + first) // C) * 0.5 + BLOCK).to(tl.int32)
    tl.store(o + i, tl.load(table + at * C + i % C))


def floats(n: int) -> Any:
    return np.random.default_rng(n).random(n, np.float32)


def counts(kernel: Any, args: list[Any], **constexprs: Any) -> tuple[int, int]:
    """The numbers of gathers and scatters in the kernel's code."""
    text = generate(module_of(kernel, args, **constexprs), host())[0]
    calls = [line for line in text.splitlines() if " call " in line]
    gathers = sum("@llvm.masked.gather" in line for line in calls)
    return gathers, sum("@llvm.masked.scatter" in line for line in calls)


def check(kernel: Any, args: list[Any], programs: int, **constexprs: Any) -> None:
    module = module_of(kernel, args, BLOCK=BLOCK, **constexprs)
    assert_same(module, (programs, 1, 1), args)


@pytest.mark.parametrize("n", [1024, 1000, 3])
@pytest.mark.parametrize("channels", [1, 3, 4, 8, 20, 24, 48, 64, 1000])
def test_channels_last(channels: int, n: int) -> None:
    args = [floats(n), floats(channels), np.zeros(n, np.float32), n]
    check(scale_channels, args, 4, C=channels)


@pytest.mark.parametrize("n", [1024, 1000, 3])
@pytest.mark.parametrize("plane", [1, 4, 7, 24, 64, 196])
def test_channels_before_planes(plane: int, n: int) -> None:
    args = [floats(n), floats(5), np.zeros(n, np.float32), n]
    check(scale_planes, args, 4, C=5, PLANE=plane)


@pytest.mark.parametrize("channels", [3, 4, 8, 24, 32])
def test_neighbours_of_channels_last(channels: int) -> None:
    n = 4 * 6 * channels
    args = [floats(2 * n), np.zeros(n, np.float32), n]
    check(halve_width, args, -(-n // BLOCK), C=channels, WIDTH=12)


@pytest.mark.parametrize("channels", [3, 8, 24, 32])
def test_indices_computed_as_floats(channels: int) -> None:
    n = 3 * 12 * channels
    x = floats(n // 2)
    x[channels : channels + 2] = np.nan, np.inf
    args = [x, np.zeros(n, np.float32), n]
    check(interpolate, args, -(-n // BLOCK), C=channels, WIDTH=12)


@pytest.mark.parametrize("first", [0, -8, -129])
def test_indices_computed_as_floats_from_negative_dividends(first: int) -> None:
    args = [floats(2 * BLOCK * 16), np.zeros(BLOCK, np.float32), first]
    check(look_up_half, args, 1, C=16)


@pytest.mark.parametrize("n", [512, 500])
@pytest.mark.parametrize("channels", [3, 4, 8, 24, 32])
def test_stores_of_rows_with_gaps(channels: int, n: int) -> None:
    rows = -(-2 * BLOCK // channels)
    args = [floats(n), np.zeros(rows * (channels + 5), np.float32), n]
    check(spread_channels, args, 2, C=channels, GAP=5)


@pytest.mark.parametrize("first", [0, -1, -8, -64, -129])
@pytest.mark.parametrize("divisor", [8, 16, 64])
def test_dividends_that_may_be_negative(divisor: int, first: int) -> None:
    args = [floats(2 * BLOCK), np.zeros(2 * BLOCK, np.float32), first]
    check(look_up, args, 1, C=divisor)


def test_dividends_that_overflow_on_purpose() -> None:
    args = [floats(64), np.zeros(8 * BLOCK, np.float32)]
    check(look_up_hash, args, 8, C=16)


@pytest.mark.parametrize("divisor", [0, 16, 32])
def test_divisors_known_at_run_time(divisor: int) -> None:
    """A remainder by 0 is 0, at every lane."""
    args = [floats(BLOCK), np.zeros(2 * BLOCK, np.float32), divisor]
    check(look_up_modulo, args, 1)


def test_runs_as_long_as_vectors_need_no_gather() -> None:
    x, n = floats(1024), 1024
    scaled = [x, floats(64), x, n]
    assert counts(scale_channels, scaled, C=64, BLOCK=BLOCK) == (0, 0)
    assert counts(scale_channels, scaled, C=3, BLOCK=BLOCK) != (0, 0)
    # One where the mask ends within a vector.
    assert counts(scale_planes, scaled, C=5, PLANE=64, BLOCK=BLOCK) == (1, 0)
    assert counts(halve_width, [x, x, n], C=32, WIDTH=12, BLOCK=BLOCK) == (0, 0)
    assert counts(spread_channels, [x, x, n], C=32, GAP=5, BLOCK=BLOCK) == (0, 0)
    assert counts(interpolate, [x, x, n], C=32, WIDTH=16, BLOCK=BLOCK) == (0, 0)


def test_shorter_runs_are_shorter_vectors() -> None:
    x, n = floats(1024), 1024
    for channels in (4, 20):
        assert counts(scale_channels, [x, x, x, n], C=channels, BLOCK=BLOCK) == (0, 0)
        assert counts(spread_channels, [x, x, n], C=channels, GAP=5, BLOCK=BLOCK) == (0, 0)

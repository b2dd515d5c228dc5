"""Non-temporal stores: where they are used, and that they store the same values.

A machine with a cache of one byte makes every launch a large one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.arrays import aligned
from tests.targets.cpu.harness import both, host, run_text
from tests.targets.cpu.test_kernels import module_of
from tests.targets.cpu.test_prefetch import floats
from tilewright.base.record import replace
from tilewright.targets.cpu.codegen import generate

TINY = replace(host(), cache_bytes=1)
GUARD = 64  # elements after an output that must not change


@tw.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, total, mask=inside)


@tw.jit
def shares_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Each row over its sum: the row is walked over several times."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    x = tl.exp(tl.load(x_ptr + row + at, mask=at < columns, other=0.0))
    x = tl.where(at < columns, x, 0.0)
    tl.store(out_ptr + row + at, x / tl.sum(x), mask=at < columns)


@tw.jit
def twice_kernel(x_ptr, n, BLOCK: tl.constexpr):
    """In place, and read again by the same program."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=inside) + 1, mask=inside)
    tl.debug_barrier()
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=inside) * 3, mask=inside)


@tw.jit
def counted_kernel(x_ptr, count_ptr, BLOCK: tl.constexpr):
    """Signals that its results are written."""
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at.to(tl.float32))
    tl.atomic_add(count_ptr, 1)


@tw.jit
def kept_kernel(x_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at.to(tl.float32), eviction_policy="evict_last")


def agree(fn: Any, programs: int, args: list[Any], **constexprs: Any) -> str:
    """Run on the tiny machine and interpreted; the code."""
    module = module_of(fn, args, **constexprs)
    ours, theirs = both(module, (programs, 1, 1), args, machine=TINY)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)
    return generate(module, TINY)[0]


class Placed(np.ndarray):
    """An array whose copies begin as far from a cache line as it does."""

    def copy(self, order: Any = "C") -> Placed:
        return placed(np.asarray(self), self.ctypes.data % 64)


def placed(values: np.ndarray, offset: int) -> Placed:
    return aligned(values, offset).view(Placed)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int32])
@pytest.mark.parametrize("offset", [0, 16, 32, 8])
@pytest.mark.parametrize("n", [512, 509, 33, 1])
def test_additions(dtype: Any, offset: int, n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = (placed(rng.integers(-50, 50, n + GUARD).astype(dtype), 0) for _ in range(2))
    out = placed(np.zeros(n + GUARD, dtype), offset)
    code = agree(add_kernel, 4, [x, y, out, np.int32(n)], BLOCK=128)
    assert "!nontemporal" in code


@tw.jit
def uneven_kernel(x_ptr, out_ptr):
    at = tl.program_id(0) * 20 + tl.arange(0, 20).reshape(4, 5)
    tl.store(out_ptr + at, tl.load(x_ptr + at) + 1)


def test_vectors_of_other_lengths_than_powers_of_two_are_not_aligned() -> None:
    x, out = placed(np.arange(40, dtype=np.int32), 0), placed(np.zeros(40, np.int32), 0)
    assert "!nontemporal" not in agree(uneven_kernel, 2, [x, out])


@pytest.mark.parametrize("columns", [256, 250, 16])
def test_rows_that_are_read_again(columns: int) -> None:
    x = placed(np.random.default_rng(3).normal(size=(5, columns)).astype(np.float32), 0)
    module = module_of(shares_kernel, [x, x, np.int32(columns)], BLOCK=256)
    ours, theirs = both(module, (5, 1, 1), [x, x * 0, np.int32(columns)], machine=TINY)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)
    assert "!nontemporal" in generate(module, TINY)[0]


def test_results_are_read_again_by_their_program() -> None:
    args = [placed(np.ones(384, np.float32), 0), np.int32(380)]
    assert "!nontemporal" in agree(twice_kernel, 3, args, BLOCK=128)


@pytest.mark.parametrize("size", [64, 4096])
def test_programs_that_wait_for_one_another_store_in_order(size: int) -> None:
    args = [placed(np.zeros(size, np.float32), 0), np.zeros(1, np.int32)]
    assert "!nontemporal" not in agree(counted_kernel, 1, args, BLOCK=size)


def test_data_that_is_read_again_stays_in_the_caches() -> None:
    args = [placed(np.zeros(256, np.float32), 0)]
    assert "!nontemporal" not in agree(kept_kernel, 1, args, BLOCK=256)


def _streams(cache_bytes: int, programs: int) -> bool:
    """Whether a launch goes past the caches: seen by leaving out what such stores would write."""
    x = floats(programs * 128)
    out = placed(np.zeros_like(x), 0)
    args = [x, x, out, np.int32(len(x))]
    module = module_of(add_kernel, args, BLOCK=128)
    machine = replace(host(), cache_bytes=cache_bytes)
    text, scratch = generate(module, machine)
    kept = [
        line for line in text.splitlines() if not (", !nontemporal" in line and "store" in line)
    ]
    assert len(kept) < len(text.splitlines())
    name, grid = module.entry.name, (programs, 1, 1)
    run_text("\n".join(kept), name, scratch, grid, args, machine=machine)
    return not out.any()


@pytest.mark.parametrize("programs", [1, 7, 8, 20])
def test_launches_are_large_from_three_quarters_of_the_cache(programs: int) -> None:
    moved = 3 * 4 * 128 * programs
    assert _streams(moved * 4 // 3, programs)
    assert not _streams((moved + 3 * 4 * 128) * 4 // 3, programs)

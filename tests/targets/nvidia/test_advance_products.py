"""Loops in which the first product of the next iteration starts before a block is added.

`test_attention_gradients` looks at the order of products of one; here are loops of other forms.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.gpu.products import rng_of
from tests.gpu.programs import Program
from tests.targets.nvidia.test_products import check, compiled
from tilewright.base import knobs

M, N, D = 128, 64, 128


@tw.jit
def rows_kernel(
    q_ptr, k_ptr, sums_ptr, out_ptr, first, last, ALSO_ROWS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Of tiles of rows of k: pᵀ q is added to sums, and the sum of p k is stored, for p = q kᵀ."""
    m, n, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    place = m[:, None] * D + d
    q = tl.load(q_ptr + place)
    total = tl.zeros((M, D), tl.float32)
    for step in range(first, last):
        rows = (step * N + n)[:, None] * D + d
        k = tl.load(k_ptr + rows)
        p = (tl.dot(q, tl.trans(k)) * 0.125).to(q.dtype)
        by_row = tl.dot(tl.trans(p), q)
        if ALSO_ROWS:
            total = tl.dot(p, k, total)
        tl.atomic_add(sums_ptr + rows, by_row, sem="relaxed")
    tl.store(out_ptr + place, total)


def rows(first: int, last: int, *, also_rows: bool = True) -> Program:
    rng = rng_of(first, last)
    q, k = (0.3 * rng.normal(size=(r, D)).astype(np.float16) for r in (M, 8 * N))
    q, k = q.astype(np.float16), k.astype(np.float16)
    sums, total = np.zeros((8 * N, D), np.float32), np.zeros((M, D), np.float32)
    x = q.astype(np.float32)
    for start in range(first * N, last * N, N):
        part = k[start : start + N].astype(np.float32)
        p = (x @ part.T * 0.125).astype(np.float16).astype(np.float32)
        sums[start : start + N] += p.T @ x
        total += p @ part if also_rows else 0
    constants = {"ALSO_ROWS": also_rows, "M": M, "N": N, "D": D}
    args = [q, k, np.zeros_like(sums), np.zeros_like(total), first, last]
    return Program(rows_kernel, args, constants, (1,), 2e-2, [q, k, sums, total])


@pytest.mark.parametrize(("first", "last"), [(0, 0), (3, 2), (0, 1), (2, 4), (1, 8)])
def test_any_number_of_iterations(first: int, last: int) -> None:
    program = rows(first, last)
    module, ctx = compiled(program, num_warps=8, num_stages=4)
    assert ctx.counts["advanced products"] == 1
    check(program, module, seed=last)


@pytest.mark.parametrize(
    ("also_rows", "warps", "stages"),
    [
        pytest.param(False, 8, 4, id="the slot is released before the block is added"),
        pytest.param(True, 8, 1, id="no warp copies"),
    ],
)
def test_others_are_not_advanced(also_rows: bool, warps: int, stages: int) -> None:
    program = rows(0, 4, also_rows=also_rows)
    module, ctx = compiled(program, num_warps=warps, num_stages=stages)
    assert not ctx.counts["advanced products"]
    check(program, module, seed=1)


def test_it_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.compilation, "disabled_passes", "advance_products")
    _, ctx = compiled(rows(0, 4), num_warps=8, num_stages=4)
    assert not ctx.counts["advanced products"]

"""Matrices that are only used transposed are computed transposed, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import copied, forward_module, run_forward
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, Step, run
from tilewright.ops.arith import Constant
from tilewright.ops.dot import Dot
from tilewright.ops.memory import Load
from tilewright.ops.shape import Broadcast, ExpandDims, Permute, Splat
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.transpose_tiles import transpose_tiles

STEPS = (Step(transpose_tiles), Step(canonicalize), Step(remove_dead_code))

KERNEL = """
def kernel(q_ptr, k_ptr, m_ptr, y_ptr, z_ptr, n):
    i, j, d = tl.arange(0, 4), tl.arange(0, 8), tl.arange(0, 16)
    q = tl.load(q_ptr + i[:, None] * 16 + d[None, :])
    k = tl.load(k_ptr + j[:, None] * 16 + d[None, :])
    m = tl.load(m_ptr + i)
    y = tl.zeros([8, 16], tl.float64)
    for _ in range(n):
        s = tl.dot(q, tl.trans(k)) * 0.5
        {between}
        p = tl.exp(s - m[:, None])
        y = tl.dot(tl.trans(p), q, y)
    tl.store(y_ptr + j[:, None] * 16 + d[None, :], y)
"""
TRANSPOSED = (
    {},
    {"between": "s = tl.where(i[:, None] >= j[None, :], s, -1.0)"},
    {"between": "s = tl.where((i[:, None] - 1 >= j[None, :]) & (m[:, None] > 0), s, -1.0)"},
    {"between": "s = s * tl.dot(q * 1.0, tl.trans(k)).to(tl.float32)"},
    {"between": "y = tl.dot(tl.trans(s * s), q, y)"},
)
TRANSPOSED_BACK = "tl.store(m_ptr + i, tl.sum(tl.dot(u, k), 1))"
AS_WRITTEN = (
    {"between": "tl.store(z_ptr + i[:, None] * 8 + j[None, :], s)"},
    {"between": "m = m + tl.sum(s, 1)"},
    {"between": "s += tl.load(z_ptr + i[:, None] * 8 + j[None, :])"},
    {"between": "s = tl.dot(tl.exp(q), tl.trans(k))"},
)


def _module(change: dict[str, str]) -> tuple[Module, dict[str, Any]]:
    rng = np.random.default_rng(0)
    args: dict[str, Any] = {
        "q_ptr": rng.uniform(-1, 1, (4, 16)), "k_ptr": rng.uniform(-1, 1, (8, 16)),
        "m_ptr": rng.uniform(-1, 1, 4), "y_ptr": np.zeros((8, 16)),
        "z_ptr": rng.uniform(0, 1, (4, 8)), "n": 2,
    }  # fmt: skip
    return forward_module(KERNEL.format(**{"between": "", **change}), args, {}), args


def _transposed_in_registers(module: Module) -> int:
    """The transposes of matrices that are computed, not loaded or repeated."""
    still = Load | Constant | Splat | Broadcast | ExpandDims
    return sum(
        isinstance(op, Permute) and op.src.op is not None and not isinstance(op.src.op, still)
        for op in module.walk()
    )


def _check(change: dict[str, str]) -> int:
    module, args = _module(change)
    before, after = copied(args), copied(args)
    run_forward(module, 1, before)
    assert _transposed_in_registers(module) > 0
    products = sum(isinstance(op, Dot) for op in module.walk())
    run(module, STEPS, PassContext())
    assert sum(isinstance(op, Dot) for op in module.walk()) == products
    run_forward(module, 1, after)
    for name in ("y_ptr", "z_ptr"):
        np.testing.assert_allclose(after[name], before[name], rtol=1e-12)
    return _transposed_in_registers(module)


@pytest.mark.parametrize("change", TRANSPOSED, ids=str)
def test_what_is_only_used_transposed_is_computed_transposed(change: dict[str, str]) -> None:
    assert _check(change) == 0


@pytest.mark.parametrize("change", AS_WRITTEN, ids=str)
def test_what_has_another_use_stays(change: dict[str, str]) -> None:
    assert _check(change) > 0


@pytest.mark.parametrize("others", [1, 2])
def test_a_factor_is_transposed_back_where_that_saves_transposes(others: int) -> None:
    """The transposes of u and p are saved for one of u, but not for one of both."""
    between = f"u = s * s; y = tl.dot(tl.trans(u), q, y); {TRANSPOSED_BACK}"
    if others == 2:
        between += "; p = tl.exp(s - m[:, None]); u = p; " + TRANSPOSED_BACK
    module, args = _module({"between": between})
    run(module, (Step(canonicalize), Step(merge_equal_values)), PassContext())
    before, after = copied(args), copied(args)
    run_forward(module, 1, before)
    assert _transposed_in_registers(module) == 2
    assert transpose_tiles(module.entry, PassContext()) == (others == 1)
    run(module, (Step(canonicalize), Step(remove_dead_code)), PassContext())
    assert _transposed_in_registers(module) == others
    run_forward(module, 1, after)
    for name in ("y_ptr", "m_ptr"):
        np.testing.assert_allclose(after[name], before[name], rtol=1e-12)


def test_without_a_transpose_nothing_changes() -> None:
    module, _ = _module({})
    run(module, STEPS, PassContext())
    assert not transpose_tiles(module.entry, PassContext())

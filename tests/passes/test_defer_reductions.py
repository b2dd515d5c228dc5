"""Accumulated reductions are completed after the loop, with the same results."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.lowering.simt.harness import assert_same, comparison, laid_out
from tests.targets.nvidia.lowered import ptx_of
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ops.control import For
from tilewright.ops.reduce import Reduce
from tilewright.passes import defer_reductions
from tilewright.tools.signature import source_of


@tw.jit
def nan_maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@tw.jit
def floats_kernel(x, out, rows, n, R: tl.constexpr, BLOCK: tl.constexpr):
    """Extrema of rows and of all; `out` holds the initial values."""
    row, lanes = tl.arange(0, R), tl.arange(0, BLOCK)
    most = tl.load(out + row)
    least = tl.load(out + R)
    marked = tl.load(out + R + 1)
    for i in range(n):
        v = tl.load(x + i * R * BLOCK + row[:, None] * BLOCK + lanes[None, :])
        most = tl.maximum(tl.max(v, 1), most)
        least = tl.minimum(least, tl.min(tl.min(v, 1), 0))
        marked = nan_maximum(marked, tl.reduce(tl.reduce(v, 1, nan_maximum), 0, nan_maximum))
    tl.store(out + row, most)
    tl.store(out + R, least)
    tl.store(out + R + 1, marked)


@tw.jit
def integers_kernel(x, out, rows, n, R: tl.constexpr, BLOCK: tl.constexpr):
    row, lanes = tl.arange(0, R), tl.arange(0, BLOCK)
    total = tl.load(out + row)
    most = tl.load(out + R + row)
    least = tl.load(out + 2 * R)
    ends = tl.load(out + 2 * R + 1)
    odd = tl.load(out + 2 * R + 2)
    for i in range(n):
        v = tl.load(x + i * R * BLOCK + row[:, None] * BLOCK + lanes[None, :])
        total += tl.sum(v, 1, dtype=v.dtype)
        most = tl.maximum(most, tl.max(v, 1))
        column = tl.min(v, 0)
        least = tl.minimum(tl.min(column, 0), least)
        odd ^= tl.xor_sum(column, 0)
        ends |= tl.reduce_or(column, 0)
    tl.store(out + row, total)
    tl.store(out + R + row, most)
    tl.store(out + 2 * R, least)
    tl.store(out + 2 * R + 1, ends)
    tl.store(out + 2 * R + 2, odd)


@tw.jit
def sums_kernel(x, out, rows, n, R: tl.constexpr, BLOCK: tl.constexpr):
    row, lanes = tl.arange(0, R), tl.arange(0, BLOCK)
    total = tl.load(out + row)
    whole = 0.0
    for i in range(n):
        v = tl.load(x + i * R * BLOCK + row[:, None] * BLOCK + lanes[None, :])
        total += tl.sum(v * v, 1)
        whole += tl.sum(v)
    tl.store(out + row, total)
    tl.store(out + R, whole)


@tw.jit
def softmax_kernel(x, out, rows, n, R: tl.constexpr, BLOCK: tl.constexpr):
    """The sums of a softmax of rows, and of all, scaled down when a greater maximum is found."""
    row, lanes = tl.arange(0, R), tl.arange(0, BLOCK)
    most, total = tl.load(out + row), tl.load(out + R + row)
    greatest, whole = tl.load(out + 2 * R), tl.load(out + 2 * R + 1)
    for i in range(n):
        v = tl.load(x + i * R * BLOCK + row[:, None] * BLOCK + lanes[None, :])
        before, most = most, tl.maximum(most, tl.max(v, 1))
        total = total * tl.exp2(before - most) + tl.sum(tl.exp2(v - most[:, None]), 1)
        less, greatest = greatest, tl.maximum(tl.max(tl.max(v, 1), 0), greatest)
        flat = tl.reshape(v, (R * BLOCK,))
        whole = tl.sum(tl.exp2(flat - greatest)) + tl.exp2(less - greatest) * whole
    tl.store(out + row, most)
    tl.store(out + R + row, total)
    tl.store(out + 2 * R, greatest)
    tl.store(out + 2 * R + 1, whole)


@tw.jit
def growing_kernel(x, out, rows, n, R: tl.constexpr, BLOCK: tl.constexpr):
    """Factors that may be infinite, for which a partial sum of 0 would make the sum NaN."""
    row, lanes = tl.arange(0, R), tl.arange(0, BLOCK)
    total, most = tl.load(out + row), tl.load(out + R + row)
    for i in range(n):
        v = tl.load(x + i * R * BLOCK + row[:, None] * BLOCK + lanes[None, :])
        before, most = most, tl.minimum(most, tl.min(v, 1))
        total = total * tl.exp2(before - most) + tl.sum(v, 1)
    tl.store(out + row, total)
    tl.store(out + R + row, most)


R, BLOCK = 4, 64


def module_of(kernel: Any, type: str) -> Module:
    signature = f"*{type}:16, *{type}:16, i32, i32"
    return source_of(kernel, signature, {"R": R, "BLOCK": BLOCK}).module(FrontendOptions())


def in_loops(module: Module) -> int:
    """The number of reductions across threads in loops: those of an axis that threads share."""
    loops = [op for op in module.entry.walk() if isinstance(op, For)]
    reductions = [op for loop in loops for op in loop.body.walk() if isinstance(op, Reduce)]
    return sum(
        defer_reductions.is_across_threads(layout, op.axis)
        for op in reductions
        if (layout := op.srcs[0].layout) is not None
    )


MACHINES = [{"lanes": 8, "warps": 1}, {"lanes": 8, "warps": 4}, {"lanes": 32, "warps": 2}]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("n", [0, 1, 3])
def test_extrema_of_floats_are_exact(machine: dict[str, Any], n: int) -> None:
    rng = np.random.default_rng(n)
    module = module_of(floats_kernel, "fp32")
    # Of min(min(v, 1), 0), the inner one, unless the outer one is across threads, too.
    assert in_loops(laid_out(module, **machine)) == (2 if machine["warps"] == 1 else 0)
    compare = comparison(module, **machine)
    for special in ([], [np.nan], [np.inf, -np.inf, 0.0, -0.0, np.nan], [-0.0, 0.0]):
        x = rng.standard_normal(n * R * BLOCK).astype(np.float32)
        if special:
            x = np.where(rng.random(x.shape) < 0.5, x, rng.choice(special, x.shape))
        for first in (-1.5, np.nan, -np.inf, -0.0):
            out = np.full(R + 2, first, np.float32)
            compare([x.astype(np.float32), out, R, n])
        x[:] = np.nan if special else -0.0
        out = np.full(R + 2, -0.0, np.float32)
        compare([x.astype(np.float32), out, R, n])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("type", ["i32", "u32", "i64", "u64"])
def test_integers_are_exact(machine: dict[str, Any], type: str) -> None:
    dtype = np.dtype(type.replace("u", "uint") if type[0] == "u" else type.replace("i", "int"))
    limits = np.iinfo(dtype)
    rng, module = np.random.default_rng(1), module_of(integers_kernel, type)
    assert in_loops(laid_out(module, **machine)) <= 1  # of `column`, which has three uses
    compare = comparison(module, **machine)
    for n in (0, 1, 3):
        x = rng.integers(limits.min, limits.max, n * R * BLOCK, dtype, endpoint=True)
        out = rng.integers(limits.min, limits.max, 2 * R + 3, dtype)
        compare([x, out, R, n])


@pytest.mark.parametrize("machine", MACHINES)
def test_sums_of_floats(machine: dict[str, Any]) -> None:
    """Exact where all sums are; and -0.0 in total if all summands are."""
    module = module_of(sums_kernel, "fp32")
    assert in_loops(laid_out(module, **machine)) == 0
    compare = comparison(module, **machine)
    for n in (0, 1, 5):
        x = np.random.default_rng(n).integers(-9, 9, n * R * BLOCK).astype(np.float32)
        compare([x, np.ones(R + 1, np.float32), R, n])
        x[:] = -0.0
        compare([x, np.ones(R + 1, np.float32), R, n])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_sums_that_are_scaled_down(
    machine: dict[str, Any], n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact where all sums are: of powers of two. The initial value counts once."""
    module = module_of(softmax_kernel, "fp32")
    loops = in_loops(laid_out(module, **machine))
    monkeypatch.setattr(defer_reductions, "_is_shrinking", lambda factor: False)
    assert in_loops(laid_out(module, **machine)) == loops + 2
    monkeypatch.undo()
    compare = comparison(module, **machine)
    rng = np.random.default_rng(n)
    for special in ([], [-np.inf], [np.inf], [np.nan]):
        x = rng.integers(-4, 4, n * R * BLOCK).astype(np.float32)
        if special:
            x = np.where(rng.random(x.shape) < 0.01, rng.choice(special, x.shape), x)
        for most, total in ((-3.0, 5.0), (9.0, 5.0), (-np.inf, 0.0), (np.nan, 1.0)):
            out = np.array([most] * R + [total] * R + [most, total], np.float32)
            compare([x.astype(np.float32), out, R, n])


@pytest.mark.parametrize("machine", MACHINES)
def test_sums_that_may_grow_keep_their_order(
    machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of(growing_kernel, "fp32")
    x = np.zeros(2 * R * BLOCK, np.float32)
    x[::BLOCK] = 1.0
    x[R * BLOCK + 1 :: BLOCK] = -200.0  # 2**200 is infinite
    out = np.zeros(2 * R, np.float32)
    assert_same(module, (1, 1, 1), [x, out, R, 2], **machine)
    monkeypatch.setattr(defer_reductions, "_is_shrinking", lambda factor: True)
    with pytest.raises(AssertionError, match="differs"):
        assert_same(module, (1, 1, 1), [x, out, R, 2], **machine)


def test_shuffles_are_after_the_loop() -> None:
    ptx = ptx_of(module_of(sums_kernel, "fp32"), num_warps=4)
    branches = re.finditer(r"bra\s+(\$\w+);", ptx)
    ends = [found.start() for found in branches if 0 < ptx.find(f"{found[1]}:") < found.start()]
    assert ends
    assert ptx.index("shfl") > max(ends)
    assert ptx.index("bar.sync") > max(ends)


def test_wrong_identity_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defer_reductions, "_identity", lambda op: 0)
    with pytest.raises(AssertionError, match="differs"):
        test_integers_are_exact(MACHINES[0], "i32")

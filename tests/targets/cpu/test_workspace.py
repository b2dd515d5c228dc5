"""The workspace of a program: buffers of dead tiles are reused, those of live ones are not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from benchmarks.compile_forms import flips_kernel, fourier_kernel, sums_kernel
from tests.fuzz.checks import CHECKS
from tests.targets.cpu.harness import assert_same, host
from tests.targets.cpu.test_kernels import module_of
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.passes import PassContext, run
from tilewright.targets.cpu import kernel as cpu_kernel
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.workspace import Workspace


@tw.jit
def held_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    """A chain of tiles, each read by the next, and one that is read at the end."""
    i = tl.arange(0, N)
    v = tl.load(x + i)
    first = tl.flip(v, 0) * 2
    for _ in tl.static_range(STEPS):
        v = v * 3 + tl.flip(v, 0)
    tl.store(o + i, v + tl.flip(first, 0))


@tw.jit
def carried_kernel(x, o, n, N: tl.constexpr, STEPS: tl.constexpr):
    """Tiles that loops carry, and tiles that die within an iteration or a branch."""
    i = tl.arange(0, N)
    v = tl.load(x + i)
    w = v + 1
    for k in range(n):
        a = tl.flip(v, 0) * 3 + w
        b = tl.flip(a, 0) - v
        if k % 2 == 0:
            c = tl.flip(b * 5, 0) + tl.cumsum(a, 0)
            w = tl.flip(c, 0) + b
        else:
            w = tl.flip(a, 0) + tl.flip(b, 0)
        for _ in range(STEPS):
            v = tl.flip(v, 0) * 3 + w
    tl.store(o + i, v + tl.flip(w, 0))


def workspace_of(kernel: Any, steps: int, n: int) -> int:
    arrays = [np.ones(2 * n, np.float32), np.zeros(2 * n, np.float32)]
    module = module_of(kernel, arrays, N=n, STEPS=steps)
    run(module, STEPS, PassContext())
    return generate(module, host())[1]


@pytest.mark.parametrize("kernel", [flips_kernel, sums_kernel, fourier_kernel, held_kernel])
def test_the_workspace_does_not_grow_with_the_number_of_steps(kernel: Any) -> None:
    few, many = (workspace_of(kernel, steps, 8192) for steps in (20, 31))
    assert 0 < many <= few + 2 * 8192 * 4


def test_a_chain_needs_the_buffers_of_one_step() -> None:
    """One tile is read while the next is written."""
    assert workspace_of(flips_kernel, 50, 8192) == 2 * 8192 * 4
    assert workspace_of(held_kernel, 50, 8192) <= 3 * 8192 * 4


@pytest.mark.parametrize("steps", [1, 9, 30])
@pytest.mark.parametrize("n", [96, 4096])
def test_reused_buffers_hold_what_is_read(
    monkeypatch: pytest.MonkeyPatch, steps: int, n: int
) -> None:
    monkeypatch.setattr(cpu_kernel, "STACK_BYTES", 0)
    x, o = np.arange(n, dtype=np.int32) * 7919, np.zeros(n, np.int32)
    assert_same(module_of(held_kernel, [x, o], N=n, STEPS=steps), (1, 1, 1), [x, o])


@pytest.mark.parametrize("n", [96, 2048])
def test_buffers_in_loops_and_branches(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    monkeypatch.setattr(cpu_kernel, "STACK_BYTES", 0)
    x, o = np.arange(n, dtype=np.int32) * 7919, np.zeros(n, np.int32)
    for count in (0, 1, 5):
        args = [x, o.copy(), count]
        assert_same(module_of(carried_kernel, args, N=n, STEPS=3), (2, 1, 1), args)


@pytest.mark.parametrize("check", ["programs", "kernels", "views"])
def test_random_programs_with_all_buffers_in_the_workspace(
    monkeypatch: pytest.MonkeyPatch, check: str, fuzz_seed: int
) -> None:
    monkeypatch.setattr(cpu_kernel, "STACK_BYTES", 0)
    if fuzz_seed % 4 == 0:
        CHECKS[check](1_000_000 + fuzz_seed)


def test_blocks_do_not_overlap() -> None:
    """Random requests; the workspace is never larger than all live blocks and the gaps."""
    rng = random.Random(0)
    workspace, live = Workspace(), list[tuple[int, int]]()
    most = 0
    for _ in range(3000):
        if live and rng.random() < 0.5:
            workspace.give_back(*live.pop(rng.randrange(len(live))))
        else:
            size = 64 * rng.choice((1, 2, 3, 8, 64))
            start = workspace.take(size)
            assert all(start + size <= s or s + n <= start for s, n in live)
            assert start + size <= workspace.bytes
            live.append((start, size))
        most = max(most, sum(n for _, n in live))
    assert workspace.bytes < 1.5 * most
    for block in live:
        workspace.give_back(*block)
    assert workspace.take(workspace.bytes) == 0

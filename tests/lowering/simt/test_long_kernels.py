"""Kernels that are long chains of ops: the code of a thread grows with their length, no faster.

What is counted is lines of LLVM IR, which stand for the work of a thread too: where layouts make
threads hold copies, it is the lines that multiply.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from benchmarks.compile_forms import (
    flips_kernel,
    fourier_kernel,
    gathers_kernel,
    joins_kernel,
    reshapes_kernel,
    shapes_kernel,
    sums_kernel,
)
from tests.lowering.simt.emulator import EmulatedHardware
from tests.lowering.simt.harness import assert_same, laid_out
from tests.targets.cpu.test_kernels import module_of
from tilewright.ir.passes import PassContext
from tilewright.lowering.simt.kernel import Kernel


@tw.jit
def hadamard_by_sums(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    signs = 1.0 - 2.0 * tl.arange(0, 2)
    for _ in tl.static_range(STEPS):
        halves = tl.reshape(v, (2, N // 2))
        v = tl.reshape(tl.join(tl.sum(halves, 0), tl.sum(halves * signs[:, None], 0)), (N,))
    tl.store(o + i, v)


@tw.jit
def swaps_of_halves(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(STEPS):
        halves = tl.reshape(v, (2, N // 2))
        v = tl.cat(tl.max(halves, 0), tl.min(halves, 0), can_reorder=True)
    tl.store(o + i, v)


FAMILIES = [
    *(flips_kernel, reshapes_kernel, gathers_kernel, joins_kernel, shapes_kernel, sums_kernel),
    *(fourier_kernel, hadamard_by_sums, swaps_of_halves),
]


def floats(n: int) -> Any:
    return np.random.default_rng(n).random(2 * n, np.float32)


def module(kernel: Any, n: int, steps: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of `can_reorder`
        return module_of(kernel, [floats(n), floats(n)], N=n, STEPS=steps)


def code_of(kernel: Any, steps: int, n: int, warps: int, lanes: int) -> list[str]:
    """Lines of LLVM IR of a thread of a kernel with this number of steps."""
    ready = laid_out(module(kernel, n, steps), warps=warps, lanes=lanes)
    text = Kernel(ready.entry, EmulatedHardware(lanes), warps, ctx=PassContext()).emit()
    return text.splitlines()


def test_reductions_share_the_predicates_of_lane_and_warp() -> None:
    """LLVM's instruction combining takes a time of uses by branches on such a value.

    Comparisons of 64 bits are the emulator's checks of alignment.
    """
    few, many = (code_of(sums_kernel, steps, 128, 4, 32) for steps in (5, 50))
    assert any("icmp eq i32" in line for line in few)
    assert sum("icmp eq i32" in line for line in few) == sum("icmp eq i32" in line for line in many)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("warps", "lanes"), [(4, 32), (2, 64)])
@pytest.mark.parametrize("n", [128, 1024])
@pytest.mark.parametrize("kernel", FAMILIES, ids=lambda k: k.__name__)
def test_code_grows_with_the_number_of_steps(kernel: Any, n: int, warps: int, lanes: int) -> None:
    few, more, many = (len(code_of(kernel, steps, n, warps, lanes)) for steps in (5, 10, 20))
    assert many - more <= 2.5 * (more - few) + 100
    assert many < 20 * 250 * max(1, n // 128)


@pytest.mark.parametrize(("warps", "lanes"), [(1, 8), (4, 8), (2, 64)])
@pytest.mark.parametrize("kernel", FAMILIES, ids=lambda k: k.__name__)
def test_long_chains_agree_with_the_interpreter(kernel: Any, warps: int, lanes: int) -> None:
    n = 128
    x, o = floats(n), np.zeros(2 * n, np.float32)
    inexact = kernel in (fourier_kernel, sums_kernel)
    assert_same(module(kernel, n, 6), (1, 1, 1), [x, o], close=inexact, warps=warps, lanes=lanes)

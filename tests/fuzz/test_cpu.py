"""Random kernels, compiled for the CPU and interpreted, leave the same memory.

Twenty seeds run by default; a long run is
``pytest tests/fuzz/test_cpu.py --fuzz-count=10000 --fuzz-seed=random``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.fuzz.ir_generator import GRID, Features, random_args, random_module
from tests.targets.cpu.harness import PLAIN_AVX2, assert_same, host
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.passes import PassContext, run

EXACT = Features(math=False, float_dot=False, float_sums=False)


@pytest.mark.parametrize("batch", range(10))
def test_random_kernels_agree(batch: int, fuzz_seed: int) -> None:
    seed = fuzz_seed * 10 + batch
    rng = np.random.default_rng(seed)
    module = random_module(rng, size=int(rng.integers(5, 40)), features=EXACT)
    args = random_args(module, rng)
    narrow = seed % 4 == 0 and "avx2" in host().features
    machine = host(PLAIN_AVX2) if narrow else host()
    if seed % 3 == 0:  # every launch is large: stores go past the caches
        machine = replace(machine, cache_bytes=1)
    assert_same(module, (GRID, 1, 1), args, machine=machine)
    run(module, STEPS, PassContext())
    assert_same(module, (GRID, 1, 1), args, machine=machine)

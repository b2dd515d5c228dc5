"""Random kernels, run on the emulated GPU and interpreted, leave the same memory.

A long run is ``pytest tests/fuzz/test_simt.py --fuzz-count=1000 --fuzz-seed=random``.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.ir_generator import GRID, Features, random_args, random_module
from tests.lowering.simt.harness import assert_same
from tilewright.ir.types import Pointer

EXACT = Features(math=False, float_dot=False, float_sums=False, races=False)


@pytest.mark.parametrize("batch", range(10))
def test_random_kernels_agree(batch: int, fuzz_seed: int) -> None:
    seed = fuzz_seed * 10 + batch
    rng = np.random.default_rng(seed)
    warps, lanes = int(rng.choice([1, 2, 4])), int(rng.choice([2, 4, 8, 32, 64]))
    features = EXACT
    module = random_module(rng, size=int(rng.integers(5, 40)), features=features)
    args = random_args(module, rng)
    for arg, attrs in zip(module.entry.args, module.entry.arg_attrs, strict=True):
        if isinstance(arg.type, Pointer) and seed % 3:
            attrs["divisibility"] = 16  # as NumPy's arrays are: accesses become vectors
    assert_same(
        module,
        (GRID, 1, 1),
        args,
        warps=warps,
        lanes=lanes,
        seed=seed,
        tile_passes=bool(seed % 2),
        features=frozenset({"async_copy"} if seed % 4 == 3 else ()),
    )

"""Random kernels, compiled for the CPU and interpreted, leave the same memory.

Many at once are run by ``python -m tests.fuzz.run --kernels=10000``.
"""

from __future__ import annotations

import pytest

from tests.fuzz.checks import kernel


@pytest.mark.parametrize("batch", range(10))
def test_random_kernels_agree(batch: int, fuzz_seed: int) -> None:
    kernel(fuzz_seed * 10 + batch)

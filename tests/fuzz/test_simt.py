"""Random kernels, run on the emulated GPU and interpreted, leave the same memory.

Many at once are run by ``python -m tests.fuzz.run --kernels-emulated=10000``.
"""

from __future__ import annotations

import pytest

from tests.fuzz.checks import kernel_emulated


@pytest.mark.parametrize("batch", range(10))
def test_random_kernels_agree(batch: int, fuzz_seed: int) -> None:
    kernel_emulated(fuzz_seed * 10 + batch)

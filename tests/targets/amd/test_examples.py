"""The kernels of the examples compile for each processor, and fit."""

from __future__ import annotations

import pytest

from tests.targets.amd.examples import STEMS, in_a_process
from tilewright.targets.amd.features import PROCESSORS

# On RDNA3, both halves of a wave hold each operand.
SPILLING = {("gfx1100", "attention.backward_kernel")}


@pytest.mark.parametrize("chip", PROCESSORS)
def test_examples_compile_and_fit(chip: str) -> None:
    found = in_a_process(chip)
    assert {name.partition(".")[0] for name in found} == set(STEMS)
    for name, kernel in found.items():
        assert kernel["warp_size"] == PROCESSORS[chip].lanes
        assert kernel["lds"] == kernel["shared"] <= PROCESSORS[chip].shared_limit, name
        assert kernel["n_regs"] <= 256, name
        assert (kernel["n_spills"] > 0) == ((chip, name) in SPILLING), (name, kernel["n_spills"])

"""The kernels of the examples compile for each processor, and fit."""

from __future__ import annotations

from tests.targets.amd.examples import STEMS, in_a_process
from tilewright.targets.amd.features import PROCESSORS

# On RDNA3, both halves of a wave hold each operand.
SPILLING = {("gfx1100", "attention.backward_kernel")}


def test_examples_compile_and_fit() -> None:
    """For all processors in one process, whose start takes as long as compiling for one."""
    for chip, found in in_a_process(list(PROCESSORS)).items():
        assert {name.partition(".")[0] for name in found} == set(STEMS)
        for name, kernel in found.items():
            at = chip, name
            assert kernel["warp_size"] == PROCESSORS[chip].lanes
            assert kernel["lds"] == kernel["shared"] <= PROCESSORS[chip].shared_limit, at
            assert kernel["n_regs"] <= 256, at
            assert (kernel["n_spills"] > 0) == (at in SPILLING), (at, kernel["n_spills"])

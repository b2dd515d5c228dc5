"""The kernels of the examples compile for each processor, and fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.targets.amd.examples import STEMS, in_a_process
from tilewright.targets.amd.features import PROCESSORS

# On RDNA3, both halves of a wave hold each operand.
SPILLING = {("gfx1100", "attention.backward_kernel")}
COMPLETE = ("gfx1100",)
"""The processors that all examples are compiled for: the others, of which the emulator runs some
examples, share them."""


def compiled_for(all_cases: bool) -> Mapping[str, Sequence[str]]:
    """The examples that are compiled for each processor."""
    if all_cases:
        return dict.fromkeys(PROCESSORS, STEMS)
    others = [chip for chip in PROCESSORS if chip not in COMPLETE]
    shares = {chip: STEMS[number :: len(others)] for number, chip in enumerate(others)}
    return {**dict.fromkeys(COMPLETE, STEMS), **shares}


def test_examples_compile_and_fit(request: pytest.FixtureRequest) -> None:
    """In one process, whose start takes as long as compiling many of them."""
    chips = compiled_for(bool(request.config.getoption("--all-cases")))
    for chip, found in in_a_process(chips).items():
        assert {name.partition(".")[0] for name in found} == set(chips[chip])
        for name, kernel in found.items():
            at = chip, name
            assert kernel["warp_size"] == PROCESSORS[chip].lanes
            assert kernel["lds"] == kernel["shared"] <= PROCESSORS[chip].shared_limit, at
            assert kernel["n_regs"] <= 256, at
            assert (kernel["n_spills"] > 0) == (at in SPILLING), (at, kernel["n_spills"])

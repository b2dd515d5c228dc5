"""The passes on tile IR of this target, in order."""

from __future__ import annotations

from tilewright.ir.passes import Step
from tilewright.targets.amd import codegen as _codegen
from tilewright.targets.amd.choose_mma import choose_amd_mma
from tilewright.targets.gpu.steps import steps as common_steps

_ = _codegen  # registers the target's own emitters, which `check_kernel` looks up

STEPS = common_steps(choose_instructions=[Step(choose_amd_mma)])


def steps() -> tuple[Step, ...]:
    return STEPS

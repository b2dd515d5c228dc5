"""The passes of the CPU target, for machines with a fused multiply-add."""

from __future__ import annotations

from tilewright.ir.passes import Step
from tilewright.passes.contract_sums import contract_sums

STEPS = (Step(contract_sums),)

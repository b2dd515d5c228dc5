"""The passes of the CPU target."""

from __future__ import annotations

from tilewright.ir.passes import Step
from tilewright.passes.contract_sums import contract_sums
from tilewright.passes.round_quotients import round_quotients

STEPS = (Step(round_quotients), Step(contract_sums, when="fma"))

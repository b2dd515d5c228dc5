"""The passes of the CPU target."""

from __future__ import annotations

from tilewright.ir.passes import Step
from tilewright.passes.advance_reductions import advance_reductions
from tilewright.passes.contract_sums import contract_sums
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.round_quotients import round_quotients

STEPS = (
    Step(advance_reductions),
    Step(remove_dead_code),
    Step(round_quotients),
    Step(contract_sums, when="fma"),
)

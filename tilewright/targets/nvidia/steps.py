"""The passes on tile IR of this target, in their order."""

from __future__ import annotations

from tilewright.ir.passes import Step
from tilewright.passes.assign_layouts import assign_layouts
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.licm import hoist_invariants
from tilewright.passes.pad_tiles import pad_tiles
from tilewright.passes.pipeline_loads import pipeline_loads
from tilewright.passes.prefetch_loads import prefetch_loads
from tilewright.passes.strip_mine import strip_mine
from tilewright.targets.nvidia import codegen as _codegen
from tilewright.targets.nvidia.check import check_kernel
from tilewright.targets.nvidia.choose_mma import choose_mma
from tilewright.targets.nvidia.overlap_products import overlap_products
from tilewright.targets.nvidia.schedule_products import schedule_products
from tilewright.targets.nvidia.wait_for_launches import wait_for_launches

_ = _codegen  # brings the lowering, in which `check_kernel` looks for each op

STEPS = (
    Step(wait_for_launches, when="dependent_launch"),
    Step(pad_tiles),
    Step(check_kernel),
    Step(choose_mma),
    Step(strip_mine, optional=True),
    Step(assign_layouts),
    Step(remove_dead_code),
    Step(merge_equal_values, optional=True),
    Step(pipeline_loads, when="async_copy", optional=True),
    Step(overlap_products, when="wgmma", optional=True),
    Step(prefetch_loads, optional=True),
    Step(schedule_products, when="wgmma", optional=True),
    Step(merge_equal_values, optional=True),
    Step(hoist_invariants, optional=True),
    Step(remove_dead_code, optional=True),
)


def steps() -> tuple[Step, ...]:
    return STEPS

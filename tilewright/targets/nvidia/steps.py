"""The passes on tile IR of this target, in order."""

from __future__ import annotations

from tilewright.ir.passes import Step
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.expand_dot_scaled import FEATURE
from tilewright.passes.licm import hoist_invariants
from tilewright.passes.sink_past_loops import sink_past_loops
from tilewright.targets.gpu.steps import steps as common_steps
from tilewright.targets.nvidia import codegen as _codegen
from tilewright.targets.nvidia.add_blocks import add_blocks
from tilewright.targets.nvidia.advance_products import advance_products
from tilewright.targets.nvidia.alternate_warpgroups import alternate_warpgroups
from tilewright.targets.nvidia.bound_waits import bound_waits
from tilewright.targets.nvidia.choose_mma import choose_mma
from tilewright.targets.nvidia.choose_scaled_mma import choose_scaled_mma
from tilewright.targets.nvidia.choose_tensor_mma import choose_tensor_mma
from tilewright.targets.nvidia.delay_protocols import delay_protocols
from tilewright.targets.nvidia.finish_tensor_products import finish_tensor_products
from tilewright.targets.nvidia.overlap_launches import overlap_launches
from tilewright.targets.nvidia.overlap_products import overlap_products
from tilewright.targets.nvidia.pack_programs import pack_programs
from tilewright.targets.nvidia.persist_programs import persist_programs
from tilewright.targets.nvidia.scaled_kinds import (
    TENSOR_FEATURE,
    WARP_FEATURE,
    expand_uncopied,
    expand_unscalable,
)
from tilewright.targets.nvidia.schedule_products import schedule_products
from tilewright.targets.nvidia.specialize_warps import specialize_warps
from tilewright.targets.nvidia.widen_programs import widen_programs

_ = _codegen  # registers the target's own emitters, which `check_kernel` looks up

SCALED = (
    Step(expand_unscalable, when=FEATURE),
    Step(canonicalize, when=FEATURE),
    Step(merge_equal_values, when=FEATURE),
    Step(hoist_invariants, when=FEATURE),
    Step(remove_dead_code, when=FEATURE),
    Step(choose_scaled_mma, when=WARP_FEATURE),
)
"""Block-scaled products: what is expanded is simplified as where all of them are."""

STEPS = common_steps(
    first=[Step(widen_programs, when="wgmma"), *SCALED],
    choose_instructions=[
        Step(choose_tensor_mma, when=TENSOR_FEATURE),
        Step(expand_uncopied, when=TENSOR_FEATURE),
        Step(choose_mma),
    ],
    # Of products in tensor memory, a program would need two results in turn for it to pay.
    pipeline=[Step(persist_programs, when="wgmma"), Step(specialize_warps, when="tma")],
    overlap=[
        Step(finish_tensor_products, when=TENSOR_FEATURE),
        Step(overlap_products, when="wgmma"),
    ],
    schedule=[
        Step(add_blocks, when="tma"),
        Step(schedule_products, when="wgmma"),
        Step(advance_products, when="tma"),
        Step(alternate_warpgroups, when="tma"),
        Step(bound_waits, when="tma"),
        Step(delay_protocols),
    ],
    last=[
        Step(sink_past_loops),
        Step(overlap_launches, when="dependent_launch"),
        Step(pack_programs),
    ],
)


def steps() -> tuple[Step, ...]:
    return STEPS

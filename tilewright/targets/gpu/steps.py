"""The passes on tile IR of all GPU targets, in order."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.passes import Step
from tilewright.passes.advance_loads import advance_loads
from tilewright.passes.assign_layouts import assign_layouts
from tilewright.passes.convert_branches import convert_branches
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.defer_reductions import defer_reductions
from tilewright.passes.join_loads import join_loads
from tilewright.passes.licm import hoist_invariants
from tilewright.passes.narrow_loads import narrow_loads
from tilewright.passes.order_stores import order_stores
from tilewright.passes.pad_tiles import pad_tiles
from tilewright.passes.pipeline_loads import pipeline_loads
from tilewright.passes.prefetch_loads import prefetch_loads
from tilewright.passes.reduce_divisions import reduce_divisions
from tilewright.passes.spread_reductions import spread_reductions
from tilewright.passes.strip_mine import strip_mine
from tilewright.targets.gpu import codegen as _codegen
from tilewright.targets.gpu.carry_pointers import carry_pointers
from tilewright.targets.gpu.check import check_kernel
from tilewright.targets.gpu.hoist_addresses import hoist_addresses
from tilewright.targets.gpu.hoist_fetches import hoist_fetches
from tilewright.targets.gpu.limit_stages import limit_stages
from tilewright.targets.gpu.sink_conversions import sink_conversions
from tilewright.targets.gpu.stream_loads import stream_loads
from tilewright.targets.gpu.thread_products import thread_products

_ = _codegen  # registers the emitters, which `check_kernel` looks up


def steps(
    *,
    first: Sequence[Step] = (),
    choose_instructions: Sequence[Step] = (),
    pipeline: Sequence[Step] = (),
    overlap: Sequence[Step] = (),
    schedule: Sequence[Step] = (),
    last: Sequence[Step] = (),
) -> tuple[Step, ...]:
    """The steps of a target: the common passes, with the target's own inserted.

    Args:
        first: run before all others.
        choose_instructions: replace each `tile.dot` that a matrix instruction can compute.
        pipeline: pipeline loads of operands in ways of the target's own, before `pipeline_loads`.
        overlap: overlap products with the loads of the next iteration; run on pipelined loops.
        schedule: sink waits for products to the uses of their results.
        last: run after all others.
    """
    return (
        *first,
        Step(pad_tiles),
        Step(check_kernel),
        Step(narrow_loads),
        Step(join_loads),
        Step(advance_loads),
        *choose_instructions,
        Step(thread_products),
        Step(order_stores),
        Step(strip_mine),
        Step(assign_layouts),
        Step(remove_dead_code),
        Step(merge_equal_values),
        Step(defer_reductions),
        Step(spread_reductions),
        Step(convert_branches),
        Step(limit_stages, when="async_copy"),
        *pipeline,
        Step(reduce_divisions),
        Step(pipeline_loads, when="async_copy"),
        *overlap,
        Step(stream_loads, when="async_copy"),
        Step(prefetch_loads),
        *schedule,
        Step(hoist_invariants),
        # Loops one after the other may have hoisted the same operand to shared memory.
        Step(merge_equal_values),
        Step(hoist_fetches),
        Step(hoist_addresses),
        Step(carry_pointers),
        Step(remove_dead_code),
        Step(sink_conversions),
        *last,
    )

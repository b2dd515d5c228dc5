"""Computes the plan of a function (see `plan`): fusion, materialisation, transposes, prefetches,
streams."""

from __future__ import annotations

from tilewright.ir.core import Function, Region
from tilewright.targets.cpu import evaluate as _rules_of_elements
from tilewright.targets.cpu.alias import MemoryOrder
from tilewright.targets.cpu.group_roots import group_roots
from tilewright.targets.cpu.keep_values import keep_values
from tilewright.targets.cpu.plan import HOLDS_STEPS, Plan
from tilewright.targets.cpu.plan_prefetches import plan_prefetches
from tilewright.targets.cpu.plan_streams import bytes_moved, streamed_stores
from tilewright.targets.cpu.plan_transposes import transpose_loads

REGISTERED = (_rules_of_elements,)  # importing it registers the ops that are lazy


def plan_function(fn: Function) -> Plan:
    """The plan of a function whose calls are inlined."""
    plan = Plan(fn)
    _plan_region(plan, fn.body, MemoryOrder(fn))
    plan_prefetches(fn, plan)
    ops = list(fn.walk())
    plan.streamed = streamed_stores(ops, plan.forms)
    plan.bytes_moved = bytes_moved(ops, plan.forms)
    return plan


def _plan_region(plan: Plan, region: Region, order: MemoryOrder) -> None:
    """Plan a region, after its nested regions, whose uses determine the values that it keeps."""
    for op in region:
        if isinstance(op, HOLDS_STEPS):
            for nested in op.regions:
                _plan_region(plan, nested, order)
    steps = keep_values(plan, region, group_roots(region, order), order)
    plan.steps[region] = transpose_loads(plan, region, steps)

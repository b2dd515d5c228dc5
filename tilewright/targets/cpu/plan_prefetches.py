"""Selects the memory that a loop nest prefetches while it computes.

A program with several loops over a row is bound by memory latency in the first one, which loads the
row, and in the last one, which stores the result; in between it computes on cached data, and the
memory is idle. So a loop in between prefetches the memory that the last one stores, and that the
first one of the next program loads. Hardware prefetchers follow the streams of earlier accesses,
and cannot predict these.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.core import Function, Op, Value, is_tile
from tilewright.ir.types import Tile
from tilewright.ops import memory
from tilewright.targets.cpu.lazy import loads_in
from tilewright.targets.cpu.plan import Group, Plan, Prefetches, Step

LEAST_BYTES = 1024  # along a tile's last axis; prefetching less does not pay


def plan_prefetches(fn: Function, plan: Plan) -> None:
    """Choose the group of the function's body that prefetches, if any, and its prefetches.

    It is the first group without stores whose loads are all of memory loaded before.
    """
    steps = plan.steps[fn.body]
    seen: dict[Value, None] = {}  # the pointers of loads so far, in order
    for i, group in enumerate(steps):
        if not isinstance(group, Group):
            continue
        loads = [op.ptr for op in _loads(group, plan)]
        stores = [op.ptr for op in _stores(group)]
        if seen and not stores and not group.transposed and seen.keys() >= set(loads):
            later = {op for step in steps[i:] for op in step.ops()}
            written = [op.ptr for step in steps[i + 1 :] for op in _stores(step)]
            reads, writes = (
                tuple(
                    p for p in pointers if _is_stream(plan, p, group.shape) and _is_known(p, later)
                )
                for pointers in (seen, written)
            )
            plan.prefetches[group] = Prefetches(reads, writes)
            return
        seen.update(dict.fromkeys(loads))


def roots_of(group: Group) -> Iterator[Value]:
    """The values that a group evaluates."""
    yield from group.keep
    for op in group.roots:
        yield from op.operands


def _loads(group: Group, plan: Plan) -> list[memory.Load]:
    return list(loads_in(roots_of(group), plan.kept - set(group.keep)))


def _stores(step: Step) -> list[memory.Store]:
    if not isinstance(step, Group):
        return []
    return [op for op in step.roots if isinstance(op, memory.Store)]


def _is_known(pointer: Value, later: set[Op]) -> bool:
    """Whether a pointer can be computed before the ops `later`, without loading a tile."""
    seen: set[Value] = set()
    stack = [pointer]
    while stack:
        v = stack.pop()
        if v in seen or v.op is None:
            continue
        seen.add(v)
        if v.op in later and not v.op.elementwise:
            return False
        if isinstance(v.op, memory.Load) and is_tile(v):
            return False
        stack.extend(v.op.operands)
    return True


def _is_stream(plan: Plan, pointer: Value, shape: tuple[int, ...]) -> bool:
    """Whether an access through the pointer is sequential, and long enough."""
    if not isinstance(pointer.type, Tile) or pointer.type.shape != shape:
        return False
    size = memory.pointee_of(pointer.type).nbytes_in_memory
    return plan.forms.constant_strides(pointer)[-1] == 1 and shape[-1] * size >= LEAST_BYTES

"""Selects loads that are transposed before the loop nest that uses them.

The vectors of a nest lie along one axis. A load whose memory is contiguous along another axis is a
gather there, about one access per element. Instead, a group in front of the nest loads blocks of
vectors along the contiguous axis, transposes each in registers, and fills a buffer that is
contiguous along the nest's axis (`transposes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir.core import Op, Region, is_tile
from tilewright.ir.types import Tile, is_pointer, shape_of
from tilewright.ops import memory
from tilewright.targets.cpu.lazy import is_lazy, is_root
from tilewright.targets.cpu.plan import LEAST_RUN, STRIDED_LIMIT, Group, Plan, Step, lane_axis
from tilewright.targets.cpu.plan_prefetches import roots_of
from tilewright.targets.cpu.points import Point, Points, identity


def transpose_loads(plan: Plan, region: Region, steps: list[Step]) -> list[Step]:
    """The steps of a region, with groups that transpose loads inserted. Adds the loads to the
    values that are kept."""
    result: list[Step] = []
    for step in steps:
        if isinstance(step, Group) and len(step.shape) > 1:
            transposes = [*_transposes(plan, region, step)]
            result += [*_checks(region, step, transposes), *transposes]
            if not step.roots and not step.keep:
                continue  # it only filled the buffers of loads that are transposed
        result.append(step)
    for group in _carried(plan, region):
        result += _transposes(plan, region, group)
    return result


def _checks(region: Region, step: Group, transposes: Sequence[Group]) -> Iterator[Group]:
    """The assertions of a group that precede loads which are now executed before it."""
    loads = [v.op for group in transposes for v in group.keep if v.op is not None]
    if loads:
        position = {op: i for i, op in enumerate(region)}
        found = step.checks_before(max(loads, key=position.__getitem__), position)
        if found is not None:
            yield found


def _carried(plan: Plan, region: Region) -> list[Group]:
    """The loop nests at the end of a region, which fill the buffers of carried tiles."""
    groups: dict[tuple[int, ...], Group] = {}
    last = region.last
    for value in last.operands if last is not None else ():
        shape = shape_of(value.type)
        if len(shape) > 1 and value not in plan.kept:
            groups.setdefault(shape, Group(shape)).keep.append(value)
    return list(groups.values())


def _transposes(plan: Plan, region: Region, group: Group) -> Iterator[Group]:
    loads = _loads(plan, region, group)
    if not loads:
        return
    written = [op.ptr for op in group.roots if isinstance(op, memory.Store)]
    lane = lane_axis(plan, group.shape, [*(op.ptr for op in loads), *written], written)
    for op, points in loads.items():
        axes = _axes(plan, op, points, lane, len(group.shape))
        if axes is None or not _may_keep(op):
            continue
        value = op.result
        if value in group.keep:
            group.keep.remove(value)
        plan.kept.add(value)
        assert isinstance(value.type, Tile)
        yield Group(value.type.shape, keep=[value], transposed=axes)


def _loads(plan: Plan, region: Region, group: Group) -> dict[memory.Load, set[Point]]:
    """The loads that a group of a region executes, each with the points at which it does.

    Values of the regions around it, which are planned later, are read from buffers if they load: a
    buffer that is filled in this region would be read in others, where it is not.
    """
    here = identity(len(group.shape))
    kept = plan.kept
    points = Points()
    stack = [(v, here) for v in roots_of(group) if is_tile(v)]
    seen = set(stack)
    loads: dict[memory.Load, set[Point]] = {}
    while stack:
        value, point = stack.pop()
        op = value.op
        if op is None or op.parent is not region or not is_lazy(op):
            continue
        if value in kept and value not in group.keep:
            continue
        if isinstance(op, memory.Load):
            loads.setdefault(op, set()).add(point)
        for operand in points.operands(value, point):
            if is_tile(operand[0]) and operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return loads


def _axes(
    plan: Plan, op: memory.Load, points: set[Point], lane: int, rank: int
) -> tuple[int, int] | None:
    """The axis along which a load is contiguous, and the one along which the lanes of the nest run,
    if the load should be transposed."""
    (point, *others) = points
    moves_once = len({*point}) == len(point) and lane in point
    if others or not moves_once or not all(0 <= axis < rank for axis in point):
        return None
    if is_pointer(memory.pointee_of(op.ptr.type)):
        return None
    assert isinstance(op.ptr.type, Tile)
    shape = op.ptr.type.shape
    to = point.index(lane)
    stride = plan.forms.constant_strides(op.ptr)[to]
    if shape[to] % LEAST_RUN or (stride is not None and abs(stride) <= STRIDED_LIMIT):
        return None
    facts = plan.hinted[op.ptr]
    if facts.contiguity[to] > 1 or facts.constancy[to] > 1:
        return None
    for axis, extent in enumerate(shape):
        if axis != to and extent % LEAST_RUN == 0 and facts.contiguity[axis] % LEAST_RUN == 0:
            return axis, to
    return None


def _may_keep(op: memory.Load) -> bool:
    """Whether the consumers take a buffer of any order: those that evaluate elements do."""
    return all(
        user.parent is op.parent and not user.terminator and _evaluates_elements(user)
        for user in op.result.users
    )


def _evaluates_elements(op: Op) -> bool:
    return is_root(op) or (is_lazy(op) and is_tile(op.results[0]))

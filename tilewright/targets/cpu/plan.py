"""Which tiles are kept in memory, and which ops share a loop.

A tile value is *lazy*: it is computed, element by element, inside the loops that need it. A few
kinds of op need loops: they are *roots* (a store, a reduction, …). Roots over the same shape that
don't depend on each other form a *group*, which is one loop nest. A lazy value becomes *kept*,
computed once into a buffer, when that is needed or cheaper:

- several groups need it, and it is costly;
- a loop nested deeper needs it, and it is more than index arithmetic;
- it loads from memory that is written before, or while, it is needed;
- its consumer reads it out of order (gather, dot with a batch, a scan).

The plan of a region is a list of steps in the order in which they run.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from tilewright.analysis.affine import constant_strides
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.types import Tile, shape_of
from tilewright.ops import arith, control, debug, map, math, memory, reduce, shape, sort
from tilewright.targets.cpu.alias import MemoryOrder

LOOP_COST = 12  # of pure index arithmetic that a nested loop may repeat
KEEP_COST = 10  # above this, a value needed by several groups is kept
MATH_COST = 20
DIVIDE_COST = 6

HOLDS_STEPS = (control.For, control.While, control.If, map.Map)  # in its regions


@dataclass(eq=False)
class Group:
    """Roots that run in one loop nest over `shape`."""

    shape: tuple[int, ...]
    roots: list[Op] = field(default_factory=list)
    keep: list[Value] = field(default_factory=list)
    reduce_axis: int | None = None

    def ops(self) -> list[Op]:
        return self.roots


@dataclass(eq=False)
class Run:
    """One op that runs by itself: a scalar op, a dot, a scan, an atomic, control flow."""

    op: Op

    def ops(self) -> list[Op]:
        return [self.op]


Step = Group | Run


@dataclass
class Plan:
    """The plan of a function.

    Attributes:
        steps: by region, in order.
        kept: the values that have a buffer.
    """

    steps: dict[Region, list[Step]] = field(default_factory=dict)
    kept: set[Value] = field(default_factory=lambda: set())


def is_tile(value: Value) -> bool:
    return isinstance(value.type, Tile)


def is_root(op: Op) -> bool:
    """Whether the op needs a loop over a tile, alone or in a group."""
    if isinstance(op, memory.Store):
        return is_tile(op.ptr)
    if isinstance(op, memory.Load):
        return op.volatile and is_tile(op.ptr)
    return isinstance(op, reduce.Reduce)


def iteration_shape(op: Op) -> tuple[int, ...]:
    """The shape that the loops of a root run over."""
    return shape_of(op.operands[0].type)


def cone(value: Value, kept: Container[Value]) -> Iterator[Value]:
    """The value and the lazy tile values it is computed from, each once."""
    seen: set[Value] = set()
    stack = [value]
    while stack:
        v = stack.pop()
        if v in seen or not is_tile(v):
            continue
        seen.add(v)
        yield v
        if v.op is not None and is_lazy(v.op) and (v is value or v not in kept):
            stack.extend(v.op.operands)


def is_lazy(op: Op) -> bool:
    """Whether the op is computed inside the loops of those who need it."""
    if isinstance(op, memory.Load):
        return not op.volatile
    return op.elementwise or isinstance(
        op,
        shape.Arange | shape.Splat | shape.ExpandDims | shape.Broadcast | shape.Reshape
        | shape.Permute | shape.Join | shape.Split | shape.Cat | shape.Flip | shape.Gather,
    )  # fmt: skip


def _own_cost(op: Op) -> int:
    if isinstance(op, math.MathFunction):
        return 1 if isinstance(op, math.ROUNDINGS) else MATH_COST
    if isinstance(op, arith.Div | arith.IntDiv | arith.Rem):
        return DIVIDE_COST
    if isinstance(op, arith.Constant | shape.Splat | shape.ExpandDims | shape.Broadcast):
        return 0
    if isinstance(op, memory.Load):
        strides = constant_strides(op.ptr)
        return 1 if 1 in strides or all(s == 0 for s in strides) else KEEP_COST
    return 1


class _Planner:
    """Plans one region; nested regions are planned by planners of their own first."""

    def __init__(self, plan: Plan, region: Region, order: MemoryOrder) -> None:
        self.plan = plan
        self.region = region
        self.order = order
        self.steps: list[Step] = []
        self.step_of: dict[Op, Step] = {}
        self.position: dict[Op, int] = {op: i for i, op in enumerate(region)}

    # -- grouping -------------------------------------------------------------------------------

    def group_roots(self) -> None:
        """Place every op that is not lazy, in order; join a root to the open group if it may."""
        open_group: Group | None = None
        blocked: set[Value] = set()  # values that depend on results of the open group
        waiting: list[memory.Load] = []  # loads among them
        for op in self.region:
            if op.terminator:
                continue
            lazy = is_lazy(op) and any(is_tile(r) for r in op.results)
            depends = any(v in blocked for inner in op.walk() for v in inner.operands)
            if lazy:
                if depends:
                    blocked.update(op.results)
                    waiting += [op] if isinstance(op, memory.Load) else []
                continue
            # What it writes may be read first, by a load that comes after the group.
            early = depends or any(self.order.conflicts(load, op) for load in waiting)
            if is_root(op) and open_group and not early and self.may_join(op, open_group):
                self.join(op, open_group)
            elif is_root(op):
                open_group = Group(iteration_shape(op))
                self.steps.append(open_group)
                blocked, waiting = set(), []
                self.join(op, open_group)
            else:
                self.run_alone(op)
                if depends or self.order.touches_memory(op) or op.regions:
                    open_group, blocked, waiting = None, set(), []
                continue
            blocked.update(op.results)

    def run_alone(self, op: Op) -> None:
        step = Run(op)
        self.steps.append(step)
        self.step_of[op] = step

    def join(self, op: Op, group: Group) -> None:
        if isinstance(op, reduce.Reduce):
            group.reduce_axis = op.axis
        group.roots.append(op)
        self.step_of[op] = group

    def may_join(self, op: Op, group: Group) -> bool:
        if iteration_shape(op) != group.shape:
            return False
        if isinstance(op, reduce.Reduce) and group.reduce_axis not in (None, op.axis):
            return False
        # a scalar op between them may need what the group makes: the group would run too late
        if self.steps[-1] is not group and not self._may_move_up(op, group):
            return False
        return self.order.may_share_loop(op, group.roots, self.loads_of)

    def _may_move_up(self, op: Op, group: Group) -> bool:
        """Whether all that `op` needs is made before the group runs."""
        later = self.steps[self.steps.index(group) + 1 :]
        made = {r for step in later if isinstance(step, Run) for r in step.op.results}
        return not any(v in made for v in self._needs(op))

    def _needs(self, op: Op) -> set[Value]:
        found: set[Value] = set()
        stack = list(op.operands)
        while stack:
            v = stack.pop()
            if v in found:
                continue
            found.add(v)
            if v.op is not None and v.op.parent is self.region and is_lazy(v.op):
                stack.extend(v.op.operands)
        return found

    def loads_of(self, op: Op) -> list[memory.Load]:
        """The lazy loads that run inside the loops of a root."""
        found: dict[memory.Load, None] = {}
        for operand in op.operands:
            for v in cone(operand, self.plan.kept):
                if isinstance(v.op, memory.Load) and v not in self.plan.kept:
                    found[v.op] = None
        return list(found)

    # -- keeping --------------------------------------------------------------------------------

    def keep_values(self) -> None:
        """Decide, consumers first, which lazy values get a buffer, and where it is filled."""
        sites: dict[Value, list[Step | None]] = {}
        for op in self.region.reversed():
            if not is_lazy(op):
                continue
            for value in op.results:
                if is_tile(value) and value.users:
                    self.consider(value, sites)

    def consider(self, value: Value, sites: dict[Value, list[Step | None]]) -> None:
        found, nested, forced = self.sites_of(value, sites)
        wanted = forced or self.order.must_keep(value, found, self.steps, self.position)
        if not wanted and (nested or len(found) > 1):
            cost, loads = self.cost(value)
            wanted = (nested and (loads or cost > LOOP_COST)) or (
                len(found) > 1 and cost > KEEP_COST
            )
        if wanted:
            self.keep(value, found)
            found = self.home_of(value)
        sites[value] = found

    def sites_of(
        self, value: Value, sites: dict[Value, list[Step | None]]
    ) -> tuple[list[Step | None], bool, bool]:
        """The steps that compute the value, whether one is a nested loop, and whether a consumer
        reads it out of order. None stands for the region's end."""
        found: dict[Step | None, None] = {}
        nested = forced = False
        for user in value.users:
            outer = _ancestor_in(user, self.region)
            if outer is not user:
                nested = True
                found[self.step_of[outer]] = None
            elif user.terminator:
                found[None] = None
            elif is_lazy(user) and any(is_tile(r) for r in user.results):
                for r in user.results:
                    for s in sites.get(r, []):
                        found[s] = None
                forced |= isinstance(user, shape.Gather) and user.src is value
            else:
                found[self.step_of[user]] = None
                forced |= _reads_buffer(user, value)
        ordered = sorted(found, key=lambda s: len(self.steps) if s is None else self.index_of(s))
        return ordered, nested, forced

    def index_of(self, step: Step) -> int:
        return self.steps.index(step)

    def keep(self, value: Value, sites: list[Step | None]) -> None:
        """Fill a buffer where the value is first needed: in that group if it has its shape, else
        in a group of its own before it; at the latest before memory that it loads is written."""
        self.plan.kept.add(value)
        op = value.op
        assert op is not None
        first = sites[0] if sites else None
        limit = self.order.latest(value, self.steps, self.position)
        place = len(self.steps) if first is None else self.index_of(first)
        if limit is not None and limit < place:
            first, place = None, limit
        group = first if isinstance(first, Group) else None
        if group is None or group.shape != shape_of(value.type) or place == limit:
            group = Group(shape_of(value.type))
            self.steps.insert(place, group)
        group.keep.append(value)
        self.step_of[op] = group

    def home_of(self, value: Value) -> list[Step | None]:
        assert value.op is not None
        return [self.step_of[value.op]]

    def cost(self, value: Value) -> tuple[int, bool]:
        """The cost of one element, and whether it loads from memory."""
        kept = self.plan.kept
        loads = any(isinstance(v.op, memory.Load) for v in cone(value, kept) if v not in kept)
        return value_cost(value, kept), loads


def value_cost(value: Value, kept: Container[Value]) -> int:
    """The cost of computing one element of a lazy value, in instructions or so."""
    return sum(
        _own_cost(v.op)
        for v in cone(value, kept)
        if v.op is not None and is_lazy(v.op) and (v is value or v not in kept)
    )


def _reads_buffer(user: Op, value: Value) -> bool:
    """Whether a consumer needs the whole tile in memory before it starts."""
    return isinstance(user, reduce.Scan | sort.Sort | debug.Print | debug.Assert)


def _ancestor_in(op: Op, region: Region) -> Op:
    """The op of `region` that is `op` or holds it."""
    while op.parent is not region:
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op


def plan_function(fn: Function) -> Plan:
    """The plan of a function whose calls are inlined."""
    plan = Plan()
    order = MemoryOrder(fn)
    _plan_region(plan, fn.body, order)
    return plan


def _plan_region(plan: Plan, region: Region, order: MemoryOrder) -> None:
    for op in region:
        if isinstance(op, HOLDS_STEPS):
            for nested in op.regions:
                _plan_region(plan, nested, order)
    planner = _Planner(plan, region, order)
    planner.group_roots()
    planner.keep_values()
    plan.steps[region] = planner.steps

"""Loop fusion: assigns the non-lazy ops of a region to loop nests, or to steps of their own.

Input: a region. Output: its steps in execution order. Greedy, in one pass: a root joins the latest
group (the *open* one) if it has the same iteration space, does not depend on the group's results or
on anything that executes after the group, and no memory dependence forbids interleaving its
iterations with the group's. Linear in the number of ops, times the bases of an op's loads.
"""

from __future__ import annotations

from tilewright.ir.core import Op, Region, Value, is_tile
from tilewright.ir.types import shape_of
from tilewright.ops import atomic, debug, memory, reduce
from tilewright.targets.cpu.alias import Base, MemoryOrder
from tilewright.targets.cpu.lazy import is_lazy, is_root, is_update
from tilewright.targets.cpu.plan import Group, Run, Step


def iteration_shape(op: Op) -> tuple[int, ...]:
    """The iteration space of a root."""
    return shape_of(op.operands[0].type)


class _Open:
    """The group that the next root may join.

    Attributes:
        dependent: values that depend on its results.
        waiting: base pointers of the lazy loads among these.
        later: values that depend on ops executed after the group, hence unavailable in it.
        loads, stores: base pointers that its roots read and write.
        asserts, writes, updates: whether it has assertions, stores or updates, and updates.
        guarded: values that depend on loads which follow an assertion of the group.
        hoisted: those of them that may be loaded before the assertion is checked.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.dependent: set[Value] = set()
        self.waiting: set[Base] = set()
        self.later: set[Value] = set()
        self.loads: set[Base] = set()
        self.stores: set[Base] = set()
        self.guarded: set[Value] = set()
        self.hoisted: set[Value] = set()
        self.asserts = self.writes = self.updates = False


def group_roots(region: Region, order: MemoryOrder) -> list[Step]:
    """The steps of a region, in order."""
    return _Grouping(order).run(region)


class _Grouping:
    def __init__(self, order: MemoryOrder) -> None:
        self.order = order
        self.steps: list[Step] = []
        self.open: _Open | None = None

    def run(self, region: Region) -> list[Step]:
        for op in region:
            if op.terminator:
                continue
            if is_lazy(op) and is_tile(op.results[0]):
                self.propagate(op)
            elif is_root(op):
                self.place(op)
            else:
                self.run_alone(op)
        return self.steps

    def propagate(self, op: Op) -> None:
        """Propagate the dependences of a lazy op's operands to its results."""
        open = self.open
        if open is None:
            return
        if not open.later.isdisjoint(op.operands):
            open.later.update(op.results)
        if not open.dependent.isdisjoint(op.operands):
            open.dependent.update(op.results)
            if isinstance(op, memory.Load):
                open.waiting.add(self.order.base(op.ptr))
        if open.asserts:
            self.propagate_guards(op, open)

    def propagate_guards(self, op: Op, open: _Open) -> None:
        """The same for loads after an assertion, on which their addresses may rely.

        A nest checks an assertion before it evaluates what follows at the same point. But it loads
        a value that does not vary along its inner loops before these, and evaluates the operands of
        masks before the loop along the lanes.
        """
        if isinstance(op, memory.Load):
            open.guarded.update(op.results)
            if shape_of(op.result.type) != open.group.shape or op.mask in open.guarded:
                open.hoisted.update(op.results)
        if not open.guarded.isdisjoint(op.operands):
            open.guarded.update(op.results)
        if not open.hoisted.isdisjoint(op.operands):
            open.hoisted.update(op.results)

    def place(self, op: Op) -> None:
        """Add a root to the open group, or to a new one."""
        open = self.open
        if open is None or not self.may_join(op, open):
            open = self.open = _Open(Group(iteration_shape(op)))
            self.steps.append(open.group)
        if isinstance(op, reduce.Reduce):
            open.group.reduce_axis = op.axis
        open.group.roots.append(op)
        open.loads |= self.order.loads_of(op)
        if isinstance(op, memory.Store | atomic.AtomicRMW):
            open.stores.add(self.order.base(op.ptr))
            open.writes = True
        open.updates |= is_update(op)
        open.asserts |= isinstance(op, debug.Assert)
        open.dependent.update(op.results)

    def run_alone(self, op: Op) -> None:
        self.steps.append(Run(op))
        open = self.open
        if open is None:
            return
        depends = not open.dependent.isdisjoint(op.all_operands())
        if depends or self.order.touches_memory(op) or op.regions:
            self.open = None
        else:
            open.later.update(op.results)

    def may_join(self, op: Op, open: _Open) -> bool:
        """Whether a root can be fused with the group without changing a result."""
        group, order = open.group, self.order
        if iteration_shape(op) != group.shape:
            return False
        if isinstance(op, reduce.Reduce) and group.reduce_axis not in (None, op.axis):
            return False
        if not _may_follow(op, open) or not _keeps_row_major(op, open):
            return False
        if not open.dependent.isdisjoint(op.operands) or not open.later.isdisjoint(op.operands):
            return False
        # A lazy load of the old value, whose consumers are after the group, must execute first.
        if any(order.may_write(op, base) for base in open.waiting):
            return False
        if isinstance(op, memory.Load) or any(isinstance(r, memory.Load) for r in group.roots[:1]):
            return False  # volatile
        writes = isinstance(op, memory.Store | atomic.AtomicRMW)
        stores = {order.base(op.ptr)} if writes else set[Base]()
        if order.any_overlap(stores, open.stores):
            return False
        return not order.any_overlap(open.loads | order.loads_of(op), open.stores | stores)


def _may_follow(op: Op, open: _Open) -> bool:
    """Whether a root may be executed together with those of a group at each point, in this order,
    where assertions and the memory order of atomics are concerned."""
    if isinstance(op, debug.Assert):  # what precedes it is done when it fails
        return not open.writes
    if not open.hoisted.isdisjoint(op.operands):
        return False
    if isinstance(op, memory.Store | atomic.AtomicRMW) and op.mask in open.guarded:
        return False
    orders = (r.sem for r in (op, open.group.roots[0]) if isinstance(r, atomic.AtomicRMW))
    return all(order == "relaxed" for order in orders)


def _keeps_row_major(op: Op, open: _Open) -> bool:
    """Whether a nest of the group and the root can update elements in row-major order."""
    axes = {open.group.reduce_axis, op.axis if isinstance(op, reduce.Reduce) else None}
    rows = axes <= {None, len(open.group.shape) - 1}
    return rows or not (open.updates or is_update(op))

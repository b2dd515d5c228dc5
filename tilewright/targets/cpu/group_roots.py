"""Places the ops of a region that are not lazy: each alone, or with others in one loop nest."""

from __future__ import annotations

from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import shape_of
from tilewright.ops import memory, reduce
from tilewright.targets.cpu.alias import Base, MemoryOrder
from tilewright.targets.cpu.lazy import is_lazy, is_root, is_tile
from tilewright.targets.cpu.plan import Group, Run, Step


def iteration_shape(op: Op) -> tuple[int, ...]:
    """The shape that the loops of a root run over."""
    return shape_of(op.operands[0].type)


class _Open:
    """The group that the next root may join.

    Attributes:
        dependent: values that depend on its results.
        waiting: memory that lazy loads among them read.
        later: values that depend on what runs after the group: it would run too late for them.
        loads, stores: memory that its roots read and write.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.dependent: set[Value] = set()
        self.waiting: set[Base] = set()
        self.later: set[Value] = set()
        self.loads: set[Base] = set()
        self.stores: set[Base] = set()


def group_roots(region: Region, order: MemoryOrder) -> list[Step]:
    """The steps of a region, in order; a root joins the open group where that changes nothing."""
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
                self.pass_on(op)
            elif is_root(op):
                self.place(op)
            else:
                self.run_alone(op)
        return self.steps

    def pass_on(self, op: Op) -> None:
        """A lazy op depends on what its operands depend on."""
        open = self.open
        if open is None:
            return
        if not open.later.isdisjoint(op.operands):
            open.later.update(op.results)
        if not open.dependent.isdisjoint(op.operands):
            open.dependent.update(op.results)
            if isinstance(op, memory.Load):
                open.waiting.add(self.order.base(op.ptr))

    def place(self, op: Op) -> None:
        """Put a root into the open group, or into a new one."""
        open = self.open
        if open is None or not self.may_join(op, open):
            open = self.open = _Open(Group(iteration_shape(op)))
            self.steps.append(open.group)
        if isinstance(op, reduce.Reduce):
            open.group.reduce_axis = op.axis
        open.group.roots.append(op)
        open.loads |= self.order.loads_of(op)
        if isinstance(op, memory.Store):
            open.stores.add(self.order.base(op.ptr))
        open.dependent.update(op.results)

    def run_alone(self, op: Op) -> None:
        self.steps.append(Run(op))
        open = self.open
        if open is None:
            return
        depends = any(v in open.dependent for inner in op.walk() for v in inner.operands)
        if depends or self.order.touches_memory(op) or op.regions:
            self.open = None
        else:
            open.later.update(op.results)

    def may_join(self, op: Op, open: _Open) -> bool:
        """Whether running the iterations of a root among those of a group changes nothing."""
        group, order = open.group, self.order
        if iteration_shape(op) != group.shape:
            return False
        if isinstance(op, reduce.Reduce) and group.reduce_axis not in (None, op.axis):
            return False
        if not open.dependent.isdisjoint(op.operands) or not open.later.isdisjoint(op.operands):
            return False
        # What it writes may be read first, by a load that comes after the group.
        if any(order.may_write(op, base) for base in open.waiting):
            return False
        if isinstance(op, memory.Load) or any(isinstance(r, memory.Load) for r in group.roots[:1]):
            return False  # volatile
        stores = {order.base(op.ptr)} if isinstance(op, memory.Store) else set[Base]()
        if order.any_overlap(stores, open.stores):
            return False
        return not order.any_overlap(open.loads | order.loads_of(op), open.stores | stores)

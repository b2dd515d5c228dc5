"""Which memory accesses may touch the same bytes, and what order that imposes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tilewright.analysis.affine import constant_strides
from tilewright.analysis.pointers import may_overlap
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import Tile, shape_of
from tilewright.ops import atomic, memory

if TYPE_CHECKING:
    from tilewright.targets.cpu.plan import Step

Access = memory.Load | memory.Store | atomic.AnyAtomic


class MemoryOrder:
    """Answers of one function about its accesses."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn

    def may_overlap(self, a: Access, b: Access) -> bool:
        """Whether two accesses may touch the same bytes."""
        return may_overlap(self.fn, a.ptr, b.ptr)

    @staticmethod
    def touches_memory(op: Op) -> bool:
        return op.reads() or op.writes()

    def writes_within(self, op: Op) -> Iterator[Op]:
        for inner in op.walk():
            if inner.writes_memory or (isinstance(inner, memory.Load) and inner.volatile):
                yield inner

    def conflicts(self, load: memory.Load, op: Op) -> bool:
        """Whether something in `op` may write what `load` reads."""
        return any(
            not isinstance(w, memory.Store | atomic.Writing)
            or _publishes(w)
            or self.may_overlap(load, w)
            for w in self.writes_within(op)
        )

    def may_share_loop(
        self, op: Op, roots: Sequence[Op], loads_of: Callable[[Op], list[memory.Load]]
    ) -> bool:
        """Whether running the iterations of `op` among those of `roots` changes nothing."""
        everyone = [*roots, op]
        stores = [r for r in everyone if isinstance(r, memory.Store)]
        if any(isinstance(r, memory.Load) for r in everyone):
            return False  # volatile
        if isinstance(op, memory.Store) and any(
            s is not op and self.may_overlap(s, op) for s in stores
        ):
            return False
        loads = [load for r in everyone for load in loads_of(r)]
        return not any(self.may_overlap(load, s) for load in loads for s in stores)

    def must_keep(
        self,
        value: Value,
        sites: Sequence[Step | None],
        steps: Sequence[Step],
        position: dict[Op, int],
    ) -> bool:
        """Whether a load must be done before some write that precedes, or is in, its sites."""
        load = value.op
        if not isinstance(load, memory.Load) or not sites:
            return False
        limit = self.latest(value, steps, position)
        if limit is None:
            return False
        last = sites[-1]
        end = len(steps) if last is None else steps.index(last)
        return limit <= end

    def latest(self, value: Value, steps: Sequence[Step], position: dict[Op, int]) -> int | None:
        """Index of the first step after the load that may write what it reads."""
        load = value.op
        if not isinstance(load, memory.Load):
            return None
        for i, step in enumerate(steps):
            for op in step.ops():
                if position[op] < position[load] or not self.conflicts(load, op):
                    continue
                if isinstance(op, memory.Store) and _same_elements(load, op):
                    continue
                return i
        return None


def _publishes(op: memory.Store | atomic.Writing) -> bool:
    """Whether others may write what was read before, once they see what the op writes: it releases
    a flag or a lock, which is a scalar."""
    if isinstance(op, memory.Store) or isinstance(op.ptr.type, Tile):
        return False
    return op.sem in ("release", "acq_rel")


def _same_elements(load: memory.Load, store: memory.Store) -> bool:
    """Whether each element of the store depends on the load's same element alone, at the address
    that it writes, and no two elements share an address."""
    if load.ptr is not store.ptr or len(shape_of(load.ptr.type)) != 1:
        return False
    if constant_strides(load.ptr)[0] in (None, 0):
        return False
    return _only_elementwise(load.result, store)


def _only_elementwise(value: Value, store: memory.Store) -> bool:
    stack = [value]
    seen: set[Value] = set()
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        for user in v.users:
            if user is store:
                continue
            if not user.elementwise:
                return False
            stack.extend(user.results)
    return True

"""Alias queries for the planner: accesses that may overlap, and ops that may write memory.

All answers are conservative. Queries are memoised per function: pairs of base pointers, the writing
ops nested in each op, and the bases that the lazy loads of each value read, as sets of at most
`_MANY` bases, beyond which a value is assumed to read any memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.pointers import base_of, may_overlap
from tilewright.ir.core import Function, Op, Value, is_tile
from tilewright.ir.types import shape_of
from tilewright.ops import atomic, debug, memory
from tilewright.targets.cpu.lazy import is_lazy

Base = Value | None
"""The pointer from which an access is derived by offsets and shape ops; None for any memory."""

_MANY = 32  # the most bases that are distinguished among those a value loads from
_ANY: frozenset[Base] = frozenset({None})


class MemoryOrder:
    """Alias information of one function."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self._overlap: dict[tuple[Value, Value], bool] = {}
        self._writes: dict[Op, list[Op]] = {}
        self._loads: dict[Value, frozenset[Base]] = {}
        for op in fn.walk():
            if is_lazy(op) and is_tile(op.results[0]):
                found = self.loads_of(op)
                if isinstance(op, memory.Load):
                    found |= {self.base(op.ptr)}
                self._loads.update(dict.fromkeys(op.results, found))

    def base(self, pointer: Value) -> Base:
        return base_of(pointer)

    def overlap(self, a: Base, b: Base) -> bool:
        """Whether accesses through two pointers may touch the same bytes."""
        if a is None or b is None:
            return True
        result = self._overlap.get((a, b))
        if result is None:
            result = self._overlap[a, b] = may_overlap(self.fn, a, b)
        return result

    def any_overlap(self, some: Iterable[Base], others: Iterable[Base]) -> bool:
        return any(self.overlap(a, b) for a in some for b in others)

    def loads_of(self, op: Op) -> frozenset[Base]:
        """The bases read by the lazy loads that evaluating the op's operands executes."""
        found: frozenset[Base] = frozenset()
        for v in op.operands:
            more = self._loads.get(v)
            if more is not None and not more <= found:
                found = more | found if found else more
        return found if len(found) <= _MANY else _ANY

    @staticmethod
    def touches_memory(op: Op) -> bool:
        return op.reads() or op.writes()

    def writes_in(self, op: Op) -> list[Op]:
        """The ops in `op`, including itself, that write memory or are volatile."""
        result = self._writes.get(op)
        if result is None:
            result = self._writes[op] = [
                inner
                for inner in op.walk()
                if inner.is_write() and not isinstance(inner, debug.Assert)
            ]
        return result

    def may_write(self, op: Op, base: Base) -> bool:
        """Whether an op in `op` may write memory that a load through `base` reads."""
        # Ops without a pointer, such as inline assembly, may write anywhere, and other programs
        # may once they observe a release by an op.
        return any(
            not isinstance(w, memory.Store | atomic.Writing)
            or (isinstance(w, atomic.Writing) and atomic.releases(w))
            or self.overlap(base, self.base(w.ptr))
            for w in self.writes_in(op)
        )


def same_elements(load: memory.Load, store: memory.Store, forms: AffineForms) -> bool:
    """Whether each element of the store depends only on the same element of the load, at the same
    address, and addresses of elements are distinct: an update in place."""
    if load.ptr is not store.ptr or len(shape_of(load.ptr.type)) != 1:
        return False
    # With a stride of 0, or one that is not known, elements may share an address: a store would
    # change what later elements load.
    if forms.constant_strides(load.ptr)[0] in (None, 0):
        return False
    return _only_elementwise(load.result, store)


def _only_elementwise(value: Value, store: memory.Store) -> bool:
    """Whether elements of a value are used only by the same elements of values computed from it.

    An op that moves elements, such as a flip or a reduction, would read ones that were stored
    before.
    """
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

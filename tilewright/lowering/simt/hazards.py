"""Hazards of global memory between the threads of a program that hold the same elements.

Each thread that holds an element of a tile loads it, and all threads load a scalar; but one thread
stores it. Between a load and a store of the same element, in either order, the threads therefore
synchronise: otherwise one may load before, or after, the store of another.

    count = tl.load(p)
    tl.store(out + count * 128 + tl.arange(0, 128), x)
    tl.store(p, count + 1)                              # after all threads have loaded

Elements held by one thread need no barrier. The program must separate accesses of the same memory
as *different* elements with `tl.debug_barrier`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tilewright.analysis.accessed_arguments import accesses_of
from tilewright.ir.core import Function, Op
from tilewright.layout.linear import LANE, WARP
from tilewright.ops.atomic import Writing
from tilewright.ops.memory import Load, Store


class GlobalAccess(NamedTuple):
    """An access of global memory.

    Attributes:
        classes: the alias classes of the arguments that it may go through; None is unknown.
        writes: whether it is a store, by one thread for all that hold an element; else a load by
            all of these.
    """

    classes: frozenset[int | None]
    writes: bool

    def conflicts(self, other: object) -> bool:
        """Whether a barrier is required between the two."""
        if not isinstance(other, GlobalAccess) or self.writes is other.writes:
            return False
        return None in self.classes | other.classes or not self.classes.isdisjoint(other.classes)


def hazardous_accesses(fn: Function) -> Mapping[Op, GlobalAccess]:
    """The loads by several threads from memory that the function may store, and these stores."""
    if not any(map(_is_repeated, fn.walk())):
        return {}
    found = {
        op: GlobalAccess(_classes(fn, arguments), not _is_repeated(op))
        for op, arguments in accesses_of(fn).items()
        if _is_repeated(op) or isinstance(op, Store | Writing)
    }
    distinct = set(found.values())
    return {op: a for op, a in found.items() if any(a.conflicts(other) for other in distinct)}


def _is_repeated(op: Op) -> bool:
    """Whether it is a load, and several threads load the same element."""
    if not isinstance(op, Load) or op.local:
        return False
    layout = op.result.layout
    return layout is None or any(map(layout.free_variables, (LANE, WARP)))


def _classes(fn: Function, arguments: frozenset[int]) -> frozenset[int | None]:
    """The alias classes of arguments, or of memory that no argument points to."""
    return frozenset(fn.arg_attrs[i].get("alias") for i in arguments) or frozenset([None])

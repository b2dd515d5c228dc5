"""Partition of the ops between two layouts by a min-cut.

Elementwise ops between a matrix instruction and memory accesses can work in the layout of either.
Each value that is defined on one side and used on the other is converted through shared memory. For
example, if an accumulator is multiplied by two loaded tiles and the results are stored twice,
either the accumulator is converted, as fp32, or those four tiles are, as bf16. In a function
without matrix instructions, the sides are the two layouts of accesses that run along two axes of
tiles of one shape, of which that of the first access takes the role of the matrix instructions'.

Input: the layouts that `assign_layouts` propagated. Output: the same with some ops moved to the
other side, such that the number of converted bytes, weighted by the estimated trip counts of loops,
is minimal; of equal cuts, the one that moves the fewest ops. If several threads hold an element,
such as one of the right operand of a matrix instruction, each of them computes it, which adds to
the cost. One min-cut on a graph with a node for each movable op and two for
each value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple, Protocol, TypeGuard

from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import element_of, shape_of
from tilewright.layout.linear import LANE, WARP, LinearLayout
from tilewright.ops.atomic import AtomicRMW, AtomicStore
from tilewright.ops.control import For, While
from tilewright.ops.memory import Store
from tilewright.passes.layout_rules import operand_layout, propagates_layout, result_layout
from tilewright.passes.min_cut import Cut, Node

TRIPS = 16  # the assumed trip count of a loop
FINE = 1 << 12  # cost of a converted byte, in moved ops: breaks ties between equal cuts
WORK = 4  # cost of computing an element once more, in converted bytes


class Assigned(NamedTuple):
    """The layout assigned to a value, and the priority of its origin."""

    priority: int
    layout: LinearLayout


DEFAULT, REPEATED, ACCESS, FIRST = 1, 2, 3, 4
"""Priorities: none, repeated elements of a memory access, the access itself, the first side (a
matrix instruction or the first access)."""

Shape = tuple[int, ...]
Pair = tuple[LinearLayout, LinearLayout]
"""The layouts of the first and the second side."""

AnyStore = Store | AtomicStore | AtomicRMW
"""Ops that write a tile. An atomic read-modify-write only if its result is unused."""


def is_store(op: Op) -> TypeGuard[AnyStore]:
    """Whether an op writes a tile and has no used results."""
    return isinstance(op, AnyStore) and not any(result.users for result in op.results)


class Choice(Protocol):
    """The interface to the layout assignment."""

    assigned: dict[Value, Assigned]
    accessed: Mapping[Shape, Pair]
    """The layouts of accesses of a shape that have two."""

    def store_layout(self, op: AnyStore) -> LinearLayout:
        """The layout in which a store takes its operands."""
        ...

    def default_layout(self, value: Value) -> LinearLayout:
        """The layout of a value to which none was propagated."""
        ...


def choose_sides(fn: Function, choice: Choice) -> int:
    """Update `choice.assigned` to a partition with minimal conversions between the sides.

    Nothing is changed if the first side has two layouts for one shape: a min-cut separates two
    sides only.

    Returns:
        the number of ops that changed sides.
    """
    first = {
        (shape_of(value.type), assigned.layout)
        for value, assigned in choice.assigned.items()
        if assigned.priority == FIRST
    }
    shapes = [shape for shape, _ in first]
    unique = len(set(shapes)) == len(shapes)
    return _Sides(fn, choice, dict(first)).run() if first and unique else 0


class _Sides:
    """The partition of one function.

    Attributes:
        layouts: the layout of the first side by shape.
        free: the ops that can work on either side, in program order.
    """

    def __init__(self, fn: Function, choice: Choice, layouts: dict[Shape, LinearLayout]) -> None:
        self.layouts = layouts
        self.choice = choice
        self.assigned = choice.assigned
        self.free = {op: None for op in fn.walk() if self._is_free(op)}

    def run(self) -> int:
        first = self._first_side()
        moved = [op for op in self.free if (op in first) != self._is_first(op.results[0])]
        to_first = [op for op in moved if op in first]
        for op in moved:
            if op not in first:
                self.assigned[op.results[0]] = Assigned(ACCESS, self._second_layout(op))
        # The layout of an op may come from a user or from an operand, so both orders are visited.
        for op in (*reversed(to_first), *to_first):
            layout = self._first_layout(op)
            if layout is not None:
                self.assigned[op.results[0]] = Assigned(FIRST, layout)
        return len(moved)

    # -- the graph ------------------------------------------------------------------------------

    def _first_side(self) -> set[Node]:
        """The ops on the first side, that of the source of the graph."""
        cut = Cut()
        for value in self.assigned:
            users = list(self._users(cut, value))
            if users:
                cut.add_value(self._producer(cut, value), users, _cost(value) * FINE)
        for op in self.free:
            here = (cut.source, op) if self._is_first(op.results[0]) else (op, cut.sink)
            cut.add_edge(*here, 1)
            self._add_work(cut, op)
        return cut.solve()[1]

    def _add_work(self, cut: Cut, op: Op) -> None:
        """Add the cost of an elementwise op on either side due to elements held by several threads.

        The layout on the other side is not known yet: results of a shape that the first side has
        are taken to have the same layout there, and those on the second side no duplicates.
        Rows and columns of results, as the maxima of attention, are few: to exchange them between
        threads takes longer, barriers included, than to compute them in several.
        """
        value = op.results[0]
        shape, layout = shape_of(value.type), self.assigned[value].layout
        if not op.elementwise or shape not in self.layouts or len(shape) < 2:
            return
        work = WORK * FINE * assumed_trips(value) * prod(shape)
        cut.add_edge(op, cut.sink, work * duplicates(self.layouts[shape]))
        if not self._is_first(value):
            cut.add_edge(cut.source, op, work * duplicates(layout))

    def _is_free(self, op: Op) -> bool:
        """Whether an op can work on either side."""
        if not propagates_layout(op) or op.results[0] not in self.assigned:
            return False
        layouts = [self.assigned[v].layout for v in op.operands if v in self.assigned]
        return bool(layouts) and result_layout(op, layouts[0]) is not None

    def _is_first(self, value: Value) -> bool:
        return self.assigned[value].priority == FIRST

    def _side(self, cut: Cut, value: Value) -> Node:
        return cut.source if self._is_first(value) else cut.sink

    def _producer(self, cut: Cut, value: Value) -> Node:
        return value.op if value.op in self.free else self._side(cut, value)

    def _users(self, cut: Cut, value: Value) -> Iterator[Node]:
        """The nodes that use a value, except users that are rematerialised in each layout, and
        stores that accept the layout of a matrix instruction."""
        for op in value.users:
            if op in self.free:
                yield op
            elif is_store(op):
                layout = self.choice.store_layout(op)
                if layout == self._accessed_first(op):
                    yield cut.source
                elif not (self._is_first(value) and layout == self.assigned[value].layout):
                    yield cut.sink
            elif not propagates_layout(op):
                yield self._side(cut, value)

    def _accessed_first(self, op: AnyStore) -> LinearLayout | None:
        layouts = self.choice.accessed.get(shape_of(op.ptr.type))
        return layouts[0] if layouts is not None else None

    # -- layouts --------------------------------------------------------------------------------

    def _second_layout(self, op: Op) -> LinearLayout:
        """The layout of an op on the second side: from an operand on that side, that of accesses,
        or the default."""
        found = self._from_operands(op, False)
        if found is not None:
            return found
        result = op.results[0]
        layouts = self.choice.accessed.get(shape_of(result.type))
        return layouts[1] if layouts is not None else self.choice.default_layout(result)

    def _first_layout(self, op: Op) -> LinearLayout | None:
        """The layout of an op on the first side: the one that a user on that side requires, or the
        one that results from an operand."""
        for user in op.results[0].users:
            if user in self.free and self._is_first(user.results[0]):
                return operand_layout(user, self.assigned[user.results[0]].layout)
        return self._from_operands(op, True)

    def _from_operands(self, op: Op, first: bool) -> LinearLayout | None:
        for value in op.operands:
            if value in self.assigned and self._is_first(value) == first:
                return result_layout(op, self.assigned[value].layout)
        return None


def _cost(value: Value) -> int:
    """The cost of converting a value: its bytes times the assumed number of executions."""
    size = element_of(value.type).nbytes_in_memory
    return assumed_trips(value) * prod(shape_of(value.type)) * size


def assumed_trips(value: Value) -> int:
    """The assumed number of executions of the op that computes a value."""
    region = value.region
    around = region.parent if region is not None else None
    holders = (around, *around.ancestors()) if around is not None else ()
    return TRIPS ** sum(isinstance(op, For | While) for op in holders)


def duplicates(layout: LinearLayout) -> int:
    """The number of further threads that hold each element."""
    free = layout.free_variables(LANE).bit_count() + layout.free_variables(WARP).bit_count()
    return (1 << free) - 1

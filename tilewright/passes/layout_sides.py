"""Partition of the ops between matrix instructions and memory accesses by a min-cut.

Elementwise ops between a matrix instruction and memory accesses can work in the layout of either.
Each value that is defined on one side and used on the other is converted through shared memory. For
example, if an accumulator is multiplied by two loaded tiles and the results are stored twice,
either the accumulator is converted, as fp32, or those four tiles are, as bf16.

Input: the layouts that `assign_layouts` propagated. Output: the same with some ops moved to the
other side, such that the number of converted bytes, weighted by the estimated trip counts of loops,
is minimal; of equal cuts, the one that moves the fewest ops. Where several threads hold an element,
as those of other rows hold the right operand of a matrix instruction, each of them computes it,
which counts as further bytes. One min-cut on a graph with a node for each movable op and two for
each value.
"""

from __future__ import annotations

from collections.abc import Iterator
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


# Priorities: none, repeated elements of a memory access, the access itself, a matrix instruction.
DEFAULT, REPEATED, ACCESS, MATRIX = 1, 2, 3, 4

AnyStore = Store | AtomicStore | AtomicRMW
"""Ops that write a tile. An atomic read-modify-write only if its result is unused."""


def is_store(op: Op) -> TypeGuard[AnyStore]:
    """Whether an op writes a tile and returns nothing that is used."""
    return isinstance(op, AnyStore) and not any(result.users for result in op.results)


class Choice(Protocol):
    """The interface to the layout assignment."""

    assigned: dict[Value, Assigned]

    def store_layout(self, op: AnyStore) -> LinearLayout:
        """The layout in which a store takes its operands."""
        ...

    def default_layout(self, value: Value) -> LinearLayout:
        """The layout of a value to which none was propagated."""
        ...


def choose_sides(fn: Function, choice: Choice) -> int:
    """Update `choice.assigned` to a partition with minimal conversions between the sides.

    Nothing is changed if matrix instructions use two layouts for one shape: a min-cut separates two
    sides only.

    Returns:
        the number of ops that changed sides.
    """
    matrices = {
        (shape_of(value.type), assigned.layout)
        for value, assigned in choice.assigned.items()
        if assigned.priority == MATRIX
    }
    shapes = [shape for shape, _ in matrices]
    unique = len(set(shapes)) == len(shapes)
    return _Sides(fn, choice, dict(matrices)).run() if matrices and unique else 0


class _Sides:
    """The partition of one function.

    Attributes:
        matrices: the layout of matrix instructions by shape.
        free: the ops that can work on either side, in program order.
    """

    def __init__(
        self, fn: Function, choice: Choice, matrices: dict[tuple[int, ...], LinearLayout]
    ) -> None:
        self.matrices = matrices
        self.choice = choice
        self.assigned = choice.assigned
        self.free = {op: None for op in fn.walk() if self._is_free(op)}

    def run(self) -> int:
        matrix = self._side_of_matrices()
        moved = [op for op in self.free if (op in matrix) != self._in_matrix(op.results[0])]
        to_matrix = [op for op in moved if op in matrix]
        for op in moved:
            if op not in matrix:
                self.assigned[op.results[0]] = Assigned(ACCESS, self._memory_layout(op))
        # The layout of an op may come from a user or from an operand, so both orders are visited.
        for op in (*reversed(to_matrix), *to_matrix):
            layout = self._matrix_layout(op)
            if layout is not None:
                self.assigned[op.results[0]] = Assigned(MATRIX, layout)
        return len(moved)

    # -- the graph ------------------------------------------------------------------------------

    def _side_of_matrices(self) -> set[Node]:
        """The ops on the side of the matrix instructions, the source of the graph."""
        cut = Cut()
        for value in self.assigned:
            users = list(self._users(cut, value))
            if users:
                cut.add_value(self._producer(cut, value), users, _cost(value) * FINE)
        for op in self.free:
            here = (cut.source, op) if self._in_matrix(op.results[0]) else (op, cut.sink)
            cut.add_edge(*here, 1)
            self._add_work(cut, op)
        return cut.solve()[1]

    def _add_work(self, cut: Cut, op: Op) -> None:
        """Add what an elementwise op costs on either side because threads hold the same elements.

        The layout on the other side is not known yet: results of a shape that matrix instructions
        have are taken to have the same layout, and those of memory accesses no duplicates.
        Rows and columns of results, as the maxima of attention, are few: to exchange them between
        threads takes longer, barriers included, than to compute them in several.
        """
        value = op.results[0]
        shape, layout = shape_of(value.type), self.assigned[value].layout
        if not op.elementwise or shape not in self.matrices or len(shape) < 2:
            return
        work = WORK * FINE * _trips(value) * prod(shape)
        cut.add_edge(op, cut.sink, work * _duplicates(self.matrices[shape]))
        if not self._in_matrix(value):
            cut.add_edge(cut.source, op, work * _duplicates(layout))

    def _is_free(self, op: Op) -> bool:
        """Whether an op can work on either side."""
        if not propagates_layout(op) or op.results[0] not in self.assigned:
            return False
        layouts = [self.assigned[v].layout for v in op.operands if v in self.assigned]
        return bool(layouts) and result_layout(op, layouts[0]) is not None

    def _in_matrix(self, value: Value) -> bool:
        return self.assigned[value].priority == MATRIX

    def _side(self, cut: Cut, value: Value) -> Node:
        return cut.source if self._in_matrix(value) else cut.sink

    def _producer(self, cut: Cut, value: Value) -> Node:
        return value.op if value.op in self.free else self._side(cut, value)

    def _users(self, cut: Cut, value: Value) -> Iterator[Node]:
        """The nodes that use a value. Users that are rematerialised in each layout do not count,
        nor do stores that accept the layout of the matrix instruction."""
        for op in value.users:
            if op in self.free:
                yield op
            elif is_store(op):
                accepted = self.choice.store_layout(op) == self.assigned[value].layout
                if not (accepted and self._in_matrix(value)):
                    yield cut.sink
            elif not propagates_layout(op):
                yield self._side(cut, value)

    # -- layouts --------------------------------------------------------------------------------

    def _memory_layout(self, op: Op) -> LinearLayout:
        """The layout of an op on the memory side: from an operand on that side, or the default."""
        return self._from_operands(op, False) or self.choice.default_layout(op.results[0])

    def _matrix_layout(self, op: Op) -> LinearLayout | None:
        """The layout of an op on the matrix side: the one that a user on that side requires, or the
        one that results from an operand."""
        for user in op.results[0].users:
            if user in self.free and self._in_matrix(user.results[0]):
                return operand_layout(user, self.assigned[user.results[0]].layout)
        return self._from_operands(op, True)

    def _from_operands(self, op: Op, matrix: bool) -> LinearLayout | None:
        for value in op.operands:
            if value in self.assigned and self._in_matrix(value) == matrix:
                return result_layout(op, self.assigned[value].layout)
        return None


def _cost(value: Value) -> int:
    """The cost of converting a value: its bytes times the assumed number of executions."""
    size = element_of(value.type).nbytes_in_memory
    return _trips(value) * prod(shape_of(value.type)) * size


def _trips(value: Value) -> int:
    """The assumed number of executions of the op that computes a value."""
    region = value.region
    around = region.parent if region is not None else None
    holders = (around, *around.ancestors()) if around is not None else ()
    return TRIPS ** sum(isinstance(op, For | While) for op in holders)


def _duplicates(layout: LinearLayout) -> int:
    """The number of further threads that hold each element."""
    free = layout.free_variables(LANE).bit_count() + layout.free_variables(WARP).bit_count()
    return (1 << free) - 1

"""Which ops work in the layout of a matrix instruction, and which in that of memory.

What is between the two does not mind, so that there is a choice of where values pass from one to
the other, through shared memory. A product whose accumulator is multiplied with two loaded tiles
and stored twice may be moved once, as fp32, or those four tiles, as bf16.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple, Protocol

from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import element_of, shape_of
from tilewright.layout.linear import LinearLayout
from tilewright.ops.atomic import AtomicStore
from tilewright.ops.control import For, While
from tilewright.ops.memory import Store
from tilewright.passes.layout_rules import follows, operand_layout, result_layout
from tilewright.passes.least_cut import Cut, Node

TRIPS = 16  # of a loop of which nothing is known
FINE = 1 << 12  # parts of a byte: of equal cuts, that is taken which changes least


class Home(NamedTuple):
    """The layout in which a value is made, and how strong the reason for it is."""

    strength: int
    layout: LinearLayout


DEFAULT, ACCESS, MATRIX = 1, 2, 3  # strengths: any layout would do, memory, a matrix instruction

AnyStore = Store | AtomicStore


class Choice(Protocol):
    """What is asked of the pass that chooses layouts."""

    homes: dict[Value, Home]

    def store_layout(self, op: AnyStore) -> LinearLayout:
        """The layout in which an op stores."""
        ...

    def any_layout(self, value: Value) -> LinearLayout:
        """A layout for a value of which nothing is known."""
        ...


def choose_sides(fn: Function, choice: Choice) -> int:
    """Change homes so that as little as can be passes from one side to the other.

    Nothing is done where a shape has two layouts of matrix instructions: they would be two sides.

    Returns:
        how many values changed sides.
    """
    matrices = {
        (shape_of(value.type), home.layout)
        for value, home in choice.homes.items()
        if home.strength == MATRIX
    }
    shapes = [shape for shape, _ in matrices]
    alone = len(set(shapes)) == len(shapes)
    return _Sides(fn, choice).run() if matrices and alone else 0


class _Sides:
    def __init__(self, fn: Function, choice: Choice) -> None:
        self.choice = choice
        self.homes = choice.homes
        self.free = {op: None for op in fn.walk() if self._is_free(op)}

    def run(self) -> int:
        matrix = self._side_of_matrices()
        moved = [op for op in self.free if (op in matrix) != self._in_matrix(op.results[0])]
        to_matrix = [op for op in moved if op in matrix]
        for op in moved:
            if op not in matrix:
                self.homes[op.results[0]] = Home(ACCESS, self._memory_layout(op))
        # Layouts come from users as well as from operands, whichever is known first.
        for op in (*reversed(to_matrix), *to_matrix):
            layout = self._matrix_layout(op)
            if layout is not None:
                self.homes[op.results[0]] = Home(MATRIX, layout)
        return len(moved)

    # -- the graph ------------------------------------------------------------------------------

    def _side_of_matrices(self) -> set[Node]:
        cut = Cut()
        for value in self.homes:
            users = list(self._users(cut, value))
            if users:
                cut.passes(self._maker(cut, value), users, _cost(value) * FINE)
        for op in self.free:
            here = (cut.source, op) if self._in_matrix(op.results[0]) else (op, cut.sink)
            cut.edge(*here, 1)
        return cut.least()[1]

    def _is_free(self, op: Op) -> bool:
        """Whether an op may work on either side."""
        if not follows(op) or op.results[0] not in self.homes:
            return False
        layouts = [self.homes[v].layout for v in op.operands if v in self.homes]
        return bool(layouts) and result_layout(op, layouts[0]) is not None

    def _in_matrix(self, value: Value) -> bool:
        return self.homes[value].strength == MATRIX

    def _side(self, cut: Cut, value: Value) -> Node:
        return cut.source if self._in_matrix(value) else cut.sink

    def _maker(self, cut: Cut, value: Value) -> Node:
        return value.op if value.op in self.free else self._side(cut, value)

    def _users(self, cut: Cut, value: Value) -> Iterator[Node]:
        """Where a value is wanted. What is made again wherever it is wanted does not count, nor
        does what is stored as it comes from the matrix instruction."""
        for op in value.users:
            if op in self.free:
                yield op
            elif isinstance(op, AnyStore):
                as_it_is = self.choice.store_layout(op) == self.homes[value].layout
                if not (as_it_is and self._in_matrix(value)):
                    yield cut.sink
            elif not follows(op):
                yield self._side(cut, value)

    # -- layouts --------------------------------------------------------------------------------

    def _memory_layout(self, op: Op) -> LinearLayout:
        """That of an operand on this side, or any."""
        return self._from_operands(op, False) or self.choice.any_layout(op.results[0])

    def _matrix_layout(self, op: Op) -> LinearLayout | None:
        """That in which a user on this side takes the result, or which follows from an operand."""
        for user in op.results[0].users:
            if user in self.free and self._in_matrix(user.results[0]):
                return operand_layout(user, self.homes[user.results[0]].layout)
        return self._from_operands(op, True)

    def _from_operands(self, op: Op, matrix: bool) -> LinearLayout | None:
        for value in op.operands:
            if value in self.homes and self._in_matrix(value) == matrix:
                return result_layout(op, self.homes[value].layout)
        return None


def _cost(value: Value) -> int:
    """Bytes that are moved, as often as they are."""
    trips, region = 1, value.region
    while region is not None and region.parent is not None:
        trips *= TRIPS if isinstance(region.parent, For | While) else 1
        region = region.parent.parent
    return trips * prod(shape_of(value.type)) * element_of(value.type).nbytes_in_memory

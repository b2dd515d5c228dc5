"""The values of a kernel's scalars in each program of a launch.

    points = Points({n: 1000}, grid=(8, 1, 1))
    points.value(scalar)           # an array with one element for each program

A *point* is a program, or one iteration of loops in it. A scalar that is computed from program ids,
scalar arguments and loop counters is evaluated for all points at once by the `evaluate` of its ops,
exactly as the kernel computes it. A loaded scalar is known if the array's elements are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeGuard

import numpy as np

from tilewright.analysis.affine import increments_of
from tilewright.analysis.polynomial import Iteration, Polynomial
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import Tile, is_pointer, numpy_of, shape_of
from tilewright.ops.arith import Bitcast, Hint
from tilewright.ops.control import For, If, NumPrograms, ProgramId
from tilewright.ops.memory import AddPtr, Load, pointee_of

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]
Grid = tuple[int, int, int]
MAX_POINTS = 1 << 23
MAX_NUMBER = 1 << 62  # beyond, sums of 64 bits might wrap


class UnknownNumber(Exception):
    """A scalar that is not known before the launch. The argument is the reason."""


class Points:
    """See the module's documentation.

    Args:
        scalars: the integer arguments of the kernel.
        grid: the launch's extents.
        tables: the elements of arrays of integers that the kernel does not store.

    Attributes:
        count: the number of points.
        program: the number of each point's program.
    """

    def __init__(
        self, scalars: Mapping[Value, int], grid: Grid, tables: Mapping[Value, Array] | None = None
    ) -> None:
        self._scalars = scalars
        self._tables = tables or {}
        self.grid = grid
        self.count = grid[0] * grid[1] * grid[2]
        self._require_few()
        number = np.arange(self.count, dtype=np.int64)
        self._program = (
            number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]),
        )  # fmt: skip
        self.program = number
        self._iterations: dict[For, Array] = {}
        self._known: dict[Value, Array] = {}

    def _require_few(self) -> None:
        if self.count > MAX_POINTS:
            raise UnknownNumber(f"the launch has {self.count} programs and iterations")

    def inside(self, op: Op) -> tuple[Points, bool]:
        """The points at which an op runs, and whether it is sure to run at each.

        They are the iterations of the loops around it, where the conditions around it hold, as far
        as these are known.
        """
        points, surely = self, True
        for outer, region in reversed(list(op.enclosing())):
            if isinstance(outer, For):
                points = points._in_loop(outer)
            elif isinstance(outer, If):
                try:
                    holds = points.value(outer.condition).astype(bool)
                    points = points._where(holds if region is outer.regions[0] else ~holds)
                except UnknownNumber:
                    surely = False
            else:
                raise UnknownNumber("it is in a while loop")
        return points, surely

    def turns(self, loops: Iterable[For]) -> tuple[Array, ...]:
        """The number of each point's program, and of its iteration of each of these loops, in which
        all points are."""
        return self.program, *(self._iterations[loop] for loop in loops)

    def at_origin(self, axes: Sequence[int]) -> Points:
        """The points of programs whose index along these axes is 0."""
        origin = np.ones(self.count, bool)
        for axis in axes:
            origin &= self._program[axis] == 0
        return self._where(origin)

    def _where(self, mask: Array) -> Points:
        return self.taken(np.flatnonzero(mask))

    def taken(self, index: Array) -> Points:
        """Some of the points."""
        made = object.__new__(Points)
        made._scalars, made._tables, made.grid = self._scalars, self._tables, self.grid
        made.count = len(index)
        made._require_few()
        made.program = self.program[index]
        made._program = tuple(axis[index] for axis in self._program)
        made._iterations = {loop: turn[index] for loop, turn in self._iterations.items()}
        made._known = {}
        return made

    def most_trips(self, loop: For) -> int:
        """The largest number of iterations of a loop at a point."""
        return int(self._trips(loop).max(initial=0))

    def _trips(self, loop: For) -> Array:
        start, stop, step = (
            self.value(v).astype(np.int64) for v in (loop.start, loop.stop, loop.step)
        )
        return np.maximum(0, -((start - stop) // np.maximum(step, 1)))

    def _in_loop(self, loop: For) -> Points:
        trips = self._trips(loop)
        if int(trips.sum()) > MAX_POINTS:
            raise UnknownNumber(f"the launch has {int(trips.sum())} iterations")
        index = np.repeat(np.arange(self.count), trips)
        made = self.taken(index)
        first = np.cumsum(trips) - trips
        made._iterations[loop] = np.arange(len(index), dtype=np.int64) - first[index]
        return made

    # -- numbers --------------------------------------------------------------------------------

    def value(self, value: Value) -> Array:
        """A scalar at each point, in its own type.

        Raises:
            UnknownNumber: it depends on memory, or is not an integer.
        """
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._computed(value)
        return found

    def _computed(self, value: Value) -> Array:
        owner = value.owner
        dtype = numpy_of(value.type)
        if isinstance(value.type, Tile) or dtype.kind not in "iub":
            raise UnknownNumber("it is not an integer")
        if isinstance(owner, Region):
            return self._argument(value, owner).astype(dtype)
        match owner:
            case ProgramId(axis):
                return self._program[axis].astype(dtype)
            case NumPrograms(axis):
                return np.full(self.count, self.grid[axis], dtype)
            case Load():
                return self._loaded(owner).astype(dtype)
            case If():
                return self._branch_result(owner, value.index).astype(dtype)
            case For():
                return self.carried(value, self.value)
            case _:
                if not owner.elementwise:
                    raise UnknownNumber(f"it depends on {owner.name}")
                operands = [self.value(v) for v in owner.operands]
                with np.errstate(all="ignore"):
                    result = np.asarray(owner.evaluate(*operands))
                return np.broadcast_to(result, (self.count,))

    def _branch_result(self, op: If, index: int) -> Array:
        """A result of a branch, selected at each point by its condition."""
        holds = self.value(op.condition).astype(bool)
        found = np.zeros(self.count, np.int64)
        for region, mask in zip(op.regions, (holds, ~holds), strict=True):
            if mask.any():
                found[mask] = self._where(mask).value(region.terminator.operands[index])
        return found

    def _loaded(self, op: Load) -> Array:
        index, pointer = np.zeros(self.count, np.int64), op.ptr
        while isinstance(pointer.op, AddPtr | Hint) or casts_integers(pointer.op):
            if isinstance(pointer.op, AddPtr):
                index = index + self.value(pointer.op.offset).astype(np.int64)
            pointer = pointer.op.operands[0]
        mask = np.array(True) if op.mask is None else self.value(op.mask).astype(bool)
        other = np.array(0) if op.other is None else self.value(op.other)
        return self.read(None if op.volatile else pointer, index, mask, other)

    def read(self, base: Value | None, index: Array, mask: Array, other: Array) -> Array:
        """The elements of a table that a load reads at each point."""
        table = self._tables.get(base) if base is not None else None
        if table is None:
            raise UnknownNumber("it is loaded from an array that is not in tables")
        mask = np.broadcast_to(mask, index.shape)
        if np.any(mask & ((index < 0) | (index >= len(table)))):
            raise UnknownNumber("it is loaded from outside of its array")
        found = np.broadcast_to(other, index.shape).astype(table.dtype)
        found[mask] = table[index[mask]]
        return found

    def _argument(self, value: Value, region: Region) -> Array:
        loop = region.parent
        if loop is None:
            number = self._scalars.get(value)
            if number is None:
                raise UnknownNumber("it is not an integer argument")
            return np.full(self.count, number)
        if value.index > 0 or not isinstance(loop, For):
            return self.carried(value, self.value)
        if loop not in self._iterations:
            raise UnknownNumber("it is outside of its loop")
        start, step = (self.value(v).astype(np.int64) for v in (loop.start, loop.step))
        return start + self._iterations[loop] * step

    def carried(self, value: Value, number: Callable[[Value], Array]) -> Array:
        """The carried value, or the result, of a loop with a constant increment: a scalar or a tile
        at each point. Sums wrap around in its type.

        Args:
            number: what values are that do not change in the loop.

        Raises:
            UnknownNumber: it changes in another way, or one of these is not known.
        """
        sums = carried_sum(value)
        if sums is None or numpy_of(value.type).kind not in "iu":
            raise UnknownNumber("a loop carries it")
        loop, init, steps = sums
        turns = self._trips(loop) if value.op is loop else self._iterations.get(loop)
        if turns is None:
            raise UnknownNumber("it is outside of its loop")
        total = number(init)
        turns = turns.astype(total.dtype).reshape(-1, *(1 for _ in shape_of(value.type)))
        with np.errstate(over="ignore"):
            for sign, step in steps:
                change = turns * number(step)
                total = total + change if sign > 0 else total - change
        return total

    def polynomial(self, polynomial: Polynomial) -> Array:
        """A polynomial at each point, exactly, as int64.

        Raises:
            UnknownNumber: one of its unknowns is, or the number is too large.
        """
        total = np.zeros(self.count, np.int64)
        size = 0
        for term in polynomial.terms:
            numbers = [self._atom(atom) for atom in term.factors]
            bounds = [max(abs(int(n.max())), abs(int(n.min()))) for n in numbers if len(n)]
            size += abs(term.coefficient) * prod(bounds)
            if size >= MAX_NUMBER:
                raise UnknownNumber("it does not fit into 62 bits")
            product: Array | int = term.coefficient
            for number in numbers:
                product = number * product
            total += product
        return total

    def _atom(self, atom: Value | Iteration) -> Array:
        if isinstance(atom, Iteration):
            if atom.loop not in self._iterations:
                raise UnknownNumber("it is outside of its loop")
            return self._iterations[atom.loop]
        return self.value(atom).astype(np.int64)


def casts_integers(op: Op | None) -> TypeGuard[Bitcast]:
    """Whether an op casts a pointer to integers to one to integers of the same size, as bools are
    read as bytes: offsets and numbers are the same."""
    if not isinstance(op, Bitcast) or not is_pointer(op.src.type):
        return False
    before, after = pointee_of(op.src.type), pointee_of(op.result.type)
    same = before.nbytes_in_memory == after.nbytes_in_memory
    return same and before.is_int() and after.is_int()


def carried_sum(value: Value) -> tuple[For, Value, list[tuple[int, Value]]] | None:
    """The loop that carries or returns a value, its initial value, and its increment per iteration;
    None if an iteration changes the value in another way."""
    op = value.op
    carried = op.body.args[value.index + 1] if isinstance(op, For) else value
    loop = carried.owner.parent if isinstance(carried.owner, Region) else None
    increments = increments_of(carried)
    return (loop, *increments) if isinstance(loop, For) and increments is not None else None


def joined(arrays: Sequence[Array]) -> Array:
    """The concatenation of arrays."""
    return np.concatenate(list(arrays)) if arrays else np.zeros(0, np.int64)

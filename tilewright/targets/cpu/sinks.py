"""The actions of a group at each point: materialise a value, store it, or reduce it."""

from __future__ import annotations

from tilewright.ir.core import Op, Value
from tilewright.lowering.emit import I64, zero
from tilewright.ops import memory, reduce
from tilewright.targets.cpu import access
from tilewright.targets.cpu.accumulate import Accumulator, accumulator_of
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.evaluate import evaluate, load
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.lazy import loads_in
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.plan import Group


class Sink:
    """One root of a group. `Nest` calls `evaluate` of all sinks at a point, and then `commit`.

    Attributes:
        operands: the tile values that it evaluates.
        op: the op that it implements.
        mask: the mask of a store; where it is false the sink has no effect.
        may_skip: whether points at which all masks are false may be skipped, or evaluated once.
        fills: whether skipped points must be filled with the value evaluated once.
        written: pointers that it writes through.
    """

    mask: Value | None = None
    may_skip = True
    fills = False
    written: tuple[Value, ...] = ()

    def __init__(self, kernel: Kernel, operands: list[Value], op: Op | None = None) -> None:
        self.kernel = kernel
        self.operands = operands
        self.op = op
        self.accumulators: list[Accumulator] = []
        self.value = Lanes(zero(I64))

    def pointers(self) -> list[Value]:
        """The pointers of its loads and stores."""
        return [op.ptr for op in loads_in(self.operands, self.kernel.env)]

    def evaluate(self, level: Level, coords: Coords) -> None:
        """Evaluate the operands at a point."""

    def commit(self, level: Level, coords: Coords) -> None:
        """Write to memory."""

    def fill(self, level: Level, coords: Coords, value: Lanes) -> None:
        """Write a value that was evaluated at another point."""

    def bind(self) -> None:
        """Bind the results, after the loop nest."""


class Keep(Sink):
    """Materialises a value in its buffer."""

    fills = True

    def __init__(self, kernel: Kernel, value: Value, buffer: Buffer) -> None:
        super().__init__(kernel, [value], value.op)
        self.kept = value
        self.buffer = buffer

    def evaluate(self, level: Level, coords: Coords) -> None:
        self.value = evaluate(level, self.kept, coords)

    def commit(self, level: Level, coords: Coords) -> None:
        access.write_buffer(level, self.buffer, coords, self.value)

    def fill(self, level: Level, coords: Coords, value: Lanes) -> None:
        access.write_buffer(level, self.buffer, coords, value)

    def bind(self) -> None:
        self.kernel.env[self.kept] = self.buffer


class Copy(Keep):
    """Evaluates a value into a buffer that is not bound to it."""

    def bind(self) -> None:
        pass


class KeepVolatile(Keep):
    """Executes a volatile load, exactly once per element, into its buffer."""

    may_skip = False

    def evaluate(self, level: Level, coords: Coords) -> None:
        assert isinstance(self.kept.op, memory.Load)
        self.value = load(level, self.kept.op, coords)


class StoreSink(Sink):
    """`mem.store` of a tile."""

    def __init__(self, kernel: Kernel, op: memory.Store) -> None:
        super().__init__(kernel, list(op.operands), op)
        self.stored = op
        self.mask = op.mask
        self.may_skip = op.mask is not None
        self.written = (op.ptr,)
        self.at: tuple[Lanes, Lanes, Lanes | None] | None = None

    def pointers(self) -> list[Value]:
        return [*super().pointers(), self.stored.ptr]

    def evaluate(self, level: Level, coords: Coords) -> None:
        op = self.stored
        mask = evaluate(level, op.mask, coords) if op.mask is not None else None
        self.at = evaluate(level, op.ptr, coords), evaluate(level, op.value, coords), mask

    def commit(self, level: Level, coords: Coords) -> None:
        assert self.at is not None
        access.store(level, self.stored, coords, *self.at)


class ReduceSink(Sink):
    """`tile.reduce`, with one accumulator."""

    def __init__(self, kernel: Kernel, op: reduce.Reduce) -> None:
        super().__init__(kernel, list(op.srcs), op)
        self.accumulators = [accumulator_of(kernel, op)]
        self.may_skip = self.accumulators[0].can_repeat

    def bind(self) -> None:
        self.accumulators[0].bind()


def sinks_of(kernel: Kernel, group: Group) -> list[Sink]:
    """The sinks of a group; those of kept values are first."""
    sinks: list[Sink] = [Keep(kernel, v, kernel.buffer(v)) for v in group.keep]
    for op in group.roots:
        if isinstance(op, memory.Store):
            sinks.append(StoreSink(kernel, op))
        elif isinstance(op, memory.Load):
            sinks.append(KeepVolatile(kernel, op.result, kernel.buffer(op.result)))
        else:
            assert isinstance(op, reduce.Reduce)
            sinks.append(ReduceSink(kernel, op))
    return sinks

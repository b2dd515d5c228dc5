"""The actions of a group at each point: materialise a value, store it, reduce it, check it, update
memory with it."""

from __future__ import annotations

from functools import partial
from math import gcd

from tilewright.ir.core import Op, Value
from tilewright.lowering.emit import I1, I8, I64, Builder, LType, V, const, zero
from tilewright.lowering.guard import guarded
from tilewright.lowering.types import memory_type
from tilewright.ops import atomic, debug, memory, reduce
from tilewright.targets.cpu import access
from tilewright.targets.cpu.accumulate import Accumulator, accumulator_of
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.check import check
from tilewright.targets.cpu.evaluate import evaluate, load
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.lazy import loads_in
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.loops import loop
from tilewright.targets.cpu.plan import Group
from tilewright.targets.cpu.update import add_adjacent, is_plain, update

UPDATE_LANES = 4
"""The number of lanes of updates of elements that are not known to be adjacent.

With more, so many are in flight that those at distances of a power of two evict each other's lines
from the first-level cache before they are written. A scatter of 32,768 elements whose neighbours
are 4 KiB apart takes 98 µs with 4 lanes, and 176 with 16 as well as with one; another one, of
16,384 elements, 43 with 4 and with 16, and 64 with one (Zen 5).
"""


class Sink:
    """One root of a group. `Nest` calls `evaluate` of all sinks at a point, and then `commit`.

    Attributes:
        operands: the tile values that it evaluates.
        op: the op that it implements.
        mask: the mask of a store; where it is false the sink has no effect.
        may_skip: whether points at which all masks are false may be skipped, or evaluated once.
        fills: whether skipped points must be filled with the value evaluated once.
        row_major: whether it must be executed for the elements of a tile in row-major order.
        written: pointers that it writes through.
    """

    mask: Value | None = None
    may_skip = True
    fills = False
    row_major = False
    written: tuple[Value, ...] = ()

    def lanes(self, axis: int) -> int:
        """The most lanes along an axis in which its points may be visited at once."""
        return self.kernel.lanes

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
        self.at: tuple[Lanes, Lanes, Lanes | None, access.Run] | None = None

    def pointers(self) -> list[Value]:
        return [*super().pointers(), self.stored.ptr]

    def evaluate(self, level: Level, coords: Coords) -> None:
        op = self.stored
        mask = evaluate(level, op.mask, coords) if op.mask is not None else None
        ptr, value = evaluate(level, op.ptr, coords), evaluate(level, op.value, coords)
        run = access.contiguous_lanes(level, op.ptr, ptr, coords)
        ends = [
            (evaluate(level, op.ptr, first).base, evaluate(level, op.ptr, last).base)
            for first, last in access.ends_of_runs(level, run, coords)
        ]
        self.at = ptr, value, mask, run._replace(ends=ends)

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


class Check(Sink):
    """`debug.assert` of a tile. Where its masks are false, one check is that of all elements."""

    def __init__(self, kernel: Kernel, op: debug.Assert) -> None:
        super().__init__(kernel, [op.condition], op)
        self.asserted = op

    def evaluate(self, level: Level, coords: Coords) -> None:
        """Check immediately, before the ops after the assertion, in the loop with which the
        condition varies."""
        holds = evaluate(level, self.asserted.condition, coords)
        with level.placed(holds):
            check(self.kernel, self.asserted, holds.base)


class Update(Sink):
    """`atomic.rmw` of a tile, without a result: the operands are computed in vectors and written to
    the stack, and the elements updated from there sequentially. Additions without atomics to
    adjacent elements are vectorised."""

    row_major = True

    def __init__(self, kernel: Kernel, op: atomic.AtomicRMW) -> None:
        super().__init__(kernel, list(op.operands), op)
        self.updated = op
        self.mask = op.mask
        self.may_skip = op.mask is not None
        self.written = (op.ptr,)
        self.at: list[Lanes] = []

    def lanes(self, axis: int) -> int:
        if not is_plain(self.kernel, self.updated):
            return UPDATE_LANES
        run = gcd(self.kernel.facts[self.updated.ptr].contiguity[axis], self.kernel.lanes)
        return max(run, UPDATE_LANES)

    def evaluate(self, level: Level, coords: Coords) -> None:
        self.at = [evaluate(level, operand, coords) for operand in self.operands]

    def commit(self, level: Level, coords: Coords) -> None:
        b, width = level.b, level.width
        *_, mask = operands = self.at
        if self.mask is not None and mask.base.number == 1 and mask.uniform:
            operands = operands[:-1]
        if width == 1:
            self._update([x.base for x in operands])
            level.block = b.current
            return
        if self._adjacent(level, coords):
            self._add_vector(level, *operands)
            return
        stored = [_on_stack(b, level.vector(x)) for x in operands]
        with loop(level, const(I64, 0), const(I64, width), 1, width=1) as each:
            self._update([b.load(t, b.gep(t, place, each.index)) for t, place in stored])
            each.level.block = b.current

    def _adjacent(self, level: Level, coords: Coords) -> bool:
        """Whether the lanes are added as one vector."""
        if not is_plain(self.kernel, self.updated):
            return False
        ptr = self.at[0]
        if ptr.stride is not None:
            return ptr.stride == memory_type(self.updated.value.type).bits // 8
        run = access.contiguous_lanes(level, self.updated.ptr, ptr, coords)
        return run == access.Run(level.width)

    def _add_vector(
        self, level: Level, ptr: Lanes, value: Lanes, mask: Lanes | None = None
    ) -> None:
        b = level.b
        # The lanes' pointers are valid only where the mask is true, but the first one's is where
        # the run starts.
        start = ptr.base if ptr.stride is not None else b.extract(ptr.base, 0)
        if mask is not None and mask.uniform:
            with b.when(mask.base):
                add_adjacent(b, self.updated, start, level.vector(value), None)
        else:
            within = level.vector(mask) if mask is not None else None
            add_adjacent(b, self.updated, start, level.vector(value), within)
        level.block = b.current

    def _update(self, operands: list[V]) -> None:
        ptr, value, *mask = operands
        b = self.kernel.b
        condition = b.icmp("ne", mask[0], 0) if mask else None
        act = partial(update, self.kernel, self.updated, ptr, value)
        guarded(b, condition, act, zero(value.type))


def _on_stack(b: Builder, vector: V) -> tuple[LType, V]:
    """The elements of a vector on the stack: their type, and their address. Bits become bytes."""
    if vector.type.element is I1:
        vector = b.zext(vector, I8)
    assert vector.type.lanes
    place = b.alloca(vector.type)
    b.store(vector, place)
    return vector.type.element, place


def sinks_of(kernel: Kernel, group: Group) -> list[Sink]:
    """The sinks of a group; checks of assertions are first, then those of kept values."""
    checks = [op for op in group.roots if isinstance(op, debug.Assert)]
    sinks: list[Sink] = [Check(kernel, op) for op in checks]
    sinks += [Keep(kernel, v, kernel.buffer(v)) for v in group.keep]
    for op in group.roots:
        if isinstance(op, debug.Assert):
            continue
        if isinstance(op, atomic.AtomicRMW):
            sinks.append(Update(kernel, op))
        elif isinstance(op, memory.Store):
            sinks.append(StoreSink(kernel, op))
        elif isinstance(op, memory.Load):
            sinks.append(KeepVolatile(kernel, op.result, kernel.buffer(op.result)))
        else:
            assert isinstance(op, reduce.Reduce)
            sinks.append(ReduceSink(kernel, op))
    return sinks

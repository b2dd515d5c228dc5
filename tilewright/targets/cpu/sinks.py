"""What a group does at each point: keep a value, store it, add it to a reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir import types as ir
from tilewright.ir.core import Op, Region, Value
from tilewright.lowering.emit import I64, Builder, LType, V, const, vector, zero
from tilewright.lowering.registry import lowering_of
from tilewright.lowering.types import register_type
from tilewright.ops import arith, control, memory, reduce
from tilewright.targets.cpu import access
from tilewright.targets.cpu.access import Buffer
from tilewright.targets.cpu.evaluate import Coords, Level
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.plan import cone

if TYPE_CHECKING:
    from tilewright.targets.cpu.kernel import Kernel
    from tilewright.targets.cpu.plan import Group


class Sink:
    """One root of a group.

    Attributes:
        operands: the tile values that it evaluates.
        mask: the mask of a store; where it fails the sink does nothing.
        may_skip: whether points at which its masks fail may be left out or done at once.
        fills: whether points that were left out must be filled with their one value.
    """

    mask: Value | None = None
    may_skip = True
    fills = False

    def __init__(self, kernel: Kernel, operands: list[Value]) -> None:
        self.kernel = kernel
        self.operands = operands
        self.accumulators: list[Accumulator] = []
        self.value = Lanes(zero(I64))

    def pointers(self) -> list[Value]:
        """The pointers of what it loads and stores."""
        found = [
            v.op.ptr
            for operand in self.operands
            for v in cone(operand, self.kernel.plan.kept)
            if isinstance(v.op, memory.Load) and v not in self.kernel.plan.kept
        ]
        return found

    def evaluate(self, level: Level, coords: Coords) -> None:
        """Compute everything the sink needs at a point."""

    def commit(self, level: Level, coords: Coords) -> None:
        """Write to memory."""

    def fill(self, level: Level, coords: Coords, value: Lanes) -> None:
        """Write a value that was evaluated elsewhere."""

    def bind(self) -> None:
        """Make the results known to what follows the group."""


class Keep(Sink):
    """Fills the buffer of a value."""

    fills = True

    def __init__(self, kernel: Kernel, value: Value, buffer: Buffer) -> None:
        super().__init__(kernel, [value])
        self.kept = value
        self.buffer = buffer

    def evaluate(self, level: Level, coords: Coords) -> None:
        self.value = level.eval(self.kept, coords)

    def commit(self, level: Level, coords: Coords) -> None:
        access.write_buffer(level, self.buffer, coords, self.value)

    def fill(self, level: Level, coords: Coords, value: Lanes) -> None:
        access.write_buffer(level, self.buffer, coords, value)

    def bind(self) -> None:
        self.kernel.env[self.kept] = self.buffer


class Copy(Keep):
    """Evaluates a value into a buffer that stands for another one."""

    def bind(self) -> None:
        pass


class KeepVolatile(Keep):
    """Reads a volatile tile once into its buffer."""

    may_skip = False

    def evaluate(self, level: Level, coords: Coords) -> None:
        assert isinstance(self.kept.op, memory.Load)
        self.value = access.load(level, self.kept.op, coords)


class StoreSink(Sink):
    """`mem.store` of a tile."""

    def __init__(self, kernel: Kernel, op: memory.Store) -> None:
        super().__init__(kernel, list(op.operands))
        self.op = op
        self.mask = op.mask
        self.may_skip = op.mask is not None
        self.at: tuple[Lanes, Lanes, Lanes | None] | None = None

    def pointers(self) -> list[Value]:
        return [*super().pointers(), self.op.ptr]

    def evaluate(self, level: Level, coords: Coords) -> None:
        op = self.op
        mask = level.eval(op.mask, coords) if op.mask is not None else None
        self.at = level.eval(op.ptr, coords), level.eval(op.value, coords), mask

    def commit(self, level: Level, coords: Coords) -> None:
        assert self.at is not None
        access.store(level, self.op, *self.at)


class ReduceSink(Sink):
    """`tile.reduce`, through one accumulator."""

    def __init__(self, kernel: Kernel, op: reduce.Reduce) -> None:
        super().__init__(kernel, list(op.srcs))
        self.op = op
        self.accumulators = [Accumulator(kernel, op)]
        self.may_skip = self.accumulators[0].repeats is not None

    def bind(self) -> None:
        self.accumulators[0].bind()


class Accumulator:
    """The running values of a reduction: N vectors of W lanes, for N operands.

    Where the combination has no known identity, an extra vector of flags tells which lanes hold
    anything yet.
    """

    def __init__(self, kernel: Kernel, op: reduce.Reduce) -> None:
        self.kernel = kernel
        self.op = op
        self.simple = reduce.simple_combine(op)
        self.identity = _identity(self.simple) if self.simple is not None else None
        self.repeats = _repeats(self.simple) if self.simple is not None else None
        self.buffers: list[Buffer] = []
        self.scalars: list[V] = []
        if isinstance(op.results[0].type, ir.Tile):
            self.buffers = [kernel.buffer(r) for r in op.results]

    def start(self, width: int) -> list[V]:
        """The accumulator before any element."""
        from_scalar = [register_type(s.type) for s in self.op.srcs]
        wide = [_lanes_type(t, width) for t in from_scalar]
        if self.identity is not None:
            bits = number_of(ir.dtype_of(self.op.srcs[0].type), self.identity)
            return [const(wide[0], bits)]
        return [*[zero(t) for t in wide], zero(_lanes_type(register_type(ir.I1), width))]

    def add(self, level: Level, coords: Coords, state: list[V]) -> list[V]:
        """Combine the elements at a point."""
        values = [level.vector(level.eval(s, coords)) for s in self.op.srcs]
        if self.identity is not None:
            return self.combine(level, state, values)
        present = const(state[-1].type, 1)
        return self.combine(level, state, [*values, present])

    def combine(self, level: Level, left: list[V], right: list[V]) -> list[V]:
        """Element by element, left before right."""
        b = level.b
        if self.identity is not None:
            return combine_lanes(b, self.op.combine_region, [*left, *right])
        *x, has_x = left
        *y, has_y = right
        both = combine_lanes(b, self.op.combine_region, [*x, *y])
        merged = [
            b.select(has_x, b.select(has_y, c, p), q) for c, p, q in zip(both, x, y, strict=True)
        ]
        return [*merged, b.or_(has_x, has_y)]

    def across(self, level: Level, state: list[V]) -> list[V]:
        """Combine the lanes of the accumulator into scalars, neighbours first."""
        b = level.b
        width = state[0].type.lanes
        while width > 1:
            half = width // 2
            left = [_take(b, v, list(range(0, 2 * half, 2))) for v in state]
            right = [_take(b, v, list(range(1, 2 * half, 2))) for v in state]
            rest = [b.extract(v, width - 1) for v in state] if width % 2 else None
            state = self.combine(level, left, right)
            if rest is not None:
                scalars = self.across(level, state)
                return self.combine(level, scalars, rest)
            width = half
        return state

    def add_repeated(
        self, level: Level, coords: Coords, state: list[V], count: V, width: int
    ) -> list[V]:
        """Combine `count` elements that are all alike, into the first lane."""
        assert self.repeats is not None
        b = level.b
        value = level.eval(self.op.srcs[0], coords).base
        repeated = self.repeats(b, value, count)
        vector = self.start(width)[0]
        if vector.type.lanes:
            vector = b.insert(vector, repeated, 0)
        else:
            vector = repeated
        combined = self.combine(level, state, [vector])
        some = b.icmp("sgt", count, const(I64, 0))
        return [b.select(some, combined[0], state[0])]

    def write(self, level: Level, coords: Coords, state: list[V]) -> None:
        """Put the result where it belongs; `state` is per lane of the coordinates."""
        axis = self.op.axis
        at = coords[:axis] + coords[axis + 1 :]
        values = state[: len(self.op.srcs)]
        if not self.buffers:
            self.scalars = values
            return
        for buffer, v in zip(self.buffers, values, strict=True):
            lanes = Lanes(v, None if v.type.lanes else 0, level.depth)
            access.write_buffer(level, buffer, at, lanes)

    def bind(self) -> None:
        bound = self.buffers or self.scalars
        for result, value in zip(self.op.results, bound, strict=True):
            self.kernel.env[result] = value


def _lanes_type(element: LType, width: int) -> LType:
    return vector(element, width) if width > 1 else element


def _take(b: Builder, v: V, picked: list[int]) -> V:
    return b.extract(v, picked[0]) if len(picked) == 1 else b.shuffle(v, None, picked)


def combine_lanes(b: Builder, region: Region, args: list[V]) -> list[V]:
    """Run a combine region on lanes: all its ops are elementwise, branches become selects."""
    env: dict[Value, V] = dict(zip(region.args, args, strict=True))
    return _run(b, region, env, args[0].type.lanes)


def _run(b: Builder, region: Region, env: dict[Value, V], width: int) -> list[V]:
    for op in region:
        if op.terminator:
            return [env[v] for v in op.operands]
        if isinstance(op, arith.Constant):
            t = _lanes_type(register_type(op.type), width) if width else register_type(op.type)
            env[op.result] = const(t, number_of(ir.dtype_of(op.type), op.value))
        elif isinstance(op, control.If):
            then = _run(b, op.then, dict(env), width)
            otherwise = _run(b, op.otherwise, dict(env), width)
            condition = env[op.condition]
            for result, x, y in zip(op.results, then, otherwise, strict=True):
                env[result] = b.select(condition, x, y)
        else:
            env[op.result] = _lower(b, op, [env[v] for v in op.operands])
    raise AssertionError("a region without terminator")


def _lower(b: Builder, op: Op, args: list[V]) -> V:
    lower = lowering_of(type(op), "cpu")
    if lower is None:
        raise NotImplementedError(f"{op.name} in a combine function, at {op.loc}")
    return lower(b, op, *args)


def number_of(element: ir.DType, value: bool | int | float) -> int | float:
    """A constant as its register type takes it: narrow floats are held as bits."""
    if element.is_floating() and not register_type(element).is_float:
        return int(np.array(value, element.numpy).view(f"u{element.itemsize}"))
    return value


def _identity(op: Op) -> bool | int | float | None:
    """The element that changes nothing. Of a float sum it is -0.0; of a max that ignores NaN it
    is NaN."""
    element = ir.dtype_of(op.result.type)
    floating = element.is_floating()
    match op:
        case arith.Add():
            return -0.0 if floating else 0
        case arith.Mul():
            return 1.0 if floating else 1
        case arith.Or() | arith.Xor():
            return 0
        case arith.And():
            return -1 if not element.is_bool() else 1
        case arith.Max(propagate_nan=propagate) | arith.Min(propagate_nan=propagate):
            largest = isinstance(op, arith.Max)
            if floating and element.is_fp8():
                return None
            if floating:
                return float("nan") if not propagate else float("-inf" if largest else "inf")
            return element.get_int_min_value() if largest else element.get_int_max_value()
        case _:
            return None


def _repeats(op: Op) -> Callable[[Builder, V, V], V] | None:
    """What combining so many equal elements gives; None if there is no short way."""
    element = ir.dtype_of(op.result.type)
    match op:
        case arith.Max() | arith.Min() | arith.And() | arith.Or():
            return lambda b, v, n: v
        case arith.Add() if not element.is_floating():
            return lambda b, v, n: b.mul(v, _resize(b, n, v))
        case arith.Add() if element.primitive_bitwidth >= 32:
            return lambda b, v, n: b.fmul(v, b.sitofp(n, v.type))
        case _:
            return None


def _resize(b: Builder, n: V, v: V) -> V:
    return b.trunc(n, v.type) if v.type.bits < 64 else n


def sinks_of(kernel: Kernel, group: Group) -> list[Sink]:
    """The sinks of a group, values to keep first."""
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


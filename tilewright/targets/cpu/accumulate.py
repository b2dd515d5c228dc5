"""The accumulators of reductions.

An accumulator is a state of one or more vectors, updated with the elements at each point of a loop
nest, whose lanes are combined at the end. `accumulator_of` selects the cheapest implementation for
the combine region: sums, extrema and logical ops have an identity element; the general one has
none, and carries flags instead. Lanes may be combined in any order if the op is commutative;
otherwise adjacent lanes first, which preserves the order of the axis.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.ir.core import Op
from tilewright.lowering.convert import narrow, widen
from tilewright.lowering.emit import Builder, V, const, zero
from tilewright.lowering.types import compute_type, register_type
from tilewright.ops import arith, reduce
from tilewright.targets.cpu import access, avx512
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.combine import combine_lanes, lanes_type, lower
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.level import Coords, Level


class Accumulator:
    """The accumulator of a reduction with any combine region.

    A combine region need not have an identity element, so the state has a further vector of flags:
    which lanes contain a value.

    Attributes:
        can_repeat: whether `repeat` is implemented.
        any_order: whether lanes may be combined in any order; extracting the halves of a vector is
            faster than extracting its even and odd lanes.
    """

    can_repeat = False
    any_order = False

    def __init__(self, kernel: Kernel, op: reduce.Reduce) -> None:
        self.kernel = kernel
        self.op = op
        self.buffers: list[Buffer] = []
        self.scalars: list[V] = []
        if isinstance(op.results[0].type, ir.Tile):
            self.buffers = [kernel.buffer(r) for r in op.results]

    # -- overridden by subclasses ---------------------------------------------------------------

    def start(self, width: int) -> list[V]:
        """The initial state, of no elements."""
        values = [zero(lanes_type(register_type(s.type), width)) for s in self.op.srcs]
        return [*values, zero(lanes_type(register_type(ir.I1), width))]

    def load(self, level: Level, values: list[V]) -> list[V]:
        """The state of one element in each lane."""
        return [*values, const(lanes_type(register_type(ir.I1), values[0].type.lanes), 1)]

    def combine(self, level: Level, left: list[V], right: list[V]) -> list[V]:
        """Combine two states lane by lane; `left` precedes `right`."""
        b = level.b
        *x, has_x = left
        *y, has_y = right
        both = combine_lanes(level, self.op.combine_region, [*x, *y], b.and_(has_x, has_y))
        merged = [
            b.select(has_x, b.select(has_y, c, p), q) for c, p, q in zip(both, x, y, strict=True)
        ]
        return [*merged, b.or_(has_x, has_y)]

    def result(self, level: Level, state: list[V]) -> list[V]:
        """The elements of a state, in the result's type."""
        return state[:-1]

    def repeat(self, level: Level, state: list[V], count: V) -> list[V]:
        """The state of `count` elements like the one in `state`."""
        raise NotImplementedError

    # -- derived --------------------------------------------------------------------------------

    def add(self, level: Level, coords: Coords, state: list[V]) -> list[V]:
        """Combine the elements at a point."""
        values = [level.vector(evaluate(level, s, coords)) for s in self.op.srcs]
        return self.combine(level, state, self.load(level, values))

    def across(self, level: Level, state: list[V]) -> list[V]:
        """Combine the lanes into a state of one lane; adjacent lanes first, if order matters."""
        b = level.b
        width = max(1, state[0].type.lanes)
        while width > 1:
            half = width // 2
            step, second = (1, half) if self.any_order else (2, 1)
            left = [_take(b, v, list(range(0, step * half, step))) for v in state]
            right = [_take(b, v, list(range(second, second + step * half, step))) for v in state]
            rest = [b.extract(v, width - 1) for v in state] if width % 2 else None
            state = self.combine(level, left, right)
            if rest is not None:
                return self.combine(level, self.across(level, state), rest)
            width = half
        return state

    def add_repeated(
        self, level: Level, coords: Coords, state: list[V], count: V, width: int
    ) -> list[V]:
        """Combine `count` (at least one) copies of the element at a point into the first lane."""
        b = level.b
        value = evaluate(level, self.op.srcs[0], coords).base
        repeated = self.repeat(level, self.load(level, [value]), count)
        if width > 1:
            pairs = zip(self.start(width), repeated, strict=True)
            repeated = [b.insert(vector, one, 0) for vector, one in pairs]
        return self.combine(level, state, repeated)

    def write(self, level: Level, coords: Coords, state: list[V]) -> None:
        """Write the result to its buffer, or record it if it is a scalar.

        The state has as many lanes as the coordinates.
        """
        axis = self.op.axis
        at = coords[:axis] + coords[axis + 1 :]
        values = self.result(level, state)
        level.block = level.b.current  # a conversion may have opened blocks
        if not self.buffers:
            self.scalars = values
            return
        for buffer, v in zip(self.buffers, values, strict=True):
            held = Lanes(v, None if v.type.lanes else 0, level.depth)
            access.write_buffer(level, buffer, at, held)

    def bind(self) -> None:
        bound = self.buffers or self.scalars
        for result, value in zip(self.op.results, bound, strict=True):
            self.kernel.env[result] = value


class _Simple(Accumulator):
    """A single op with an identity element. Narrow floats accumulate in fp32: like the order of a
    reduction, the precision of its intermediate results is unspecified."""

    can_repeat = True
    any_order = True

    def __init__(self, kernel: Kernel, op: reduce.Reduce, inner: Op) -> None:
        super().__init__(kernel, op)
        self.inner = inner
        self.largest = isinstance(inner, arith.Max)
        self.element = ir.dtype_of(op.srcs[0].type)
        self.wide = compute_type(self.element)

    def load(self, level: Level, values: list[V]) -> list[V]:
        return [widen(level.b, values[0], self.element)]

    def result(self, level: Level, state: list[V]) -> list[V]:
        return [narrow(level.b, state[0], self.element)]

    def repeat(self, level: Level, state: list[V], count: V) -> list[V]:
        """The op is idempotent, unless overridden."""
        return state


class _Sum(_Simple):
    """Sums. The identity element of floats is -0.0, as adding 0.0 changes -0.0."""

    def start(self, width: int) -> list[V]:
        return [const(lanes_type(self.wide, width), -0.0 if self.wide.is_float else 0)]

    def combine(self, level: Level, left: list[V], right: list[V]) -> list[V]:
        b = level.b
        add = b.fadd if self.wide.is_float else b.add
        return [add(left[0], right[0])]

    def repeat(self, level: Level, state: list[V], count: V) -> list[V]:
        b = level.b
        if self.wide.is_float:
            return [b.fmul(state[0], b.sitofp(count, self.wide))]
        narrowed = b.trunc(count, self.wide) if self.wide.bits < 64 else count
        return [b.mul(state[0], narrowed)]


class _FloatExtremum(_Simple):
    """The maximum or minimum of floats, ignoring NaN; NaN if all elements are.

    ``x > a ? x : a`` is one instruction on most machines and ignores NaN, but starts at an
    infinity, so it can't tell an infinity from no number at all. Hence the opposite extremum is
    computed as well: all elements are NaN if and only if neither has changed. The sign of a zero
    result is unspecified.
    """

    def start(self, width: int) -> list[V]:
        t = lanes_type(self.wide, width)
        low, high = const(t, float("-inf")), const(t, float("inf"))
        return [low, high] if self.largest else [high, low]

    def load(self, level: Level, values: list[V]) -> list[V]:
        wide = widen(level.b, values[0], self.element)
        return [wide, wide]

    def combine(self, level: Level, left: list[V], right: list[V]) -> list[V]:
        return [
            self.pick(level.b, left[0], right[0], self.largest),
            self.pick(level.b, left[1], right[1], not self.largest),
        ]

    @staticmethod
    def pick(b: Builder, running: V, x: V, largest: bool) -> V:
        return b.select(b.fcmp("ogt" if largest else "olt", x, running), x, running)

    def result(self, level: Level, state: list[V]) -> list[V]:
        b = level.b
        first, second = self.start(max(1, state[0].type.lanes))
        untouched = b.and_(b.fcmp("oeq", state[0], first), b.fcmp("oeq", state[1], second))
        found = b.select(untouched, const(state[0].type, float("nan")), state[0])
        return [narrow(b, found, self.element)]


class _Number(_Simple):
    """The same with an instruction that prefers numbers to quiet NaN, so NaN is the identity.

    The instruction lets a signalling NaN win, so elements are quieted first, by a product with a 1
    that is opaque to LLVM. `llvm.canonicalize` would do that, but LLVM 22 terminates the process
    for vectors with fewer lanes than a register.
    """

    def __init__(self, kernel: Kernel, op: reduce.Reduce, inner: Op) -> None:
        super().__init__(kernel, op, inner)
        one = const(self.wide, 1.0)
        self.one = kernel.at_entry(lambda b: b.inline_asm("", "=x,0", one.type, [one]))

    def start(self, width: int) -> list[V]:
        return [const(lanes_type(self.wide, width), float("nan"))]

    def load(self, level: Level, values: list[V]) -> list[V]:
        wide = widen(level.b, values[0], self.element)
        return [level.b.fmul(wide, level.b.splat(self.one, wide.type.lanes))]

    def combine(self, level: Level, left: list[V], right: list[V]) -> list[V]:
        return [avx512.extremum(level.b, left[0], right[0], largest=self.largest)]


class _QuietNumber(_Simple):
    """The same on AArch64, where LLVM 22 would combine a comparison and a select into an
    instruction that returns NaN if one operand is a signalling NaN."""

    def start(self, width: int) -> list[V]:
        return [const(lanes_type(self.wide, width), float("nan"))]

    def combine(self, level: Level, left: list[V], right: list[V]) -> list[V]:
        stem = "maximumnum" if self.largest else "minimumnum"
        t = left[0].type
        operands = [left[0], right[0]]
        return [level.b.intrinsic(f"llvm.{stem}", t, operands, overloads=[t])]


class _Idempotent(_Simple):
    """Integer extrema, `and`, `or`, and float extrema that propagate NaN."""

    def start(self, width: int) -> list[V]:
        return [const(lanes_type(self.wide, width), self.identity())]

    def identity(self) -> int | float:
        inner, element, largest = self.inner, self.element, self.largest
        if isinstance(inner, arith.Or):
            return 0
        if isinstance(inner, arith.And):
            return -1
        if element.is_floating():
            return float("-inf") if largest else float("inf")
        return element.get_int_min_value() if largest else element.get_int_max_value()

    def combine(self, level: Level, left: list[V], right: list[V]) -> list[V]:
        b = level.b
        if not self.element.is_floating():
            return [lower(b, self.inner, [left[0], right[0]])]
        stem = "maximum" if self.largest else "minimum"
        t = left[0].type
        return [b.intrinsic(f"llvm.{stem}", t, [left[0], right[0]], overloads=[t])]


def accumulator_of(kernel: Kernel, op: reduce.Reduce) -> Accumulator:
    """The accumulator for the op's combine region on the kernel's machine."""
    inner = reduce.simple_combine(op)
    match inner:
        case arith.Add() if not ir.dtype_of(op.srcs[0].type).is_bool():
            return _Sum(kernel, op, inner)
        case arith.Max() | arith.Min():
            floating = ir.is_float(op.srcs[0].type)
            if not floating or inner.propagate_nan:
                return _Idempotent(kernel, op, inner)
            if avx512.has_extremum(kernel.machine):
                return _Number(kernel, op, inner)
            quiet = kernel.machine.has_quiet_extrema
            return (_QuietNumber if quiet else _FloatExtremum)(kernel, op, inner)
        case arith.And() | arith.Or():
            return _Idempotent(kernel, op, inner)
        case _:
            return Accumulator(kernel, op)


def _take(b: Builder, v: V, picked: list[int]) -> V:
    return b.extract(v, picked[0]) if len(picked) == 1 else b.shuffle(v, None, picked)

"""Estimate the memory traffic and the operations of a launch by interpreting its tile IR.

Only values that determine addresses, masks and trip counts are evaluated: integers and pointers,
from the arguments' values and the grid; loaded values are unknown. A sample of the programs
represents the grid, and a sample of the iterations represents a loop whose state is an affine
function of the iteration, which is the case for most loops. The time is therefore nearly
independent of the grid and of trip counts.

Two amounts of bytes are reported. *Accessed* bytes count every load and store, each time it is
executed. The *minimum traffic* of memory counts each byte once: for each argument, the bytes
accessed through it, but at most the distance between the lowest and the highest address.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tilewright.base.diagnostics import Loc
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.types import dtype_of, element_of, is_pointer, numpy_of, shape_of
from tilewright.ops import arith, atomic, control, map, math, memory, reduce
from tilewright.ops.dot import Dot
from tilewright.tools.explain.sources import SourceMap

# Samples along each axis between its ends, by the number of axes with more than one program.
BETWEEN = {0: 0, 1: 3, 2: 2, 3: 1}
MAX_ITERATIONS = 512  # evaluated of a loop whose state is not affine in the iteration
STAND_IN = 6  # sampled iterations of a loop whose state is
# Argument i is assumed to be at address (i + 1) << BASE_SHIFT, so that an address identifies it.
BASE_SHIFT = 44

OPERATIONS: dict[type[Op], int] = {
    arith.Fma: 2,
    **dict.fromkeys(
        (arith.Add, arith.Sub, arith.Mul, arith.Div, arith.Rem, arith.Min, arith.Max, arith.Neg), 1
    ),
}


@dataclass
class Tally:
    """Totals of some ops over all programs.

    Attributes:
        loaded, stored: bytes.
        operations: floating-point operations, one per element; an fma counts as two.
        functions: those of `operations` that are functions such as exp.
        products: floating-point operations of `dot`.
    """

    loaded: float = 0
    stored: float = 0
    operations: float = 0
    functions: float = 0
    products: float = 0


@dataclass(frozen=True)
class LineCost:
    """The cost of a source line. `lines` has the line's number and those of the calls through which
    it was inlined."""

    lines: tuple[int, ...]
    tally: Tally


@dataclass(frozen=True)
class Cost:
    """The cost of a launch.

    Attributes:
        grid: its extents.
        values: the values of arguments that the estimate is for.
        total: of all ops.
        least: minimum traffic of memory in bytes.
        arguments: (bytes accessed, minimum traffic) by the name of each pointer argument.
        elements: operations by element type, without those of `dot`.
        products: operations of `dot` by element type.
        lines: cost by source line, in descending order.
        notes: the assumptions that were made.
    """

    grid: tuple[int, ...]
    values: dict[str, Any]
    total: Tally
    least: float
    arguments: dict[str, tuple[float, float]]
    elements: dict[str, float]
    products: dict[str, float]
    lines: list[LineCost]
    notes: list[str]


@dataclass
class _Span:
    """The bytes accessed through an argument, and the range [low, high) of their addresses."""

    moved: float = 0
    low: int = 1 << 63
    high: int = 0


@dataclass
class _Counts:
    """Counters shared by all sampled programs."""

    by_loc: defaultdict[Loc | None, Tally] = field(default_factory=lambda: defaultdict(Tally))
    spans: defaultdict[int, _Span] = field(default_factory=lambda: defaultdict(_Span))
    elements: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    products: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    notes: dict[str, None] = field(default_factory=dict)


def cost_of(
    fn: Function, grid: Sequence[int], values: Mapping[str, Any], sources: SourceMap
) -> Cost:
    """The cost of a launch.

    Args:
        fn: the kernel after the common tile passes.
        grid: extents of the launch.
        values: of scalar arguments, by name. A loop whose trip count depends on a missing value is
            assumed to run once.
    """
    extents = (*grid, 1, 1)[:3]
    counts = _Counts()
    for program, weight in _sampled(extents):
        _Program(fn, program, extents, values, counts, weight).run()
    total = Tally()
    for tally in counts.by_loc.values():
        _add(total, tally)
    arguments = {
        fn.arg_names[i]: (span.moved, min(span.moved, float(max(0, span.high - span.low))))
        for i, span in sorted(counts.spans.items())
        if i < len(fn.arg_names)
    }
    lines: defaultdict[tuple[int, ...], Tally] = defaultdict(Tally)
    for loc, tally in counts.by_loc.items():
        _add(lines[sources.of(loc)], tally)
    ranked = sorted(lines.items(), key=lambda item: -_weight(item[1]))
    return Cost(
        tuple(extents),
        dict(values),
        total,
        sum(least for _, least in arguments.values()),
        arguments,
        dict(counts.elements),
        dict(counts.products),
        [LineCost(numbers, tally) for numbers, tally in ranked if numbers and _weight(tally)],
        list(counts.notes),
    )


def _add(total: Tally, part: Tally) -> None:
    for name, value in vars(part).items():
        setattr(total, name, getattr(total, name) + value)


def _weight(tally: Tally) -> float:
    return tally.loaded + tally.stored + tally.operations + tally.products


def _sampled(extents: Sequence[int]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Sample programs of a grid, each with the number of programs that it represents.

    Both ends of an axis are samples of weight 1, because masks are mostly partial there. The
    samples between them are the midpoints of equal intervals, so that costs which are linear in the
    program id, such as those of causal attention, are estimated without bias.
    """
    between = BETWEEN[sum(extent > 1 for extent in extents)]
    axes = [list(_samples(extent, between)) for extent in extents]
    for ids in product(*axes):
        yield tuple(index for index, _ in ids), prod(weight for _, weight in ids)


def _samples(extent: int, between: int) -> Iterator[tuple[int, float]]:
    """Sampled program ids along an axis, with their weights, whose sum is `extent`."""
    if extent <= between + 2:
        yield from ((index, 1.0) for index in range(extent))
        return
    inner = extent - 2
    yield 0, 1.0
    for i in range(between):
        yield 1 + int(inner * (2 * i + 1) / (2 * between)), inner / between
    yield extent - 1, 1.0


class _Program:
    """Abstract interpretation of one program. `env` maps values to their known contents; absent
    values are unknown."""

    def __init__(
        self,
        fn: Function,
        program: Sequence[int],
        grid: Sequence[int],
        values: Mapping[str, Any],
        counts: _Counts,
        weight: float,
    ) -> None:
        self.fn = fn
        self.program = program
        self.grid = grid
        self.counts = counts
        self.weight = weight
        self.env: dict[Value, Any] = {}
        for i, arg in enumerate(fn.args):
            name = fn.arg_names[i] if i < len(fn.arg_names) else ""
            if is_pointer(arg.type):
                self.env[arg] = np.uint64((i + 1) << BASE_SHIFT)
            elif isinstance(values.get(name), bool | int) and _is_computed(arg):
                self.env[arg] = np.asarray(values[name]).astype(numpy_of(arg.type))[()]

    def run(self) -> None:
        with np.errstate(all="ignore"):
            self.region(self.fn.body)

    def region(self, region: Region) -> None:
        for op in region:
            if not op.terminator:
                self.op(op)

    def known(self, values: Sequence[Value]) -> list[Any]:
        return [self.env.get(v) for v in values]

    def bind(self, values: Sequence[Value], found: Sequence[Any]) -> None:
        for value, known in zip(values, found, strict=True):
            if known is None:
                self.env.pop(value, None)
            else:
                self.env[value] = known

    # -- ops ------------------------------------------------------------------------------------

    def op(self, op: Op) -> None:
        match op:
            case control.For():
                self.loop(op)
            case control.While():
                self.note(op, "the trip count of the loop is unknown; 1 is assumed")
                self.bind(op.before.args, self.known(op.inits))
                self.region(op.before)
                self.bind(op.body.args, self.known(op.before.terminator.operands[1:]))
                self.region(op.body)
            case control.If():
                self.branch(op)
            case control.ProgramId(axis):
                self.env[op.result] = np.int32(self.program[axis])
            case control.NumPrograms(axis):
                self.env[op.result] = np.int32(self.grid[axis])
            case _:
                self.count(op)
                self.evaluate(op)

    def note(self, op: Op, what: str) -> None:
        self.counts.notes[f"line {op.loc.line}: {what}" if op.loc else what] = None

    def evaluate(self, op: Op) -> None:
        """Evaluate the op if its operands are known; otherwise, its results become unknown."""
        operands = self.known(op.operands)
        computed = op.pure and not op.no_evaluate and all(_are_known(operands))
        if not computed or op.regions or not all(_is_computed(r) for r in op.results):
            for result in op.results:
                self.env.pop(result, None)
            return
        found = op.evaluate(*operands)
        self.bind(op.results, found if isinstance(found, tuple) else (found,))

    def branch(self, op: control.If) -> None:
        (condition,) = self.known([op.condition])
        if condition is None:
            self.note(op, "the condition of the branch is unknown; the first branch is assumed")
        taken = op.otherwise if condition is not None and not condition else op.then
        self.region(taken)
        self.bind(op.results, self.known(taken.terminator.operands))

    def loop(self, op: control.For) -> None:
        bounds = self.known([op.start, op.stop, op.step])
        state = self.known(op.inits)
        if any(b is None for b in bounds):
            self.note(op, "the trip count of the loop is unknown; 1 is assumed")
            indices: Sequence[int | None] = [None]
        else:
            indices = range(*(int(b) for b in bounds))
        outer = self.weight
        if len(indices) <= STAND_IN:
            for index in indices:
                state = self.iteration(op, index, state)
        else:
            state = self.many(op, [i for i in indices if i is not None], state)
        self.weight = outer
        self.bind(op.results, state)

    def iteration(self, op: control.For, index: int | None, state: list[Any]) -> list[Any]:
        counter = op.body.args[0]
        element = None if index is None else np.asarray(index).astype(numpy_of(counter.type))[()]
        self.bind(op.body.args, [element, *state])
        self.region(op.body)
        return self.known(op.body.terminator.operands)

    def many(self, op: control.For, indices: Sequence[int], state: list[Any]) -> list[Any]:
        """A loop of many iterations. If its state changes by equal steps between the first three,
        it is taken to be affine and some iterations represent the rest; otherwise, up to
        MAX_ITERATIONS are evaluated."""
        outer = self.weight
        states = [state]
        for index in indices[:3]:
            states.append(self.iteration(op, index, states[-1]))
        steps = [_step(*three) for three in zip(*states[1:], strict=True)]
        rest = indices[3:]
        if any(step is None for step in steps):
            state = states[-1]
            self.weight = outer * len(rest) / len(rest[:MAX_ITERATIONS])
            for index in rest[:MAX_ITERATIONS]:
                state = self.iteration(op, index, state)
            return state
        sampled = sorted({round(i * (len(rest) - 1) / (STAND_IN - 1)) for i in range(STAND_IN)})
        self.weight = outer * len(rest) / len(sampled)
        for i in sampled:
            state = [_advanced(v, s, i) for v, s in zip(states[-1], steps, strict=True)]
            state = self.iteration(op, rest[i], state)
        return state

    # -- counting -------------------------------------------------------------------------------

    def count(self, op: Op) -> None:
        tally = self.counts.by_loc[op.loc]
        if isinstance(op, memory.Load):
            tally.loaded += self.touched(op.ptr, op.mask)
        elif isinstance(op, memory.Store):
            tally.stored += self.touched(op.ptr, op.mask)
        elif isinstance(op, atomic.AnyAtomic | atomic.AtomicStore):
            tally.loaded += (both := self.touched(op.ptr, getattr(op, "mask", None)))
            tally.stored += both
        elif isinstance(op, Dot):
            *batch, m, n = shape_of(op.acc.type)
            done = 2.0 * prod(batch) * m * n * shape_of(op.lhs.type)[-1] * self.weight
            tally.products += done
            self.counts.products[dtype_of(op.lhs.type).short] += done
        elif isinstance(op, reduce.Reduce | reduce.Scan):
            before = prod(shape_of(op.srcs[0].type))
            reduces = isinstance(op, reduce.Reduce)
            steps = before - (prod(shape_of(op.results[0].type)) if reduces else 1)
            self.arithmetic(tally, op.combine_region, steps * self.weight)
        elif isinstance(op, map.Map):
            elements = prod(shape_of(op.results[0].type))
            self.arithmetic(tally, op.regions[0], elements * self.weight)
        elif op.elementwise and op.results:
            self.one(tally, op, prod(shape_of(op.results[0].type)) * self.weight)

    def arithmetic(self, tally: Tally, region: Region, times: float) -> None:
        for op in region.walk():
            if op.elementwise and op.results:
                self.one(tally, op, times)

    def one(self, tally: Tally, op: Op, times: float) -> None:
        """Count an elementwise op that is executed for `times` elements."""
        element = element_of(op.results[0].type)
        is_function = isinstance(op, math.MathFunction)
        weight = 1 if is_function else OPERATIONS.get(type(op), 0)
        if not weight or is_pointer(element) or not dtype_of(element).is_floating():
            return
        tally.operations += weight * times
        tally.functions += times if is_function else 0
        self.counts.elements[dtype_of(element).short] += weight * times

    def touched(self, ptr: Value, mask: Value | None) -> float:
        """Bytes of an access, which are also added to the span of its argument."""
        size = memory.pointee_of(ptr.type).nbytes_in_memory
        shape = shape_of(ptr.type)
        addresses = self.env.get(ptr)
        chosen = None if mask is None else self.env.get(mask)
        active = prod(shape) if chosen is None else int(np.count_nonzero(chosen))
        bytes = float(active * size) * self.weight
        if mask is not None and chosen is None and mask.op is not None:
            self.note(mask.op, "the mask is unknown; all elements are assumed to be active")
        if addresses is not None and active:
            seen = np.broadcast_to(addresses, shape)
            seen = seen if chosen is None else seen[np.broadcast_to(chosen, shape)]
            low, high = int(seen.min()), int(seen.max()) + size
            span = self.counts.spans[(low >> BASE_SHIFT) - 1]
            span.moved += bytes
            span.low, span.high = min(span.low, low), max(span.high, high)
        elif active:
            self.unknown_addresses(ptr, bytes)
        return bytes

    def unknown_addresses(self, ptr: Value, bytes: float) -> None:
        """Count an access at unknown addresses, such as loaded ones, as accessing each byte
        once."""
        for base in _bases(ptr):
            if base.owner is self.fn.body:
                span = self.counts.spans[base.index]
                span.moved += bytes
                span.low, span.high = 0, 1 << BASE_SHIFT
                return


def _are_known(values: Sequence[Any]) -> Iterator[bool]:
    return (v is not None for v in values)


def _is_computed(value: Value) -> bool:
    """Whether the value may determine an address, a mask or a trip count."""
    element = element_of(value.type)
    return is_pointer(element) or not dtype_of(element).is_floating()


def _bases(pointer: Value) -> Iterator[Value]:
    """The pointers that a pointer is computed from."""
    seen: set[Value] = set()
    pending = [pointer]
    while pending:
        value = pending.pop()
        if value not in seen and is_pointer(element_of(value.type)):
            seen.add(value)
            yield value
            pending += value.op.operands if value.op is not None else []


def _step(a: Any, b: Any, c: Any) -> Any:
    """The common difference of three successive values; None if the differences are not equal; 0 if
    a value is unknown."""
    if a is None or b is None or c is None:
        return 0
    first, second = np.subtract(b, a), np.subtract(c, b)
    return second if np.array_equal(first, second) else None


def _advanced(value: Any, step: Any, times: int) -> Any:
    """value + times * step in the value's type, with wrap-around; None if it is unknown."""
    if value is None:
        return None
    with np.errstate(all="ignore"):
        return (value + step * np.asarray(times).astype(np.asarray(value).dtype)).astype(
            np.asarray(value).dtype
        )

"""How many bytes a launch moves and how many operations it makes, counted from its tile IR.

Only what decides addresses, masks and the number of iterations is computed: integers, from the
arguments' values and the grid. Of what is loaded nothing is known. A few programs stand for all of
them, and a few iterations for a loop whose state moves by equal steps, as nearly every one does.

Two numbers are told of bytes. What programs *move* is what their loads and stores touch, each time.
What *memory* must move at least is each byte once: of an argument, what is moved through it, but no
more than lies between the lowest and the highest address.
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

# Programs along each axis that stand for those between its ends, by how many axes there are.
BETWEEN = {0: 0, 1: 3, 2: 2, 3: 1}
MAX_ITERATIONS = 512  # of a loop whose state does not move by equal steps
STAND_IN = 6  # iterations that stand for all of them where it does
BASE_SHIFT = 44  # an argument's addresses start at its number shifted by this

OPERATIONS: dict[type[Op], int] = {
    arith.Fma: 2,
    **dict.fromkeys(
        (arith.Add, arith.Sub, arith.Mul, arith.Div, arith.Rem, arith.Min, arith.Max, arith.Neg), 1
    ),
}


@dataclass
class Tally:
    """What some ops do, of all programs together.

    Attributes:
        loaded, stored: bytes.
        operations: on floats, one for each element; a multiply-add is two.
        functions: elements of functions such as exp, which are in `operations` too.
        products: operations of `dot`.
    """

    loaded: float = 0
    stored: float = 0
    operations: float = 0
    functions: float = 0
    products: float = 0


@dataclass(frozen=True)
class LineCost:
    """What a source line does; its numbers are those of the line and of the calls to it."""

    lines: tuple[int, ...]
    tally: Tally


@dataclass(frozen=True)
class Cost:
    """What a launch does.

    Attributes:
        grid: its extents.
        values: the numbers that were assumed of arguments.
        total: of all ops.
        least: bytes that memory must move at least.
        arguments: bytes moved through each pointer argument, and at least, by its name.
        elements: operations by element type; products apart.
        products: the same of `dot`.
        lines: by source line, the most costly first.
        notes: what had to be assumed.
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
    """What is touched through an argument: the bytes moved, and the ends of the addresses."""

    moved: float = 0
    low: int = 1 << 63
    high: int = 0


@dataclass
class _Counts:
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
        values: of arguments that are numbers, by name. What depends on one that is missing is
            assumed to happen once.
    """
    extents = (*grid, 1, 1)[:3]
    counts = _Counts()
    for program, weight in _chosen(extents):
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


def _chosen(extents: Sequence[int]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Programs that stand for all, and for how many each does.

    The ends of an axis stand for themselves, as masks mostly matter there. Those between them are
    placed evenly, so that what grows from one to the next comes out right.
    """
    between = BETWEEN[sum(extent > 1 for extent in extents)]
    axes = [list(_along(extent, between)) for extent in extents]
    for places in product(*axes):
        yield tuple(place for place, _ in places), prod(weight for _, weight in places)


def _along(extent: int, between: int) -> Iterator[tuple[int, float]]:
    if extent <= between + 2:
        yield from ((place, 1.0) for place in range(extent))
        return
    inner = extent - 2
    yield 0, 1.0
    for i in range(between):
        yield 1 + int(inner * (2 * i + 1) / (2 * between)), inner / between
    yield extent - 1, 1.0


class _Program:
    """Walks one program. `env` has the values that are known."""

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
                self.note(op, "how often the loop runs is not known; once is assumed")
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
        """Compute the results, if they matter and the operands are known."""
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
            self.note(op, "which branch is taken is not known; the first is assumed")
        taken = op.otherwise if condition is not None and not condition else op.then
        self.region(taken)
        self.bind(op.results, self.known(taken.terminator.operands))

    def loop(self, op: control.For) -> None:
        bounds = self.known([op.start, op.stop, op.step])
        state = self.known(op.inits)
        if any(b is None for b in bounds):
            self.note(op, "how often the loop runs is not known; once is assumed")
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
        given = None if index is None else np.asarray(index).astype(numpy_of(counter.type))[()]
        self.bind(op.body.args, [given, *state])
        self.region(op.body)
        return self.known(op.body.terminator.operands)

    def many(self, op: control.For, indices: Sequence[int], state: list[Any]) -> list[Any]:
        """A loop of many iterations: three of them show how its state moves; if by equal steps,
        some of the others stand for the rest."""
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
        places = sorted({round(i * (len(rest) - 1) / (STAND_IN - 1)) for i in range(STAND_IN)})
        self.weight = outer * len(rest) / len(places)
        for place in places:
            state = [_moved(v, s, place) for v, s in zip(states[-1], steps, strict=True)]
            state = self.iteration(op, rest[place], state)
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
        """An elementwise op, so many times."""
        element = element_of(op.results[0].type)
        is_function = isinstance(op, math.MathFunction)
        weight = 1 if is_function else OPERATIONS.get(type(op), 0)
        if not weight or is_pointer(element) or not dtype_of(element).is_floating():
            return
        tally.operations += weight * times
        tally.functions += times if is_function else 0
        self.counts.elements[dtype_of(element).short] += weight * times

    def touched(self, ptr: Value, mask: Value | None) -> float:
        """Bytes of an access, which are noted under the argument that they belong to."""
        size = memory.pointee_of(ptr.type).nbytes_in_memory
        shape = shape_of(ptr.type)
        addresses = self.env.get(ptr)
        chosen = None if mask is None else self.env.get(mask)
        active = prod(shape) if chosen is None else int(np.count_nonzero(chosen))
        bytes = float(active * size) * self.weight
        if mask is not None and chosen is None and mask.op is not None:
            self.note(mask.op, "what the mask lets through is not known; all is assumed")
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
        """Count what is touched at addresses that come from memory: once each."""
        for base in _bases(ptr):
            if base.owner is self.fn.body:
                span = self.counts.spans[base.index]
                span.moved += bytes
                span.low, span.high = 0, 1 << BASE_SHIFT
                return


def _are_known(values: Sequence[Any]) -> Iterator[bool]:
    return (v is not None for v in values)


def _is_computed(value: Value) -> bool:
    """Whether the value may decide an address, a mask or a number of iterations."""
    element = element_of(value.type)
    return is_pointer(element) or not dtype_of(element).is_floating()


def _bases(pointer: Value) -> Iterator[Value]:
    seen: set[Value] = set()
    pending = [pointer]
    while pending:
        value = pending.pop()
        if value not in seen and is_pointer(element_of(value.type)):
            seen.add(value)
            yield value
            pending += value.op.operands if value.op is not None else []


def _step(a: Any, b: Any, c: Any) -> Any:
    """By what a known value moves each time, if equally; 0 of an unknown; None if unequally."""
    if a is None or b is None or c is None:
        return 0
    first, second = np.subtract(b, a), np.subtract(c, b)
    return second if np.array_equal(first, second) else None


def _moved(value: Any, step: Any, times: int) -> Any:
    if value is None:
        return None
    with np.errstate(all="ignore"):
        return (value + step * np.asarray(times).astype(np.asarray(value).dtype)).astype(
            np.asarray(value).dtype
        )

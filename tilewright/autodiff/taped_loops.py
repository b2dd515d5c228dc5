"""The gradient of loops whose carried values are recorded; see `tapes.py`.

    for t in range(n):                          for t in range(n):                 record
        h = f(h, x[t])                              tape[t] = h
                                        →           h = f(h, x[t])
                                                for t in reversed(range(n)):       go back
                                                    h = tape[t]
                                                    h̄, x̄[t] = adjoint of f at (h, x[t]) for h̄

A carried value is recorded only if the reverse loop uses it: none is, for h = 0.5 * h + x[t].
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from tilewright.autodiff.emitter import Emitter
from tilewright.autodiff.loops import Carried
from tilewright.autodiff.tapes import TapeMemory
from tilewright.autodiff.walk import Walk
from tilewright.base.located import line_of
from tilewright.ir.core import Region, Value
from tilewright.ir.types import (
    I32,
    I64,
    DType,
    Type,
    derivative_type,
    element_of,
    is_float,
    shape_of,
)
from tilewright.ops.arith import (
    Add,
    Cast,
    Cmp,
    IntDiv,
    Max,
    Min,
    Mul,
    Sub,
)
from tilewright.ops.control import Barrier, Condition, For, While, Yield
from tilewright.ops.debug import Assert
from tilewright.ops.marks import StopGradient
from tilewright.ops.shape import Splat


class Steps:
    """The iterations of a loop: their carried values, from which they can be replayed and reversed.

    Attributes:
        walk: the walk.
        op: the loop.
        number: the type of the iteration's number.
        inits: what the first one starts with, as far as it is not known at each.
        states: the values with an adjoint that each iteration passes on.
        last: their values after the loop, None where nothing is.
    """

    walk: Walk
    op: For | While
    number: Type
    inits: list[Value]
    states: list[Value]
    last: list[Value | None]

    def trips(self) -> Value:
        """Emit the number of iterations."""
        raise NotImplementedError

    def at(self, region: Region, t: Value, values: Sequence[Value]) -> AbstractContextManager[None]:
        """Replay an iteration in a region, from its number and its initial values."""
        raise NotImplementedError

    def following(self) -> list[Value]:
        """Emit the initial values of the next iteration, from those of the present one."""
        raise NotImplementedError

    def reverse(self, adjoints: Sequence[Value]) -> list[Value | None]:
        """Emit the adjoints of the initial values of the present iteration, from those of its final
        values."""
        raise NotImplementedError


class ForSteps(Steps):
    """The iterations of a `for` loop.

    Args:
        carried: what it carries.
    """

    def __init__(self, walk: Walk, op: For, carried: Carried) -> None:
        self.walk, self.op, self._loop, self._carried = walk, op, op, carried
        self.number = op.start.type
        args, plain = op.body.args[1:], walk.replay.plain
        self._indices = sorted([*carried.states, *carried.rest])
        self.inits = [plain(op.inits[i]) for i in self._indices]
        self.states = [args[i] for i in carried.states]
        self.last = [walk.adjoint(op.results[i]) for i in carried.states]
        self.sums = {i: walk.adjoint(op.results[i]) for i in carried.sums}
        self._bounds = walk.replay.all_plain((op.start, op.stop, op.step))
        self._moved = {i: (plain(op.inits[i]), plain(by)) for i, by in carried.increments.items()}

    def trips(self) -> Value:
        value, integer = self.walk.emit.builder.value, self.walk.emit.integer
        start, stop, step = (_cast(self.walk.emit, v, I64) for v in self._bounds)
        step = value(Max(step, integer(1, I64), propagate_nan=False))
        extent = value(Max(value(Sub(stop, start)), integer(0, I64), propagate_nan=False))
        padded = value(Add(extent, value(Sub(step, integer(1, I64)))))
        return _cast(self.walk.emit, value(IntDiv(padded, step)), self.number)

    @contextmanager
    def at(self, region: Region, t: Value, values: Sequence[Value]) -> Generator[None]:
        args, emit = self._loop.body.args, self.walk.emit
        with self.walk.replay.scope(self._loop.body, region) as scope:
            scope.values[args[0]] = self._counter(t)
            for i, found in zip(self._indices, values, strict=True):
                scope.values[args[i + 1]] = found
            for i, (init, by) in self._moved.items():
                scope.values[args[i + 1]] = self._moved_by(t, init, by)
            for i in self._carried.unused:
                # No other value depends on it, so that it may be any.
                kind = args[i + 1].type
                zero = emit.zeros(kind) if is_float(kind) else emit.integer(0, kind)
                scope.values[args[i + 1]] = zero
            yield

    def _counter(self, t: Value) -> Value:
        """The induction variable of an iteration."""
        value, (start, _, step) = self.walk.emit.builder.value, self._bounds
        step = value(Max(step, self.walk.emit.integer(1, step.type), propagate_nan=False))
        return value(Add(start, value(Mul(t, step))))

    def _moved_by(self, t: Value, init: Value, by: Value) -> Value:
        """An integer that each iteration has increased."""
        value, turn = self.walk.emit.builder.value, _cast(self.walk.emit, t, element_of(init.type))
        if shape_of(init.type):
            turn = value(Splat(turn, shape_of(init.type)))
        return value(Add(init, value(Mul(turn, by))))

    def following(self) -> list[Value]:
        ends = self._loop.body.terminator.operands
        return self.walk.replay.all_plain(ends[i] for i in self._indices)

    def reverse(self, adjoints: Sequence[Value]) -> list[Value | None]:
        ends = self._loop.body.terminator.operands
        for i, y in zip(self._carried.states, adjoints, strict=True):
            self.walk.give(ends[i], y)
        for i, y in self.sums.items():
            self.walk.give(ends[i], y)
        self.walk.region(self._loop.body)
        return [self.walk.adjoint(arg) for arg in self.states]

    def finish(self, adjoints: Sequence[Value]) -> None:
        """Add adjoints to those of the loop's initial values."""
        for i, y in zip(self._carried.states, adjoints, strict=True):
            self.walk.give(self.op.inits[i], y)
        for i, y in self.sums.items():
            self.walk.give(self.op.inits[i], y)


class WhileSteps(Steps):
    """The iterations of a `while` loop, each of which is its condition, which was true, and its
    body."""

    def __init__(self, walk: Walk, op: While) -> None:
        self.walk, self.op, self._loop = walk, op, op
        self.number = I32
        self.inits = walk.replay.all_plain(op.inits)
        self.states = [arg for arg in op.before.args if arg in walk.active]
        self.last = []
        self._results = {i: y for i, r in enumerate(op.results) if (y := walk.adjoint(r))}
        self._final: list[Value] = []

    def trips(self) -> Value:
        """Run the loop, and count."""
        emit, op, one = self.walk.emit, self._loop, self.walk.emit.integer(1, I32)
        kinds = [*[v.type for v in self.inits], I32]
        before, body = Region(kinds), Region(kinds)
        with self.walk.replay.scope(op.before, before) as scope:
            scope.values.update(zip(op.before.args, before.args, strict=False))
            condition = self.walk.replay.plain(op.before.terminator.operands[0])
            emit.builder.insert(Condition(condition, before.args))
        with self.at(body, body.args[-1], body.args[:-1]):
            count = emit.builder.value(Add(body.args[-1], one))
            emit.builder.insert(Yield([*self.following(), count]))
        made = While([*self.inits, emit.integer(0, I32)], before=before, body=body)
        *self._final, count = emit.builder.insert(made).results
        self.last = self._adjoints_of_last()
        return count

    def _adjoints_of_last(self) -> list[Value | None]:
        """The adjoints of the initial values of the last evaluation of the condition, which was
        false."""
        op, walk = self._loop, self.walk
        region = walk.emit.builder.region
        assert region is not None
        with walk.replay.scope(op.before, region) as scope, walk.adjoints() as table:
            scope.values.update(zip(op.before.args, self._final, strict=True))
            for i, y in self._results.items():
                walk.give(op.before.terminator.operands[i + 1], y)
            walk.region(op.before)
            found = [table.get(arg) for arg in self.states]
        for value in walk.outer_values(op):
            walk.give(value, table.get(value))
        return found

    @contextmanager
    def at(self, region: Region, t: Value, values: Sequence[Value]) -> Generator[None]:
        op, replay = self._loop, self.walk.replay
        with replay.scope(op.before, region) as scope:
            scope.values.update(zip(op.before.args, values, strict=True))
            passed = replay.all_plain(op.before.terminator.operands[1:])
            with replay.scope(op.body, region) as inner:
                inner.values.update(zip(op.body.args, passed, strict=True))
                yield

    def following(self) -> list[Value]:
        return self.walk.replay.all_plain(self._loop.body.terminator.operands)

    def reverse(self, adjoints: Sequence[Value]) -> list[Value | None]:
        op, walk = self._loop, self.walk
        ends = [v for v, a in zip(op.body.terminator.operands, op.before.args, strict=True)
                if a in walk.active]  # fmt: skip
        for end, y in zip(ends, adjoints, strict=True):
            walk.give(end, y)
        walk.region(op.body)
        for arg, passed in zip(op.body.args, op.before.terminator.operands[1:], strict=True):
            walk.give(passed, walk.adjoint(arg))
        walk.region(op.before)
        return [walk.adjoint(arg) for arg in self.states]

    def finish(self, adjoints: Sequence[Value]) -> None:
        """Add adjoints to those of the loop's initial values."""
        for arg, y in zip(self.states, adjoints, strict=True):
            self.walk.give(self.op.inits[arg.index], y)


class TapedLoop:
    """Emits the gradient of a loop."""

    def __init__(self, walk: Walk, steps: ForSteps | WhileSteps) -> None:
        self.walk, self.steps = walk, steps
        self._emit, self._value = walk.emit, walk.emit.builder.value
        self._outer = walk.outer_values(steps.op)
        self._kinds = [derivative_type(v.type) for v in (*steps.states, *self._outer)]

    def run(self) -> None:
        """Emit it, and pass adjoints on."""
        steps, emit = self.steps, self._emit
        trips, zero = steps.trips(), self._number(0)
        given: list[Value | None] = [*steps.last, *[None] * len(self._outer)]
        start = [
            emit.zeros(kind) if y is None else emit.guarded(y)
            for y, kind in zip(given, self._kinds, strict=True)
        ]
        back = self._way_back()
        needed = [i for i, load in enumerate(back.loads) if load.users]
        if not needed:
            found = self._go_back(back, zero, trips, start, None)
        else:
            memory = self.walk.tape(steps.op, [v.type for v in steps.inits], needed)
            self._barrier()
            if memory.checkpoints is None:
                self._record(zero, trips, steps.inits, memory)
                self._barrier()
                found = self._go_back(back, zero, trips, start, memory)
            else:
                found = self._by_segments(back, trips, start, memory, memory.checkpoints)
            self._barrier()
        found = [emit.zero_with_itself(y) for y in found]
        steps.finish(found[: len(steps.states)])
        for value, y in zip(self._outer, found[len(steps.states) :], strict=True):
            self.walk.give(value, y)

    def _barrier(self) -> None:
        self._emit.builder.insert(Barrier())

    def _number(self, number: int) -> Value:
        return self._emit.integer(number, self.steps.number)

    def _loop(self, start: Value, stop: Value, inits: list[Value], body: Region) -> list[Value]:
        made = For(start, stop, self._number(1), inits, num_stages=0, unroll=0, hints=(), body=body)
        return self._emit.builder.insert(made).results

    # -- the way back -----------------------------------------------------------------------------

    def _way_back(self) -> _WayBack:
        """One reversed iteration. It is emitted first, as it determines the values to be
        recorded."""
        steps, walk, emit = self.steps, self.walk, self._emit
        body = Region([steps.number, *self._kinds])
        with emit.builder.at_end(body):
            last = self._value(StopGradient(self._number(0)))
            t = self._value(Sub(last, body.args[0]))
            loads = [self._value(StopGradient(init)) for init in steps.inits]
        with steps.at(body, t, loads), walk.adjoints() as table:
            passed, sums = body.args[1 : 1 + len(steps.states)], body.args[1 + len(steps.states) :]
            found = steps.reverse([emit.zero_with_itself(y) for y in passed])
            ends = [
                emit.zeros(kind) if y is None else emit.guarded(y)
                for y, kind in zip(found, self._kinds, strict=False)
            ]
            for value, before in zip(self._outer, sums, strict=True):
                y = table.get(value)
                ends.append(before if y is None else emit.add(before, emit.guarded(y)))
            emit.builder.insert(Yield(ends))
        return _WayBack(body, t, last, loads)

    def _go_back(
        self, back: _WayBack, first: Value, end: Value, start: list[Value],
        memory: TapeMemory | None,
    ) -> list[Value]:  # fmt: skip
        """Emit the loop over iterations from the one before `end` to the first, whose slots are
        the ones after the checkpoints."""
        count = self._value(Sub(end, first))
        last = self._value(Sub(end, self._number(1)))
        _replace(back.last, last)
        for i, load in enumerate(back.loads):
            assert load.op is not None
            if memory is not None and load.users:
                with self._emit.builder.before(load.op):
                    slot = self._slot(memory, self._value(Sub(back.number, first)))
                    found = memory.load(slot, i)
                _replace(load, found)
            else:
                load.op.erase()
        return self._loop(self._number(0), count, start, back.body)

    def _slot(self, memory: TapeMemory, number: Value) -> Value:
        first = _cast(self._emit, memory.first, number.type)
        return self._value(Add(first, number))

    # -- records ----------------------------------------------------------------------------------

    def _record(
        self, first: Value, end: Value, inits: list[Value], memory: TapeMemory | None
    ) -> list[Value]:
        """Emit a loop over iterations that stores the initial values of each, if there is a memory;
        returns the final values."""
        body = Region([self.steps.number, *[v.type for v in inits]])
        t, values = body.args[0], body.args[1:]
        with self._emit.builder.at_end(body):
            if memory is not None:
                memory.store(self._slot(memory, self._value(Sub(t, first))), values)
        with self.steps.at(body, t, values):
            self._emit.builder.insert(Yield(self.steps.following()))
        return self._loop(first, end, inits, body)

    def _by_segments(
        self, back: _WayBack, trips: Value, start: list[Value], memory: TapeMemory,
        checkpoints: Value,
    ) -> list[Value]:  # fmt: skip
        """Emit a loop that stores checkpoints, and one that reverses segment by segment."""
        value, number, steps = self._value, self._number, self.steps
        checkpoints = _cast(self._emit, checkpoints, steps.number)
        length = self._quotient(trips, checkpoints)
        length = value(Max(length, number(1), propagate_nan=False))
        segments = self._quotient(trips, length)
        if not memory.slots.surely:
            fits = value(Cmp(length, checkpoints, "le"))
            loop = f"the loop at line {line_of(steps.op.loc)}"
            message = f"the tape of {loop} is too small: increase tape_bytes of grad"
            self._emit.builder.insert(Assert(fits, message))
        body = Region([steps.number, *[v.type for v in steps.inits]])
        with self._emit.builder.at_end(body):
            memory.store(body.args[0], body.args[1:], checkpoint=True)
            first, end = self._segment(body.args[0], length, trips)
            self._emit.builder.insert(Yield(self._record(first, end, body.args[1:], None)))
        self._loop(number(0), segments, steps.inits, body)
        self._barrier()
        body = Region([steps.number, *self._kinds])
        with self._emit.builder.at_end(body):
            segment = value(Sub(value(Sub(segments, number(1))), body.args[0]))
            first, end = self._segment(segment, length, trips)
            inits = [memory.load(segment, i) for i in range(len(steps.inits))]
            self._record(first, end, inits, memory)
            self._barrier()
            found = self._go_back(back, first, end, body.args[1:], memory)
            self._barrier()
            self._emit.builder.insert(Yield(found))
        return self._loop(number(0), segments, start, body)

    def _quotient(self, a: Value, b: Value) -> Value:
        """The quotient of two positive numbers, rounded up."""
        padded = self._value(Add(a, self._value(Sub(b, self._number(1)))))
        return self._value(IntDiv(padded, b))

    def _segment(self, segment: Value, length: Value, trips: Value) -> tuple[Value, Value]:
        """The first iteration of a segment, and the one after its last."""
        first = self._value(Mul(segment, length))
        end = self._value(Add(first, length))
        return first, self._value(Min(end, trips, propagate_nan=False))


class _WayBack(NamedTuple):
    """One iteration backwards.

    Attributes:
        body: of a loop that counts the iterations from the last one.
        number: the number of the iteration.
        last: a stand-in for the number of the last one.
        loads: stand-ins for what the iteration starts with.
    """

    body: Region
    number: Value
    last: Value
    loads: list[Value]


def _replace(stand_in: Value, by: Value) -> None:
    assert stand_in.op is not None
    stand_in.replace_with(by)
    stand_in.op.erase()


def _cast(emit: Emitter, number: Value, type: Type) -> Value:
    """An integer in another type."""
    if number.type == type:
        return number
    element = element_of(type)
    assert isinstance(element, DType)
    return emit.builder.value(Cast(number, element, rounding="rtne"))

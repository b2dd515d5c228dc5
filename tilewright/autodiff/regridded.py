"""The kernel of a `Regrid`: gradients of arrays that programs share, on a grid of their tiles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from tilewright.analysis.pointers import base_of
from tilewright.autodiff.added_inputs import with_added
from tilewright.autodiff.arrays import arrays_of
from tilewright.autodiff.derived import Derived, Roles
from tilewright.autodiff.loops import activity, carried_kinds, states_of
from tilewright.autodiff.regrid import increment_of, is_turn, varying_in
from tilewright.autodiff.reloads import is_costly
from tilewright.autodiff.reverse import ReverseWalk, with_softmax_results_if_possible
from tilewright.autodiff.running_maxima import FreeMaxima, find_free_maxima
from tilewright.autodiff.saved import NOTHING_STORED, Stored
from tilewright.autodiff.saved_adjoints import AdjointBuffers, SavedAdjoints
from tilewright.autodiff.schedules import Part, Regrid
from tilewright.base.diagnostics import CompilationError
from tilewright.base.record import replace
from tilewright.ir.core import Function, Module, Region, Value
from tilewright.ir.types import I1, I32, DType, Pointer, derivative_type, element_of
from tilewright.ops.arith import Add, And, Cast, IntDiv, Mul, Rem, Sub
from tilewright.ops.atomic import AnyAtomic, AtomicRMW
from tilewright.ops.control import For, If, NumPrograms, ProgramId, Return, Yield
from tilewright.ops.memory import AddPtr, Load, Store, pointee_of


class Regridded(NamedTuple):
    """Kernels on separate grids.

    Attributes:
        schedules, kernels: each kernel with its schedule.
        saved: what the kernel on the forward grid must save for them.
    """

    schedules: tuple[Regrid, ...] = ()
    kernels: tuple[Derived, ...] = ()
    saved: SavedAdjoints | None = None

    @property
    def arrays(self) -> set[str]:
        """The arrays whose gradients they compute."""
        return {name for schedule in self.schedules for name in schedule.names}

    @property
    def added(self) -> set[str]:
        """Those that they add atomically."""
        return {name for schedule in self.schedules for name in schedule.added}


def regridded_kernels(
    module: Module,
    wrt: Sequence[str],
    outputs: Sequence[str],
    aux: Sequence[str],
    schedules: Sequence[Regrid],
    *,
    accumulate: bool = False,
    types: Mapping[str, DType] | None = None,
    stored: Stored = NOTHING_STORED,
    atomic: Collection[str] = (),
) -> Regridded:
    """The kernels of those schedules that need no other iteration, and no loop in each iteration.

    The arguments of each are those of `reverse_mode`, then ("box", i), the extents of coordinates,
    ("grid", axis), those of the kernel's grid, ("trips", key), the number of iterations, if there
    are coordinates besides, ("first", key), the first one, if programs begin with different ones,
    ("places", key), the positions of its programs unless it has all, ("bounds", key), see
    `Regrid.bounds`, and ("saved", name) of saved adjoints. Its grid has one axis: adjacent programs
    have adjacent iterations. Gradients of arrays in several schedules are added to what is in
    memory.

    Args:
        module: the kernel; it is not changed.
        wrt: all arrays whose gradients are computed, also those that are in no schedule.
        outputs, aux, accumulate, types, stored: see `reverse_mode`.
        atomic: further arrays, to whose gradients these kernels may add atomically.
    """
    schedules = _with_added(module.entry, schedules, atomic, wrt, outputs)
    while schedules:
        names = [name for schedule in schedules for name in schedule.loads]
        add = {name for name in names if accumulate or names.count(name) > 1}

        def derive(
            schedule: Regrid, saved: SavedAdjoints | None, add: set[str] = add
        ) -> _RegriddedWalk:
            fn = module.entry
            roles = Roles(fn, (*schedule.loads, *schedule.added), outputs, aux)

            def emitted(with_softmax_results: bool) -> _RegriddedWalk:
                walk = _RegriddedWalk(fn, roles, schedule, saved, add, types or {})
                walk.load_stored(stored, with_softmax_results)
                walk.emit_all()
                return walk

            return with_softmax_results_if_possible(emitted)

        states = _loops_with_states(module.entry, wrt, outputs)
        found, saved, failed = _with_saved_adjoints(schedules, derive, states)
        if not failed:
            kernels = tuple(walk.derived() for walk in found)
            return Regridded(tuple(schedules), kernels, saved)
        if any(schedule.added for schedule in schedules):  # not without these
            schedules = [replace(schedule, added={}) for schedule in schedules]
        else:
            schedules = [made for s in schedules if (made := s.without(failed)).loads]
    return Regridded()


def _with_added(
    fn: Function, schedules: Sequence[Regrid], names: Collection[str], wrt: Sequence[str],
    outputs: Sequence[str],
) -> Sequence[Regrid]:  # fmt: skip
    """The schedules with the arrays of these names that their kernels can add."""
    taken = {name for schedule in schedules for name in schedule.loads}
    arrays = [a for a in arrays_of(fn).values() if a.name in names and a.name not in taken]
    if not arrays or not schedules:
        return schedules
    _, active = _activity(fn, wrt, outputs)
    return with_added(schedules, {a.name: a.loads for a in arrays}, active)


def _loops_with_states(fn: Function, wrt: Sequence[str], outputs: Sequence[str]) -> list[For]:
    """The loops that carry more than sums if the gradients of all these arrays are computed."""
    maxima, active = _activity(fn, wrt, outputs)
    loops = [op for op in fn.walk() if isinstance(op, For)]
    return [loop for loop in loops if states_of(loop, active, maxima.loops.get(loop))]


def _activity(
    fn: Function, wrt: Sequence[str], outputs: Sequence[str]
) -> tuple[FreeMaxima, set[Value]]:
    """See `activity`, for all these arrays."""
    arrays = arrays_of(fn)
    results = [arg for arg, array in arrays.items() if array.name in outputs]
    loads = [op.result for a in arrays.values() if a.name in wrt for op in a.loads]
    return activity(find_free_maxima(fn, results), loads)


def _with_saved_adjoints(
    schedules: Sequence[Regrid], derive: Callable[[Regrid, SavedAdjoints | None], _RegriddedWalk],
    with_states: Collection[For],
) -> tuple[list[_RegriddedWalk], SavedAdjoints | None, set[str]]:  # fmt: skip
    """The kernels of schedules, the values to save for them, and the arrays without one.

    Args:
        with_states: the loops of which the first kernel cannot save what they carry.
    """
    alone: list[_RegriddedWalk] = []
    loops: dict[For, None] = {}
    for schedule in schedules:
        try:
            alone.append(derive(schedule, None))
        except (NeedsSavedAdjointsError, CompilationError):
            loops.update(dict.fromkeys(schedule.loops))
    rows = [row for walk in alone for row in walk.costly if row[0] not in with_states]
    only = None if loops else frozenset(rows)
    if only is not None:
        loops = dict.fromkeys(loop for loop, _ in only)
    if not loops:
        return alone, None, set()
    saved = SavedAdjoints(tuple(loops), schedules[0].coordinates, only)
    found: list[_RegriddedWalk] = []
    failed: set[str] = set()
    for schedule in schedules:
        reads = any(loop in loops for loop in schedule.loops)
        if reads and any(loop in with_states for loop in schedule.loops):
            failed.update(schedule.loads)
            continue
        try:
            found.append(derive(schedule, saved if reads else None))
        except (NeedsSavedAdjointsError, CompilationError):
            failed.update(schedule.loads)
    return found, saved, failed


class NeedsSavedAdjointsError(Exception):
    """The ops after the loop depend on a loop: their results must be saved."""


class _RegriddedWalk(ReverseWalk):
    """The walk backwards from one iteration of a loop, for all programs that have it."""

    def __init__(
        self, fn: Function, roles: Roles, regrid: Regrid, saved: SavedAdjoints | None,
        add: Collection[str], types: Mapping[str, DType],
    ) -> None:  # fmt: skip
        super().__init__(fn, roles, (), types)
        self.regrid = regrid
        self.add = frozenset(add)
        self.found: dict[Load, Value] = {}
        self.adding = tuple(op for added in regrid.added.values() for op in added.loads)
        self.terms: list[tuple[Load, Value]] = []  # of an iteration, still to be added
        self.entries = {v for added in regrid.added.values() for v in added.entries}
        self.costly: set[tuple[For, int]] = set()  # adjoints that are sums over a tile
        self.part = regrid.parts[0]
        self.region_here = self.made.body
        boxes = range(len(regrid.coordinates.extents))
        if saved is None:
            self.buffers = None
            self.box = [self.new_arg("box", str(i), I32) for i in boxes]
        else:
            self.buffers = AdjointBuffers(saved, self.emit, self.replay, self.new_arg)
            self.box = self.buffers.extents
        self.replay.extents = {i: self.new_arg("grid", str(i), I32) for i in range(3)}
        self.places = (
            self.new_arg("places", regrid.key, Pointer(I32)) if regrid.places is not None else None
        )
        self.bounds = {
            part.loop: self.new_arg("bounds", regrid.bounds_key(part), Pointer(I32))
            for part in regrid.parts
            if part.bounds is not None
        }
        self.replay.has_programs = False
        single = [axis for axis in range(3) if regrid.coordinates.points.grid[axis] == 1]
        self.replay.programs = dict.fromkeys(single, self.emit.integer(0, I32))
        self.varying_in = {
            loop: varying_in(loop, regrid.coordinates, regrid.reduced) for loop in regrid.loops
        }
        starts = [part.loop.start for part in regrid.parts if self._begins(part)]
        self.start = starts[0] if starts else None
        self.first = (
            self.new_arg("first", regrid.key, self.part.loop.start.type) if not starts else None
        )
        self.trips = self.new_arg("trips", regrid.key, I32) if regrid.kept else None
        self.turn: Value | None = None
        self.turn_number = self.emit.integer(0, I32)
        self.numbers: dict[int, Value] = {}

    def emit_all(self) -> None:
        """Emit the whole function."""
        with ExitStack() as scopes:
            scope = scopes.enter_context(self.replay.scope(self.fn.body, self.made.body))
            scope.values.update(zip(self.fn.args, self.made.body.args, strict=False))
            turn, position = self._turn_of(self._position())
            self._bind(position, self.regrid.kept)
            for region in self.regrid.nest:
                scopes.enter_context(self.replay.scope(region, self.made.body))
            self.turn_number = turn
            counter = self._counter(turn)
            loads = self.regrid.loads
            totals = [self.emit.zeros(derivative_type(op.result.type)) for op in loads.values()]
            for part in self.regrid.parts:
                self.part, body = part, part.loop.body
                iteration = scopes.enter_context(self.replay.scope(body, self.made.body))
                iteration.values[body.args[0]] = counter
                self._bind_increments(varying=False)
                self._bind_turn()
                for name, op in part.loads.items():
                    if op is not loads[name]:  # a tile that is known to be the same
                        iteration.values[op.result] = self.plain(loads[name].result)
                totals = self._sum_over_programs(counter, totals)
            for op, total in zip(loads.values(), totals, strict=True):
                self._store_total(op, total)
            self.builder.insert(Return([]))

    def derived(self) -> Derived:
        """The function, once it is emitted."""
        return Derived(
            Module([self.made]), tuple(self.roles),
            (*(op for part in self.regrid.parts for op in part.loads.values()), *self.adding),
            tuple(self.buffers.saved) if self.buffers is not None else (),
        )  # fmt: skip

    def _position(self) -> Value:
        """The position of a program among iterations and kept coordinates."""
        program = self.builder.value(ProgramId(0))
        if self.places is None:
            return program
        return self.emit.load(self.builder.value(AddPtr(self.places, program)), None)

    def _turn_of(self, position: Value) -> tuple[Value, Value]:
        """The number of the iteration at a position, and the position among kept coordinates."""
        if self.trips is None:
            return position, self.emit.integer(0, I32)
        value = self.builder.value
        return value(Rem(position, self.trips)), value(IntDiv(position, self.trips))

    def _bind(self, position: Value, chosen: Sequence[int]) -> None:
        """Bind coordinates, from a position in their box."""
        value, coordinates = self.builder.value, self.regrid.coordinates
        before = set(self.numbers)
        for i in chosen:
            if i == chosen[-1]:
                self.numbers[i] = position
                continue
            self.numbers[i] = value(Rem(position, self.box[i]))
            position = value(IntDiv(position, self.box[i]))
        for known, digits in coordinates.digits.items():
            if self.numbers.keys() >= set(digits) and not before.issuperset(digits or (0,)):
                self.replay.bind(known, self._integer_like(self._number(digits), known))
        if self.buffers is not None and len(self.numbers) == len(coordinates.extents):
            self.buffers.numbers = [self.numbers[i] for i in range(len(self.numbers))]

    def _number(self, digits: Sequence[int]) -> Value:
        """The number with these coordinates as digits, the lowest first."""
        value = self.builder.value
        total = self.emit.integer(0, I32)
        for i in reversed(digits):
            total = value(Add(value(Mul(total, self.box[i])), self.numbers[i]))
        return total

    def _integer_like(self, number: Value, like: Value) -> Value:
        element = element_of(like.type)
        assert isinstance(element, DType)
        if number.type == like.type:
            return number
        return self.builder.value(Cast(number, element, rounding="rtne"))

    @property
    def varying(self) -> set[Value]:
        """The values that change from program to program of the present loop."""
        return self.varying_in[self.part.loop]

    def _begins(self, part: Part) -> bool:
        """Whether a loop is known to begin with the first iteration."""
        return part.begins and part.loop.start not in self.varying_in[part.loop]

    def _counter(self, turn: Value) -> Value:
        """The counter of an iteration, by its number among all. From where a loop starts, if it
        is known: the loads' blocks are then as simple as the kernel's."""
        value, loop = self.builder.value, self.part.loop
        self.turn = turn = self._integer_like(turn, loop.start)
        moved = value(Mul(turn, self.plain(loop.step)))
        first = self.plain(self.start) if self.start is not None else self.first
        assert first is not None
        return value(Add(first, moved))

    def _bind_increments(self, varying: bool) -> None:
        """Bind the integers that the loop carries in steps."""
        loop, value = self.part.loop, self.builder.value
        for init, arg in zip(loop.inits, loop.body.args[1:], strict=True):
            by = increment_of(loop, arg)
            if by is None or (arg in self.varying) != varying or element_of(arg.type) != arg.type:
                continue
            turn = self._integer_like(self._turn(), arg)
            moved = value(Mul(turn, self.plain(by)))
            self.replay.bind(arg, value(Add(self.plain(init), moved)))

    def _bind_turn(self) -> None:
        """Bind quotients that equal the number of the iteration to it, as in offsets of pointers
        that advance: a quotient would hide that the block of a load begins at a multiple of a
        stride."""
        loop = self.part.loop
        if self._begins(self.part):
            assert self.turn is not None
            for op in loop.body.walk():
                if isinstance(op, IntDiv) and is_turn(loop, op):
                    self.replay.bind(op.result, self._integer_like(self.turn, op.result))

    def _turn(self) -> Value:
        """How many iterations of the loop come before."""
        loop, value = self.part.loop, self.builder.value
        if self._begins(self.part):
            assert self.turn is not None
            return self.turn
        counter, start, step = self.replay.all_plain((loop.body.args[0], loop.start, loop.step))
        return value(IntDiv(value(Sub(counter, start)), step))

    # -- the loop over programs -------------------------------------------------------------------

    def _sum_over_programs(self, counter: Value, totals: Sequence[Value]) -> list[Value]:
        """Accumulate the contributions of all programs in the present loop."""
        one = self.emit.integer(1, I32)
        start, stop = self._bounds()
        body = Region([I32, *(total.type for total in totals)])
        kept = dict(self.numbers)
        with self.replay.scope(self.fn.body, body, only=self.varying):
            self._bind(self._program_of(body.args[0], stop), self.regrid.reduced)
            terms = self._in_nest(self.regrid.nest, body, counter)
            sums = [
                self.emit.add(before, term)
                for before, term in zip(body.args[1:], terms, strict=True)
            ]
            self._add_terms()
            self.builder.insert(Yield(sums))
        self.numbers = kept
        made = For(start, stop, one, list(totals), num_stages=0, unroll=0, hints=(), body=body)
        return list(self.builder.insert(made).results)

    def _program_of(self, number: Value, count: Value) -> Value:
        """The program that a turn of the loop is for. Kernels that run at the same time should add
        to different elements: unless their bounds differ, each begins with another program."""
        if not self.adding or self.part.loop in self.bounds:
            return number
        value = self.builder.value
        moved = value(Add(number, value(Rem(self.turn_number, count))))
        back = value(Sub(moved, count))
        return self.emit.where(self.emit.compare(moved, count, "lt"), moved, back)

    def _bounds(self) -> tuple[Value, Value]:
        """The first program of the loop, and the end."""
        value = self.builder.value
        if self.part.loop not in self.bounds:
            count = self.emit.integer(1, I32)
            for i in self.regrid.reduced:
                count = value(Mul(count, self.box[i]))
            return self.emit.integer(0, I32), count
        here = value(AddPtr(self.bounds[self.part.loop], value(ProgramId(0))))
        ends = value(AddPtr(here, value(NumPrograms(0))))
        return self.emit.load(here, None), self.emit.load(ends, None)

    def _in_nest(self, nest: Sequence[Region], region: Region, counter: Value) -> list[Value]:
        """The contribution of one program to each gradient, if it enters these regions around the
        loop, and executes the iteration."""
        if nest:
            around = nest[0].parent
            condition: Value | None = None
            if isinstance(around, If) and not self.part.is_exact:
                condition = self.plain(around.condition)
                if nest[0] is around.otherwise:
                    condition = self.emit.compare(condition, self.emit.integer(0, I1), "eq")

            def inside(then: Region) -> list[Value]:
                with self.replay.scope(nest[0], then, only=self.varying):
                    return self._in_nest(nest[1:], then, counter)

            return self._when(condition, inside, region)
        if self.part.is_exact:
            return self._terms(region)
        loop = self.part.loop
        start, stop = self.replay.all_plain((loop.start, loop.stop))
        has_it = And(
            self.emit.compare(counter, start, "ge"), self.emit.compare(counter, stop, "lt")
        )
        return self._when(self.builder.value(has_it), self._terms, region)

    def _when(
        self, condition: Value | None, make: Callable[[Region], list[Value]], region: Region
    ) -> list[Value]:
        """The values that `make` emits in a region, if a condition holds; otherwise zeros."""
        if condition is None:
            return make(region)
        then, otherwise = Region(), Region()
        with self.replay.scope(self.fn.body, then, only=self.varying):
            terms = make(then)
            self._add_terms()
            self.builder.insert(Yield(terms))
        with self.builder.at_end(otherwise):
            self.builder.insert(Yield([self.emit.zeros(term.type) for term in terms]))
        made = If(condition, then=then, otherwise=otherwise)
        return list(self.builder.insert(made).results)

    def _terms(self, region: Region) -> list[Value]:
        """The contribution of one program to each gradient."""
        self.region_here = region
        self.found.clear()
        self._adjoints.append({})
        if self.buffers is not None and self.buffers.which.only is None:
            if self.adding:
                raise NeedsSavedAdjointsError  # the ops before the loop are not walked
            self._iteration(self.part.loop)
        else:
            self.region(self.fn.body)
        self._adjoints.pop()
        if self.replay.has_loops:
            raise NeedsSavedAdjointsError  # it would run for each tile of the gradient
        return [
            self.found.get(self.part.loads[name])
            or self.emit.zeros(derivative_type(op.result.type))
            for name, op in self.regrid.loads.items()
        ]

    def _if(self, op: If) -> None:
        branch = next((region for region in self.regrid.nest if region.parent is op), None)
        if branch is None:
            super()._if(op)
            return
        ends = [self._adjoints[-1].get(r) for r in op.results]
        for value, y in zip(branch.terminator.operands, ends, strict=True):
            self.give(value, y)
        self.region(branch)

    def _for(self, op: For) -> None:
        if op is self.part.loop:
            self._iteration(op)
        elif op is self.regrid.coordinates.outer:
            carried_kinds(op, self.active, None)  # each iteration takes the adjoints of sums
            for i, end in enumerate(op.body.terminator.operands):
                self.give(end, self._adjoints[-1].get(op.results[i]))
            self.region(op.body)
        elif op.parent is not self.fn.body:
            super()._for(op)
        elif self._flows_through(op):
            self._pass_through(op)

    def _pass_through(self, op: For) -> None:
        """Pass the adjoints of sums to their initial values, which no iteration may use."""
        stores = any(isinstance(inner, Store | AnyAtomic) for inner in op.walk())
        enter = [v for v in self.outer_values(op) if v not in self.entries]
        if stores or enter:
            raise NeedsSavedAdjointsError
        for i in carried_kinds(op, self.active, self.maxima.loops.get(op)):
            self.give(op.inits[i], self._adjoints[-1].get(op.results[i]))

    def _iteration(self, loop: For) -> None:
        """Walk one iteration backwards."""
        running = self.maxima.loops.get(loop)
        ends: dict[int, Value | None] = {}
        for i in carried_kinds(loop, self.active, running):
            if self.buffers is not None and self.buffers.which.has(loop, i):
                ends[i] = self.buffers.load_adjoint(loop, i)
                continue
            y = ends[i] = self._adjoints[-1].get(loop.results[i])
            if y is not None and is_costly(y):
                self.costly.add((loop, i))
        final: Value | None = None
        if running is not None and self.buffers is not None and self.buffers.which.only is None:
            final = self.buffers.load(loop, "maximum", running.final.type)
        elif running is not None:
            final = self.plain(running.final)  # which needs a loop unless it is in memory
        with self.replay.scope(loop.body, self.region_here, only=self.varying) as scope:
            if running is not None and final is not None:
                scope.values.update(dict.fromkeys(running.replaced, final))
            self._bind_increments(varying=True)
            self._adjoints.append({})
            for i, y in ends.items():
                self.give(loop.body.terminator.operands[i], y)
            self.region(loop.body)
            inside = self._adjoints.pop()
            for value in self.outer_values(loop) if self.entries else ():
                if value in self.entries:
                    self.give(value, inside.get(value))

    def _load(self, op: Load) -> None:
        y = self._adjoints[-1].get(op.result)
        if y is None:
            return
        if op in self.part.loads.values():
            self.found[op] = self.emit.guarded(y)
        if op in self.adding:
            self.terms.append((op, y))
        if op.other is not None and op.other in self.active:
            assert op.mask is not None
            mask = self.plain(op.mask)
            self.give(op.other, self.emit.where(mask, self.emit.zeros(y.type), y))

    def _add_terms(self) -> None:
        """Add the contributions of an iteration to the gradients of what is loaded outside of it.
        Behind the products for other gradients, which overlap it."""
        for op, y in self.terms:
            pointer = self.rebase(op.ptr, self.gradients[base_of(op.ptr)])
            mask = self.plain(op.mask) if op.mask is not None else None
            term = self.emit.cast(self.emit.guarded(y, mask), pointee_of(pointer.type))
            self.builder.insert(AtomicRMW(pointer, term, mask, "add", "relaxed", "gpu"))
        self.terms.clear()

    def _store_total(self, op: Load, total: Value) -> None:
        base = self.gradients[base_of(op.ptr)]
        pointer = self.rebase(op.ptr, base)
        mask = self.plain(op.mask) if op.mask is not None else None
        if self._name(base_of(op.ptr)) in self.add:
            before = self.emit.load(pointer, mask)
            total = self.emit.add(self.emit.cast(before, element_of(total.type)), total)
        self.emit.store(pointer, self.emit.cast(total, pointee_of(pointer.type)), mask)

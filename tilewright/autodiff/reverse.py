"""Reverse mode: a kernel that computes the gradients of arrays from those of its results.

    derived = reverse_mode(module, wrt=("x_ptr",), outputs=("y_ptr",))

The derived kernel runs on the grid of the kernel. It walks the kernel's ops backwards: a store
becomes a load of the *cotangent* of the stored array at the same address, a load becomes a store of
the *gradient* of the loaded array, and an op in between adds to the adjoints of its operands, given
the *adjoint* of its result. Primal values that the rules use are recomputed (`replay.py`).

A plain store of a gradient is correct only if no other program, iteration, lane or load accesses
the same element. That depends on strides and the grid, so the launch determines it (`distinct.py`);
arrays for which it is not proven are in `atomic`, and their gradients are accumulated with atomic
additions, which is correct for any addresses.

An op without a rule, and an array that is both loaded and stored, are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tilewright.analysis.pointers import base_of
from tilewright.autodiff.arrays import Array, Rebase, arrays_of, is_sum, require_elements
from tilewright.autodiff.coarsen import Coarsening, Parts, varying_values
from tilewright.autodiff.derived import Derived, Role, Roles
from tilewright.autodiff.emitter import Emitter
from tilewright.autodiff.errors import (
    no_gradient,
    result_of_atomic,
    stored_input,
    unknown_loop,
    unnamed_output,
)
from tilewright.autodiff.lane_sums import summed_by_element
from tilewright.autodiff.loops import activity, carried_by, carried_kinds, states_of
from tilewright.autodiff.registry import Elementwise, NotDifferentiable, Pair, Zero, rule_of
from tilewright.autodiff.reloads import find_reloads
from tilewright.autodiff.replay import Replay, loaded_and_stored
from tilewright.autodiff.residuals import find_residuals
from tilewright.autodiff.running_maxima import RunningMaximum, find_free_maxima
from tilewright.autodiff.saved import NOTHING_STORED, Stored, saved_values
from tilewright.autodiff.saved_adjoints import AdjointBuffers, SavedAdjoints
from tilewright.autodiff.softmax_results import NeedsMaximumError, find_softmax_results
from tilewright.autodiff.summed_loops import reverse_sums
from tilewright.autodiff.taped_loops import ForSteps, TapedLoop, WhileSteps
from tilewright.autodiff.tapes import TapeMemory, TapePlan
from tilewright.autodiff.workers import WorkerLoop
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import (
    I32,
    I64,
    DType,
    Pointer,
    Type,
    derivative_type,
    element_of,
    is_float,
)
from tilewright.ops.arith import Add, Cast, Mul
from tilewright.ops.atomic import AnyAtomic, AtomicRMW
from tilewright.ops.control import (
    Barrier,
    For,
    If,
    NumPrograms,
    ProgramId,
    Return,
    While,
    Yield,
)
from tilewright.ops.memory import AddPtr, Load, Store, pointee_of


def reverse_mode(
    module: Module,
    wrt: Sequence[str],
    outputs: Sequence[str],
    aux: Sequence[str] = (),
    *,
    atomic: Collection[str] = (),
    private: Collection[str] = (),
    repeated: Collection[Load] = (),
    last: Collection[Load] = (),
    accumulate: bool = False,
    types: Mapping[str, DType] | None = None,
    coarse: Coarsening | None = None,
    parts: Parts | None = None,
    saved_adjoints: SavedAdjoints | None = None,
    sources: Collection[str] = (),
    skip: Collection[Load] = (),
    tapes: TapePlan | None = None,
    stored: Stored = NOTHING_STORED,
) -> Derived:
    """The kernel that computes gradients, on the grid of the module's kernel.

    Its arguments are those of the kernel, then pointers to the cotangents of `outputs`, then to the
    gradients of `wrt`, each addressed like the array itself. Gradients that are in `atomic` are
    added to what is in memory; the others are stored, or added with `accumulate`.

    Args:
        module: tile IR as `compiler/pipeline.STEPS` leave it; it is not changed.
        wrt: the arrays whose gradients are computed.
        outputs: the arrays whose cotangents are given.
        aux: arrays that are stored, and count as constants.
        atomic: arrays of `wrt` whose elements may be loaded several times.
        private: arrays whose elements are loaded by one program only, several times. They are
            added up in memory, without atomics.
        repeated: loads of which several lanes may have the same element. In memory, the sum of
            their adjoints is added; see `lane_sums.py`.
        last: loads of elements that other loads of their region may have, and none of another
            program. Their adjoints are added in memory at the end of the region, to what these have
            stored.
        types: element types of cotangents and gradients that differ from those of their arrays.
        coarse: the gradients of its arrays are added up by workers. These arrays have, instead of a
            gradient, a pointer to partial sums and the distance of a worker's sums from those of
            the next ("partial", "span"); the extents of the kernel's grid ("extent") follow. The
            grid has the workers along the first of the axes, and 1 along the others.
        parts: the gradients of its arrays are stored in rows of partial sums, with the same
            arguments.
        saved_adjoints: what is saved for other kernels; see `regridded_kernels`.
        sources: further arrays, whose gradients these kernels compute.
        skip: loads whose adjoints another kernel adds to the gradients.
        tapes: how loops are recorded; by default those that need it are errors.
        stored: the results that may be loaded instead of computing them again.

    Raises:
        CompilationError: the kernel has no gradient, or none that is known to be right.
        ValueError: there is no such array of floats.
    """
    roles = Roles(module.entry, wrt, outputs, aux)

    def derived(with_softmax_results: bool) -> Derived:
        walk = ReverseWalk(module.entry, roles, atomic, types or {}, sources)
        if saved_adjoints is not None:
            walk.saved_adjoints = AdjointBuffers(
                saved_adjoints, walk.emit, walk.replay, walk.new_arg
            )
        walk.accumulate = accumulate
        walk.private = set(private)
        walk.repeated = frozenset(repeated)
        walk.last = frozenset(last)
        walk.skip = frozenset(skip)
        walk.tapes = tapes
        walk.parts = {} if parts is None else parts.axes
        walk.load_stored(stored, with_softmax_results)
        return walk.run() if coarse is None else walk.run_coarse(coarse)

    return with_softmax_results_if_possible(derived)


Made = TypeVar("Made")


def with_softmax_results_if_possible(make: Callable[[bool], Made]) -> Made:
    """The result of `make` with loaded results of softmax; without them, if a maximum is used for
    which these differ from the stored ones."""
    try:
        return make(True)
    except NeedsMaximumError:
        return make(False)


class ReverseWalk:
    """The walk backwards over a function, which emits another one."""

    def __init__(
        self, fn: Function, roles: Roles, atomic: Collection[str], types: Mapping[str, DType],
        sources: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.fn = fn
        self.chosen = roles
        self.atomic = frozenset(atomic)
        self.accumulate = False
        self.private: set[str] = set()
        self.repeated: frozenset[Load] = frozenset()
        self.last: frozenset[Load] = frozenset()
        self._delayed: list[list[tuple[Load, Value, Value | None, Value]]] = []  # of each region
        self.parts: Mapping[str, Sequence[int]] = {}
        self.skip: frozenset[Load] = frozenset()
        self.arrays = arrays_of(fn)
        outputs = [arg for arg, array in self.arrays.items() if array.name in roles.outputs]
        self.saved_adjoints: AdjointBuffers | None = None
        self.tapes: TapePlan | None = None
        self.recorded: list[TapeMemory] = []
        self.maxima, self.active = activity(
            find_free_maxima(fn, outputs), self._sources((*roles.wrt, *sources))
        )
        self.roles = [Role("argument", name) for name in roles.names]
        self.made = Function(
            f"{fn.name}_vjp", [a.type for a in fn.args], (), fn.arg_attrs, fn.loc, fn.arg_names
        )
        self.builder = Builder(self.made.body)
        self.emit = Emitter(self.builder)
        self.replay = Replay(self.builder, self.arrays)
        self.rebase = Rebase(self.builder, self.replay.plain)
        self.cotangents = self._bases("cotangent", roles.outputs, types)
        self.gradients = self._bases("gradient", roles.wrt, types)
        self._adjoints: list[dict[Value, Value]] = []
        self.reached: list[Load] = []
        self.partial_sums: dict[Load, Value | None] = {}  # what workers add up

    def load_stored(self, stored: Stored, with_softmax_results: bool) -> None:
        """Load results of the kernel, see `reverse_mode`.

        Args:
            with_softmax_results: whether these include results of softmax; see
                `with_softmax_results_if_possible`.
        """
        self._require_known_memory(stored.in_place)
        held = [
            arg
            for arg, array in self.arrays.items()
            if array.name in stored.names
            and (not array.loads or array.name in stored.in_place)
            and not array.atomics
        ]
        results = [a for a, array in self.arrays.items() if array.name in self.chosen.outputs]
        self.replay.residuals = find_residuals(self.maxima, held, results)
        self.replay.saved = saved_values(self.fn, self.chosen.outputs, stored)
        self.replay.reloads = find_reloads(self.fn, held)
        if with_softmax_results:
            self.replay.softmax_results = find_softmax_results(self.fn, self.maxima, held)

    def _sources(self, names: Collection[str]) -> list[Value]:
        return [
            op.result for array in self.arrays.values() if array.name in names for op in array.loads
        ]

    def _bases(
        self, kind: str, names: Sequence[str], types: Mapping[str, DType]
    ) -> dict[Value, Value]:
        """New pointer arguments, by the array that they belong to."""
        found: dict[Value, Value] = {}
        for array in self.arrays.values():
            if array.name in names:
                assert array.element is not None
                element = types.get(array.name, array.element)
                found[array.arg] = self.new_arg(kind, array.name, Pointer(element))
        return found

    def _require_known_memory(self, in_place: Collection[str]) -> None:
        """Raise unless all differentiable data flow through memory is a load of an input or a store
        of a result: no active array is both loaded and written, unless it is updated in place."""
        for array in self.arrays.values():
            if array.name in in_place and array.name in (*self.chosen.outputs, *self.chosen.aux):
                for op in (*array.loads, *array.writes):
                    require_elements(array, op)
                continue
            part = array.name in (*self.chosen.wrt, *self.chosen.outputs)
            for op in [*array.loads, *array.writes] if part else []:
                require_elements(array, op)
            stored = any(v in self.active for op in array.writes for v in op.operands)
            if (part or stored) and array.loads and array.writes:
                raise loaded_and_stored(array, array.loads[0])
            if array.name in self.chosen.wrt and array.writes:
                raise stored_input(array.writes[0], array)
            # An array that nothing accesses may be a result for other values of the arguments.
            if array.name in self.chosen.outputs and array.loads and not array.writes:
                raise ValueError(f"outputs names {array.name!r}, which the kernel does not store")
            if array.name in self.chosen.outputs:
                self._require_summed(array)

    def _require_summed(self, array: Array) -> None:
        """Raise unless an output is either stored, or added to by atomics whose results are not
        used."""
        for op in array.atomics:
            if not is_sum(op) or op.result.users or array.stores:
                raise result_of_atomic(op)

    def _derived(self) -> Derived:
        saved = tuple(self.saved_adjoints.saved) if self.saved_adjoints is not None else ()
        tapes = tuple(tape for memory in self.recorded for tape in memory.tapes)
        numbers = {k: n for memory in self.recorded for k, n in memory.numbers.items()}
        roles = tuple(self.roles)
        return Derived(Module([self.made]), roles, tuple(self.reached), saved, tapes, numbers)

    def run(self) -> Derived:
        """Emit the whole function."""
        partials = {a: self._partials(a) for a in self.gradients if self._name(a) in self.parts}
        with self.replay.scope(self.fn.body, self.made.body) as scope:
            scope.values.update(zip(self.fn.args, self.made.body.args, strict=False))
            for array, (base, span) in partials.items():
                self.gradients[array] = self._row(base, span, self.parts[self._name(array)])
            self._adjoints.append({})
            self.region(self.fn.body)
            self.builder.insert(Return([]))
        return self._derived()

    def run_coarse(self, coarse: Coarsening) -> Derived:
        """Emit the whole function, as a loop over the programs of a worker."""
        partials = {a: self._partials(a) for a in self.gradients if self._name(a) in coarse.arrays}
        for array in partials:
            del self.gradients[array]
        self.partial_sums = {
            op: None for a in partials if self._name(a) in coarse.verdicts
            for op in self.arrays[a].loads
        }  # fmt: skip
        workers = WorkerLoop(self.builder, self.emit, coarse.axes, self._extent)
        with self.replay.scope(self.fn.body, self.made.body) as scope:
            scope.values.update(zip(self.fn.args, self.made.body.args, strict=False))
            for array, (base, span) in partials.items():
                if self._name(array) in coarse.rows:
                    self.gradients[array] = workers.row(base, span)
                    self.private.add(self._name(array))
            self.replay.extents.update(workers.extents)
            sites = list(self.partial_sums)
            totals = workers.run(
                [derivative_type(op.result.type) for op in sites],
                lambda body, programs: self._one_program(coarse, body, programs),
            )
            for op, total in zip(sites, totals, strict=True):
                base, span = partials[base_of(op.ptr)]
                self._store_partial(op, workers.row(base, span), total)
            self.builder.insert(Return([]))
        return self._derived()

    def _row(self, base: Value, span: Value, axes: Sequence[int]) -> Value:
        """The address of this program's row of partial sums."""
        value, place = self.builder.value, self.emit.integer(0, I64)
        for axis in axes:
            extent = value(Cast(value(NumPrograms(axis)), I64, rounding="rtne"))
            number = value(Cast(value(ProgramId(axis)), I64, rounding="rtne"))
            place = value(Add(value(Mul(place, extent)), number))
        return value(AddPtr(base, value(Mul(place, span))))

    def _name(self, array: Value) -> str:
        return self.arrays[array].name

    def new_arg(self, kind: str, name: str, type: Type) -> Value:
        """Add an argument to the derived kernel."""
        self.roles.append(Role(kind, name))
        self.made.arg_names.append(f"{name}_{kind}")
        self.made.arg_attrs.append({})
        return self.made.body.add_arg(type)

    def _extent(self, axis: int) -> Value:
        return self.new_arg("extent", str(axis), I32)

    def _partials(self, array: Value) -> tuple[Value, Value]:
        name = self._name(array)
        element = element_of(derivative_type(self.arrays[array].loads[0].result.type))
        assert isinstance(element, DType)
        pointer = self.new_arg("partial", name, Pointer(element))
        return pointer, self.new_arg("span", name, I64)

    def _one_program(
        self, coarse: Coarsening, body: Region, programs: Mapping[int, Value]
    ) -> list[Value | None]:
        """Emit the walk for one program of a worker; returns the adjoints that it adds up."""
        self.replay.programs.update(programs)
        varying = varying_values(self.fn, coarse.axes)
        with self.replay.scope(self.fn.body, body, only=varying):
            self._adjoints.append({})
            self.region(self.fn.body)
            self._adjoints.pop()
        return list(self.partial_sums.values())

    def _store_partial(self, op: Load, base: Value, total: Value) -> None:
        mask = self.plain(op.mask) if op.mask is not None else None
        self.emit.store(self.rebase(op.ptr, base), total, mask)

    # -- interface of rules ---------------------------------------------------------------------

    def plain(self, value: Value) -> Value:
        return self.replay.plain(value)

    def value(self, value: Value) -> Value:
        return self.emit.wide(self.plain(value))

    def is_active(self, value: Value) -> bool:
        return value in self.active

    def users(self, value: Value) -> Iterable[Op]:
        return value.users

    def give(self, value: Value, adjoint: Value | None) -> None:
        if adjoint is None or value not in self.active:
            return
        wide = self.emit.cast(adjoint, element_of(derivative_type(value.type)))
        table = self._adjoints[-1]
        table[value] = wide if value not in table else self.emit.add(table[value], wide)

    def adjoint(self, value: Value) -> Value | None:
        return self._adjoints[-1].get(value)

    def take(self, value: Value) -> Value | None:
        found = self._adjoints[-1].pop(value, None)
        return None if found is None else self.emit.guarded(found)

    @contextmanager
    def adjoints(self) -> Generator[dict[Value, Value]]:
        self._adjoints.append({})
        yield self._adjoints[-1]
        self._adjoints.pop()

    def _adjoint_or_zero(self, value: Value) -> Value:
        found = self._adjoints[-1].get(value)
        return self.emit.zeros(derivative_type(value.type)) if found is None else found

    # -- the walk -------------------------------------------------------------------------------

    def region(self, region: Region) -> None:
        self._delayed.append([])
        for op in region.reversed():
            if op.terminator:
                continue
            self.builder.loc = op.loc
            match op:
                case Store():
                    self._store(op)
                case Load():
                    self._load(op)
                case If():
                    self._if(op)
                case For():
                    self._for(op)
                case While():
                    self._while(op)
                case AtomicRMW() if is_float(op.value.type):
                    self._atomic(op)
                case _:
                    self._pure(op)
        for contribution in self._delayed.pop():
            self._contribute(*contribution)

    def _pure(self, op: Op) -> None:
        rule = rule_of(op)
        active = [i for i, v in enumerate(op.operands) if v in self.active]
        if not active or not op.results or isinstance(rule, Zero):
            self._require_no_effect(op, bool(active))
            return
        if isinstance(rule, NotDifferentiable):
            raise no_gradient(op, rule.why)
        table = self._adjoints[-1]
        adjoints = [table.get(r) for r in op.results]
        if all(y is None for y in adjoints):
            return
        match rule:
            case Elementwise(apply):
                (y,) = adjoints
                assert y is not None
                for i in active:
                    self.give(op.operands[i], apply(self, op, i, y))
            case Pair(_, adjoint):
                adjoint(self, op, adjoints)
            case _:
                raise no_gradient(op, "it has no derivative rule")

    def _require_no_effect(self, op: Op, active: bool) -> None:
        if isinstance(op, AnyAtomic) and active:
            raise result_of_atomic(op)

    # -- memory ---------------------------------------------------------------------------------

    def _array(self, op: Load | Store | AtomicRMW) -> Array:
        return self.arrays[base_of(op.ptr)]

    def _cotangent(self, op: Store | AtomicRMW) -> Value | None:
        """The adjoint of the value that an op stores."""
        array = self._array(op)
        base = self.cotangents.get(array.arg)
        if base is None:
            if array.name not in self.chosen.aux:
                raise unnamed_output(op, array)
            return None
        mask = self.plain(op.mask) if op.mask is not None else None
        return self.emit.load(self.rebase(op.ptr, base), mask)

    def _store(self, op: Store) -> None:
        if op.value in self.active:
            self.give(op.value, self._cotangent(op))

    def _atomic(self, op: AtomicRMW) -> None:
        if op.value in self.active:
            if not is_sum(op) or op.result.users:
                raise result_of_atomic(op)
            self.give(op.value, self._cotangent(op))

    def _load(self, op: Load) -> None:
        y = self._adjoints[-1].get(op.result)
        if y is None:
            return
        mask = self.plain(op.mask) if op.mask is not None else None
        if op.other is not None and op.other in self.active:
            assert mask is not None
            self.give(op.other, self.emit.where(mask, self.emit.zeros(y.type), y))
        if op in self.partial_sums:
            self.reached.append(op)
            self.partial_sums[op] = self.emit.guarded(y, mask)
            return
        base = self.gradients.get(self._array(op).arg)
        if base is None or op in self.skip:
            return
        if op in self.last:
            self._delayed[-1].append((op, base, mask, y))
        else:
            self._contribute(op, base, mask, y)

    def _contribute(self, op: Load, base: Value, mask: Value | None, y: Value) -> None:
        """Add the adjoint of a load to the gradient in memory."""
        self.reached.append(op)
        pointer = self.rebase(op.ptr, base)
        element = pointee_of(pointer.type)
        name = self._array(op).name
        y = self.emit.guarded(y, mask)
        if name in self.atomic:
            narrow = self.emit.cast(y, element)
            self.builder.insert(AtomicRMW(pointer, narrow, mask, "add", "relaxed", "gpu"))
            return
        if op in self.repeated:
            pointer, mask, y = summed_by_element(self.emit, self.plain, op.ptr, base, mask, y)
        again = name in self.private or op in self.last
        if again:  # what another lane, load or iteration has stored is needed
            self.builder.insert(Barrier())
        if (self.accumulate and name not in self.parts) or again:
            before = self.emit.load(pointer, mask)
            y = self.emit.add(self.emit.cast(before, element_of(y.type)), y)
        self.emit.store(pointer, self.emit.cast(y, element), mask)

    # -- control flow ---------------------------------------------------------------------------

    def _flows_through(self, op: Op) -> bool:
        """Whether an adjoint enters an op with regions: that of a result, or of a value that it
        stores."""
        table = self._adjoints[-1]
        return any(r in table for r in op.results) or any(
            isinstance(inner, Store | AnyAtomic) and any(v in self.active for v in inner.operands)
            for inner in op.walk()
        )

    def outer_values(self, op: Op) -> list[Value]:
        found = dict.fromkeys(
            v
            for region in op.regions
            for inner in region.walk()
            for v in inner.operands
            if v in self.active and not op.contains(v)
        )
        return list(found)

    def _if(self, op: If) -> None:
        if not self._flows_through(op):
            return
        outer = self.outer_values(op)
        ends = [self._adjoints[-1].get(r) for r in op.results]
        condition = self.plain(op.condition)
        branches = [Region(), Region()]
        for source, region in zip(op.regions, branches, strict=True):
            with self.replay.scope(source, region):
                self._adjoints.append({})
                for value, y in zip(source.terminator.operands, ends, strict=True):
                    self.give(value, y)
                self.region(source)
                adjoints = [self.emit.guarded(self._adjoint_or_zero(v)) for v in outer]
                self.builder.insert(Yield(adjoints))
                self._adjoints.pop()
        made = self.builder.insert(If(condition, then=branches[0], otherwise=branches[1]))
        for value, y in zip(outer, made.results, strict=True):
            self.give(value, self.emit.zero_with_itself(y))

    def _while(self, op: While) -> None:
        if self._flows_through(op):
            TapedLoop(self, WhileSteps(self, op)).run()

    def _for(self, op: For) -> None:
        running = self.maxima.loops.get(op)
        if self.saved_adjoints is not None and op in self.saved_adjoints.loops:
            self._save(self.saved_adjoints, op, running)
        if not self._flows_through(op):
            return
        if states_of(op, self.active, running):
            TapedLoop(self, ForSteps(self, op, carried_by(op, self.active))).run()
        else:
            reverse_sums(self, op, running)

    def tape(self, loop: For | While, types: Sequence[Type], needed: Sequence[int]) -> TapeMemory:
        if self.tapes is None:
            raise unknown_loop(loop, "this loop")
        made = TapeMemory(loop, types, needed, self.tapes, self.emit, self.new_arg)
        self.recorded.append(made)
        return made

    def _save(self, buffers: AdjointBuffers, op: For, running: RunningMaximum | None) -> None:
        """Save the values that iterations of a loop use in another kernel."""
        for i in carried_kinds(op, self.active, running):
            if buffers.which.has(op, i):
                buffers.save(op, i, self._adjoint_or_zero(op.results[i]))
        if running is not None and buffers.which.only is None:
            buffers.save(op, "maximum", self.plain(running.final))

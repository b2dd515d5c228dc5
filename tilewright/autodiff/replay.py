"""Rematerialisation of values of the forward function in a derived function.

`Replay.plain(value)` returns a value of the forward function at the insertion point, and
rematerialises it if necessary: the op that defines it is cloned on replayed operands. A *scope*
maps a region of the forward function to a region of the derived one; a value is replayed in the
scope of the region that defines it, so a load under an `if` stays under that `if`, and values of an
outer scope are available in all inner ones.

Values that cannot be recomputed are errors: the result of an atomic, and a load from an array to
which the kernel stores, whose values may have changed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Set
from contextlib import contextmanager

from tilewright.analysis.pointers import base_of
from tilewright.autodiff.arrays import Array
from tilewright.autodiff.registry import derivative_error
from tilewright.autodiff.reloads import Reload, emit_reload
from tilewright.autodiff.residuals import Residual, emit_loaded, emit_residual
from tilewright.autodiff.softmax_results import NeedsMaximumError, SoftmaxResults
from tilewright.base.located import place_of
from tilewright.base.record import field, record
from tilewright.ir.builder import Builder
from tilewright.ir.core import Op, Region, Value
from tilewright.ops.arith import Constant
from tilewright.ops.control import (
    Call,
    Condition,
    For,
    If,
    NumPrograms,
    ProgramId,
    While,
    Yield,
)
from tilewright.ops.memory import Load, Store


@record(frozen=False)
class Scope:
    """A region of the forward function that is replayed, and its known values."""

    source: Region
    region: Region
    only: Set[Value] | None = None  # the values that are computed in this scope; None for all
    values: dict[Value, Value] = field(default_factory=dict[Value, Value])


class Replay:
    """See the module's documentation.

    Args:
        builder: inserts the ops, at the end of the innermost scope's region.
        arrays: those of the forward function.

    Attributes:
        programs, extents: by axis, replacements of the program's index and the grid's extent;
            along other axes they are those of the launch.
        residuals: the loops whose results are in memory.
        saved: the stores of other values that are in memory.
        reloads: other values that are.
        softmax_results: those of softmax that are.
    """

    def __init__(
        self,
        builder: Builder,
        arrays: Mapping[Value, Array],
    ) -> None:
        self._builder = builder
        self._arrays = arrays
        self.programs: dict[int, Value] = {}
        self.extents: dict[int, Value] = {}
        self.residuals: Mapping[For, Residual] = {}
        self.saved: Mapping[Value, Store] = {}
        self.reloads: Mapping[Value, Reload] = {}
        self.softmax_results = SoftmaxResults()
        self.has_programs = True
        self.has_loops = False
        self._scopes: list[Scope] = []
        self._entered: list[Scope] = []  # also those that `plain` has left for a while

    @contextmanager
    def scope(
        self, source: Region, region: Region, only: Set[Value] | None = None
    ) -> Generator[Scope]:
        """Replay a region of the forward function in `region`, at whose end ops are inserted.

        Args:
            only: the values that are computed in it; others are in the scope around it.
        """
        made = Scope(source, region, only)
        self._scopes.append(made)
        self._entered.append(made)
        try:
            with self._builder.at_end(region):
                yield made
        finally:
            self._scopes.pop()
            self._entered.pop()

    def bind(self, value: Value, to: Value) -> None:
        """Set the replacement of a value in the innermost scope."""
        self._scopes[-1].values[value] = to

    def plain(self, value: Value) -> Value:
        """The value, here.

        Raises:
            CompilationError: it cannot be recomputed.
        """
        for scope in reversed(self._scopes):
            found = scope.values.get(value)
            if found is not None:
                return found
        depth = self._depth_of(value)
        reload = self.reloads.get(value)
        if reload is not None and not self._is_of_programs(value, reload.store):
            reload = None
        saved, self._scopes = self._scopes, self._scopes[: depth + 1]
        try:
            if depth == len(saved) - 1:
                return self._replayed(value, reload)
            with self._builder.at_end(saved[depth].region):
                return self._replayed(value, reload)
        finally:
            self._scopes = saved

    def all_plain(self, values: Iterable[Value]) -> list[Value]:
        return [self.plain(v) for v in values]

    def _depth_of(self, value: Value) -> int:
        """The innermost scope that replays the region in which a value is defined."""
        for depth in range(len(self._scopes) - 1, -1, -1):
            scope = self._scopes[depth]
            if scope.source is value.region and (scope.only is None or value in scope.only):
                return depth
        raise self._unavailable(value)

    def _is_of_programs(self, value: Value, store: Store) -> bool:
        """Whether a value is computed wherever the address that it is stored at is. It is not if
        all programs have the same value, and each stores it at its own address."""
        region = store.ptr.region
        return all(
            value in scope.only
            for scope in self._entered
            if scope.source is region and scope.only is not None and store.ptr in scope.only
        )

    def _unavailable(self, value: Value) -> Exception:
        owner = value.owner
        op = owner if isinstance(owner, Op) else owner.parent
        return derivative_error(
            op,
            "a carried value of this loop is used in each iteration, and depends on previous ones",
            "help: a carried value has a gradient if the loop only adds terms to it that do not "
            "depend on it",
        )

    def _replayed(self, value: Value, reload: Reload | None) -> Value:
        op = value.op
        if op is None:
            raise self._unavailable(value)
        values = self._scopes[-1].values
        if value in self.saved:
            values[value] = emit_loaded(self.saved[value], 0.0, value, self._builder, self.plain)
            return values[value]
        if value in self.softmax_results.maxima:
            raise NeedsMaximumError
        if value in self.softmax_results.sums:
            values[value] = self._builder.value(Constant(1.0, value.type))
            return values[value]
        if value in self.softmax_results.stored:
            store = self.softmax_results.stored[value]
            if not self._is_of_programs(value, store):
                raise NeedsMaximumError
            values[value] = emit_loaded(store, 0.0, value, self._builder, self.plain)
            return values[value]
        self._builder.loc, saved = op.loc, self._builder.loc
        if reload is not None:
            values[value] = emit_reload(reload, self._builder, self.plain)
            self._builder.loc = saved
            return values[value]
        results = self._results(op)
        self._builder.loc = saved
        values.update(zip(op.results, results, strict=True))
        return values[value]

    def _results(self, op: Op) -> list[Value]:
        match op:
            case ProgramId(axis) if axis in self.programs:
                return [self.programs[axis]]
            case ProgramId() if not self.has_programs:
                raise derivative_error(
                    op, "the program index is used in addition to the computed coordinates"
                )
            case NumPrograms(axis) if axis in self.extents:
                return [self.extents[axis]]
            case For() if op in self.residuals:
                return emit_residual(self.residuals[op], self._builder, self.plain)
            case For() | While():
                self.has_loops = True
                return self._for(op) if isinstance(op, For) else self._while(op)
            case If():
                return self._if(op)
            case _:
                self._require_pure(op)
                return self._clone(op)

    def _require_pure(self, op: Op) -> None:
        if isinstance(op, Load) and not op.volatile:
            array = self._arrays[base_of(op.ptr)]
            if array.writes:
                raise loaded_and_stored(array, op)
        elif op.writes() or op.reads() or isinstance(op, Call):
            raise derivative_error(
                op,
                f"the result of {op.name} cannot be recomputed: it may differ each time",
                "help: store the result in a separate kernel, and load it in this one",
            )

    def _clone(self, op: Op) -> list[Value]:
        mapping: dict[Value, Value] = {}
        inside = {v for inner in op.walk() for v in inner.results}
        inside.update(a for inner in op.walk() for r in inner.regions for a in r.args)
        for inner in op.walk():
            for operand in inner.operands:
                if operand not in inside and operand not in mapping:
                    mapping[operand] = self.plain(operand)
        copy = op.clone(mapping)
        self._builder.insert(copy)
        return copy.results

    def _for(self, op: For) -> list[Value]:
        start, stop, step = self.all_plain((op.start, op.stop, op.step))
        inits = self.all_plain(op.inits)
        body = Region([a.type for a in op.body.args])
        self._region(op.body, body)
        made = For(
            start, stop, step, inits,
            num_stages=op.num_stages, unroll=op.unroll, hints=op.hints, body=body,
        )  # fmt: skip
        return self._builder.insert(made).results

    def _while(self, op: While) -> list[Value]:
        inits = self.all_plain(op.inits)
        before = Region([a.type for a in op.before.args])
        self._region(op.before, before)
        body = Region([a.type for a in op.body.args])
        self._region(op.body, body)
        return self._builder.insert(While(inits, before=before, body=body)).results

    def _if(self, op: If) -> list[Value]:
        condition = self.plain(op.condition)
        branches = [Region(), Region()]
        for source, region in zip(op.regions, branches, strict=True):
            self._region(source, region)
        return self._builder.insert(If(condition, then=branches[0], otherwise=branches[1])).results

    def _region(self, source: Region, region: Region) -> None:
        """Replay the values that a region yields, and their dependencies."""
        with self.scope(source, region) as scope:
            scope.values.update(zip(source.args, region.args, strict=True))
            end = source.terminator
            values = self.all_plain(end.operands)
            made = Condition(values[0], values[1:]) if isinstance(end, Condition) else Yield(values)
            self._builder.insert(made)


def loaded_and_stored(array: Array, load: Op) -> Exception:
    """The error of a load whose array the kernel also writes."""
    stored = place_of(array.writes[0].loc, load.loc)
    return derivative_error(
        load,
        f"{array.name} is loaded here and stored at {stored}: the gradient uses the values from "
        "before the launch",
        "help: store to another array, or mark stored values for use by the gradient with tl.save",
    )

"""Launches of a kernel's derivatives: binding, plans, and the way to native code.

The gradient kernel is derived from the kernel's tile IR on the first launch of a variant
(`runtime/derivation.py`). Its proofs depend on the kernel's integer arguments and on the grid, so
these are part of the variant's key: a launch with a cached key needs no proof, and is one call of
native code (`runtime/hot_launch.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, Signature
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.base import knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import Lock
from tilewright.frontend.source import KernelParam
from tilewright.runtime.derived_launch import (
    MOST_TAPE_BYTES,
    Arrays,
    Checked,
    How,
    Launch,
    Path,
    Plan,
    Request,
    elements_of_table,
    require_same_layout,
)
from tilewright.runtime.grid import computed, extents_of
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.overlaps import require_disjoint
from tilewright.runtime.slots import at_path
from tilewright.runtime.specialize import Binder, make_binder

if TYPE_CHECKING:
    from tilewright.compiler.artifact import CompiledKernel
    from tilewright.runtime import derivation, hot_launch
    from tilewright.runtime.hot_launch import Started
else:
    derivation = lazy_import("tilewright.runtime.derivation")
    hot_launch = lazy_import("tilewright.runtime.hot_launch")

MOST_LAUNCHERS = 1024  # of one derivative
RESERVED = frozenset(["accumulate", "warmup"])  # keywords that are no options of a kernel


class Call(NamedTuple):
    """The arrays and arguments of the launch of a derivative.

    Attributes:
        args, kwargs: the arguments of the kernel.
        grid: of the kernel's launch, or a function that returns it.
        of_wrt, of_outputs: by name of an input, or of a result, the array of its derivative.
        how: what is done with these.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grid: Any
    of_wrt: Arrays
    of_outputs: Arrays
    how: How


def required_arrays(
    what: str, usage: Mapping[str, str], given: Mapping[str, Arrays | None]
) -> tuple[Arrays, ...]:
    """The dicts of arrays that a launch of a derivative is given, by keyword.

    Args:
        what: the derivative.
        usage: by keyword, what to pass for it.

    Raises:
        TypeError: one is missing.
    """
    missing = [keyword for keyword, arrays in given.items() if arrays is None]
    if missing:
        helps = [f"\nhelp: pass {usage[keyword]}" for keyword in missing]
        raise TypeError(f"{what} is launched without {' and '.join(missing)}{''.join(helps)}")
    return tuple(arrays for arrays in given.values() if arrays is not None)


class Derivative:
    """The common part of `grad` and `jvp`: binding, plans, launching.

    Args:
        kernel: a kernel decorated with `jit`.
        wrt: the inputs that may be differentiated; by default all.
        outputs: the results; by default those for which a derivative is given at the launch.
        aux: arrays that the kernel stores, and whose derivatives are not needed.
        tables: arrays of integers that each launch reads on the host; see `grad`.
        atomic: inputs whose gradients may be added atomically; see `grad`.
    """

    mode = ""
    further = ("", "")  # the kinds of the further arrays: of `wrt`, of `outputs`
    keywords = ("", "")  # of the launch, for these
    more: frozenset[str] = frozenset()  # keywords of the launch besides

    def __init__(
        self,
        kernel: Any,
        wrt: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        aux: Sequence[str] = (),
        *,
        deterministic: bool = False,
        tape_bytes: int = MOST_TAPE_BYTES,
        tables: Sequence[str] = (),
        atomic: Sequence[str] = (),
    ) -> None:
        if not isinstance(kernel, JITFunction):
            raise TypeError(f"{kernel!r} is not a kernel: pass a function decorated with @jit")
        if kernel.vjp is not None:
            raise TypeError(
                f"{kernel.__name__} has a derivative rule, {kernel.vjp.__name__}, which applies to "
                "calls in a kernel, not to the gradient of a launch"
            )
        self.kernel: JITFunction = kernel
        self.fn = kernel
        self.arg_names = kernel.arg_names
        self.__name__ = kernel.__name__
        self.wrt = None if wrt is None else tuple(wrt)
        self.outputs = None if outputs is None else tuple(outputs)
        self.aux = tuple(aux)
        self.deterministic = deterministic
        self.tape_bytes = tape_bytes
        self.tables = tuple(tables)
        self.atomic = tuple(atomic)
        if deterministic and atomic:
            raise ValueError(f"deterministic=True excludes atomic={list(atomic)}")
        self._binders: dict[tuple[tuple[str, ...], tuple[str, ...]], Binder] = {}
        self._plans: dict[Any, Plan] = {}
        self._integers: dict[Any, tuple[Path, ...]] = {}  # by key: where integers are
        self._native: dict[Any, Any] = {}  # by grid and names; True after the first launch
        self._latest: dict[Any, Callable[..., Any]] = {}  # of these, by grid
        self._lock = Lock()
        self._defaults = {p.name: p.default for p in kernel.params if p.has_default}
        named = (self.wrt or (), self.outputs or (), self.aux, self.tables, self.atomic)
        for name in chain.from_iterable(named):
            self._require_parameter(name)

    def _require_parameter(self, name: str) -> None:
        if name not in self.kernel.arg_names:
            raise ValueError(
                f"{self.kernel.__name__} has no parameter {name!r}; it has "
                f"{', '.join(self.kernel.arg_names)}"
            )

    def _names(self, given: Arrays, expected: tuple[str, ...] | None, what: str) -> tuple[str, ...]:
        names = tuple(given)
        for name in names:
            self._require_parameter(name)
        if expected is not None and set(names) - set(expected):
            wrong = sorted(set(names) - set(expected))
            raise ValueError(f"{what} has {wrong[0]!r}, which is not one of {list(expected)}")
        return names

    def __getitem__(self, grid: Any) -> Any:
        if type(grid) is not tuple:
            return partial(self.run, grid=grid)
        try:
            return self._latest.get(grid) or self._bound(grid)
        except TypeError:  # not hashable
            return partial(self.run, grid=grid)

    def _bound(self, grid: tuple[Any, ...]) -> Callable[..., Any]:
        """A callable that launches on a grid, natively as soon as that is possible."""
        run, latest = self.run, self._latest

        def launch(*args: Any, **kwargs: Any) -> Any:
            native = latest.get(grid)
            if native is None:
                return run(*args, grid=grid, **kwargs)
            return native(*args, **kwargs)

        return launch

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Launch."""
        raise NotImplementedError

    def _launch(self, call: Call) -> None:
        if callable(call.grid):
            call = call._replace(grid=call.grid(self._named(call.args, call.kwargs)))
        native = self._native_launch(call)
        if native is None or call.kwargs.keys() & RESERVED:
            self._start(call)
            return
        of_wrt, of_outputs = self.keywords
        more: dict[str, Any] = {of_wrt: call.of_wrt, of_outputs: call.of_outputs}
        if call.how.accumulate:
            more["accumulate"] = True
        native(*call.args, **more, **call.kwargs)

    def _start(self, call: Call) -> Started | None:
        """Launch through Python. Returns the data that native code needs to repeat the launch."""
        found = self._checked(call)
        first = len(self.kernel.params)
        return hot_launch.start_plan(found, call.of_wrt, call.how.accumulate, first)

    def _native_launch(self, call: Call) -> Callable[..., Any] | None:
        """A callable that launches natively on a grid, from its second launch on: native code is
        not loaded for a single one."""
        grid, how = call.grid, call.how
        if type(grid) is not tuple or self.tables or how.in_place:
            return None
        names = hot_launch.Names(tuple(call.of_wrt), tuple(call.of_outputs), self.keywords)
        key = grid, names, how.results
        try:
            found = self._native.get(key, False)
        except TypeError:  # not hashable
            return None
        if found is False:
            if len(self._native) >= MOST_LAUNCHERS:
                self._native.clear()
                self._latest.clear()
            self._native[key] = True
        elif found is True:
            fallback = partial(self._by_python, names, how.results)
            found = hot_launch.native_launch(self.kernel, grid, names, fallback)
            self._native[key] = found
            if found is not None and how.results:
                self._latest[grid] = found
        return found if callable(found) else None

    def _by_python(
        self, names: hot_launch.Names, results: bool, grid: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """A launch that is unknown to the native launcher for derivatives of some arrays."""
        given: list[Any] = [kwargs.get(keyword) for keyword in self.keywords]
        known = [dict.fromkeys(names.wrt), dict.fromkeys(names.outputs)]
        same = [
            isinstance(g, Mapping) and g.keys() == k.keys()
            for g, k in zip(given, known, strict=True)
        ]
        if not all(same) or kwargs.keys() & RESERVED - self.more:
            return self.run(*args, grid=grid, **kwargs)
        rest = {k: v for k, v in kwargs.items() if k not in (*self.keywords, *self.more)}
        of_wrt, of_outputs = (
            {name: arrays[name] for name in k} for arrays, k in zip(given, known, strict=True)
        )
        how = How(bool(kwargs.get("accumulate")), results=results)
        return self._start(Call(args, rest, grid, of_wrt, of_outputs, how))

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, with defaults, for functions of them."""
        return {**self._defaults, **dict(zip(self.arg_names, args, strict=False)), **kwargs}

    def _checked(self, call: Call) -> Checked:
        """The plan of a launch whose arrays have the layouts that it requires, and share no memory.
        Native launches have the key of one that was checked."""
        of_wrt, of_outputs = call.of_wrt, call.of_outputs
        plan, launch = self._planned(call)
        named = dict(zip(self.kernel.arg_names, launch.values, strict=False))
        for name, array in (*of_wrt.items(), *of_outputs.items()):
            require_same_layout(name, named[name], array)
        if plan.overlapping:
            require_disjoint(plan, named, of_wrt, of_outputs, self.mode)
        return Checked(plan, launch, self._zeroed(plan, call))

    def _planned(self, call: Call) -> tuple[Plan, Launch]:
        """The plan of a launch, derived on first use."""
        launch, wrt, outputs = self._bind(call)
        integers = self._integers.get(launch.key)
        if integers is None:
            integers = derivation.integer_paths(self.kernel, launch)
            self._integers[launch.key] = integers
        options, how = launch.options, call.how
        variant = (
            launch.key, wrt, outputs, launch.grid, how, knobs.runtime.debug,
            tuple([at_path(launch.slots, path) for path in integers]),
            tuple([(table.dtype.str, table.tobytes()) for table in launch.tables]),
            tuple(sorted(map(repr, options.items()))) if options else (),
        )  # fmt: skip
        self.kernel.check_globals()
        plan = self._plans.get(variant)
        if plan is None:
            request = self._request(wrt, outputs, how)
            with self._lock:
                plan = self._plans.get(variant)
                if plan is None:
                    plan = self._plans[variant] = derivation.derive(request, launch, integers)
        return plan, launch

    def _bind(self, call: Call) -> tuple[Launch, tuple[str, ...], tuple[str, ...]]:
        """The launch's arguments, and the names of the arrays whose derivatives are among them."""
        wrt = self._names(call.of_wrt, self.wrt, "of the inputs")
        outputs = self._names(call.of_outputs, self.outputs, "of the results")
        binder = self._binders.get((wrt, outputs)) or self._new_binder(wrt, outputs)
        more = {f"{name}_{self.further[0]}": array for name, array in call.of_wrt.items()}
        more |= {f"{name}_{self.further[1]}": array for name, array in call.of_outputs.items()}
        values, slots, key, options = binder(*call.args, **call.kwargs, **more)
        named, grid = dict(zip(self.kernel.arg_names, values, strict=False)), call.grid
        for name in (*wrt, *outputs):
            if isinstance(named[name], tuple):
                raise TypeError(
                    f"{name} is a tuple: arrays in tuples have no derivatives; pass each as a "
                    "separate argument"
                )
        if callable(grid):
            grid = computed(grid, named)
        tables = tuple(elements_of_table(name, named[name]) for name in self.tables)
        extents = extents_of(grid)
        launch = Launch(call.args, call.kwargs, values, slots, key, options, extents, tables)
        return launch, wrt, outputs

    def _request(self, wrt: tuple[str, ...], outputs: tuple[str, ...], how: How) -> Request:
        return Request(
            self.mode, self.kernel, wrt, outputs, self.aux, how.in_place, how.accumulate,
            self.deterministic, self.atomic, self.tape_bytes, self.tables, how.results,
            (*((self.further[0], n) for n in wrt), *((self.further[1], n) for n in outputs)),
        )  # fmt: skip

    def _zeroed(self, plan: Plan, call: Call) -> tuple[str, ...]:
        """The arrays of `of_wrt` that must be zeroed first."""
        return ()

    def _new_binder(self, wrt: tuple[str, ...], outputs: tuple[str, ...]) -> Binder:
        kernel = self.kernel
        names = [f"{name}_{self.further[0]}" for name in wrt]
        names += [f"{name}_{self.further[1]}" for name in outputs]
        more = [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
        signature = Signature([*kernel.signature.parameters.values(), *more])
        first = len(kernel.params)
        params = [*kernel.params, *(KernelParam(first + i, p) for i, p in enumerate(more))]
        binder = make_binder(kernel.__name__, signature, params)
        return self._binders.setdefault((wrt, outputs), binder)

    @property
    def kernels(self) -> list[CompiledKernel]:
        """The derived kernels so far, compiled."""
        return [step.kernel for plan in self._plans.values() for step in plan.steps]

    def explain(self) -> str:
        """For each variant that was launched, the schedule of each array, with the reason."""
        return derivation.explained(self.kernel.__name__, self.mode, list(self._plans.values()))

    def source(self) -> str:
        """The derived kernels of the variants that were launched, as Python that compiles to the
        same tile IR: for each, the text of a module.

        Raises:
            NoSourceError: an op has no spelling in the language.
        """
        return derivation.source_of(list(self._plans.values()))

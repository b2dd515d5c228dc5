"""Repeated launches of a derivative, in native code.

The key of a plan has the kernel's integers, the grid, and the types, alignments and aliases of all
arrays, which take most of the time to read. So a launch *predicts* its plan from the integers and
the grid alone, and passes the prediction as one more argument to the native launcher
(`runtime/native/`), whose key then has everything: the prediction by value, and the types of all
arguments. A key is known to the launcher only after a launch in Python has found the same plan for
it. A wrong prediction is therefore an unknown key, and the launch is repeated in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import Parameter, Signature
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from tilewright.base.lazy_import import lazy_import
from tilewright.frontend.dependencies import Recorded
from tilewright.frontend.source import KernelParam
from tilewright.runtime.derived_launch import (
    Arrays,
    Buffers,
    How,
    Launch,
    Made,
    Mispredicted,
    Path,
    Plan,
    Step,
    require_same_layout,
    start_step,
)
from tilewright.runtime.grid import Grid
from tilewright.runtime.jit import JITFunction

if TYPE_CHECKING:
    from tilewright.runtime.native import launcher, layout
    from tilewright.runtime.native.launcher import Launcher, Start
    from tilewright.runtime.native.runtime import Runtime
else:
    layout = lazy_import("tilewright.runtime.native.layout")
    launcher = lazy_import("tilewright.runtime.native.launcher")

Find = Callable[..., tuple[Plan, Launch]]
STEP = "_tw_step"  # the parameter with the number of the predicted step
MOST_PREDICTIONS = 4096
_numbers = count()


class Hot(NamedTuple):
    """A plan whose launch is predicted.

    Attributes:
        plan: the plan.
        launches: for each of its steps, its number and the native launcher.
        fixed: whether the grids of all steps are known, and nothing is allocated.
    """

    plan: Plan
    launches: tuple[tuple[int, Launcher, tuple[Made, ...]], ...]
    fixed: bool

    def start(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], of_wrt: Arrays, of_outputs: Arrays,
        accumulate: bool,
    ) -> None:  # fmt: skip
        """Launch all steps.

        Raises:
            Mispredicted: this is another plan.
        """
        further = *of_wrt.values(), *of_outputs.values()
        if self.fixed:
            for (number, native, _), step in zip(self.launches, self.plan.steps, strict=True):
                native.bind(step.grid)(number, *further, *args, **kwargs)
            return
        buffers = Buffers(self.plan, of_wrt)
        for (number, native, names), step in zip(self.launches, self.plan.steps, strict=True):
            made = [buffers.made[name] for name in names]
            native.bind(buffers.grid_of(step))(number, *further, *made, *args, **kwargs)
        buffers.finish(accumulate)


class CallShape:
    """Calls with as many arguments and the same keywords.

    Args:
        args, kwargs: the arguments of such a call.
        names: of the kernel's parameters.
        wrt, outputs: the arrays for which there are further arrays.
    """

    def __init__(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], names: Sequence[str],
        wrt: Iterable[str], outputs: Iterable[str],
    ) -> None:  # fmt: skip
        self._in_args = _getter([i for i, value in enumerate(args) if _is_number(value)])
        self._in_kwargs = _getter([name for name, value in kwargs.items() if _is_number(value)])
        self._known: dict[Any, Hot | None] = {}
        index = {name: i for i, name in enumerate(names[: len(args)])}
        self._inputs = [index.get(name, name) for name in wrt]
        self._results = [index.get(name, name) for name in outputs]

    def predicted(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> Hot | None:
        """The plan of the last launch with these numbers."""
        if type(grid) is not tuple:
            return None
        try:
            return self._known.get((grid, self._in_args(args), self._in_kwargs(kwargs)))
        except TypeError:  # not hashable
            return None

    def predict(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, hot: Hot | None
    ) -> None:
        """Expect a plan from now on for launches with these numbers."""
        if len(self._known) >= MOST_PREDICTIONS:
            self._known.clear()
        with suppress(TypeError):
            self._known[grid, self._in_args(args), self._in_kwargs(kwargs)] = hot

    def require_same_layouts(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], of_wrt: Arrays, of_outputs: Arrays
    ) -> None:
        """Raise ValueError unless the further arrays are laid out as those that they belong to."""
        for places, arrays in ((self._inputs, of_wrt), (self._results, of_outputs)):
            for place, (name, further) in zip(places, arrays.items(), strict=True):
                array = args[place] if isinstance(place, int) else kwargs[place]
                try:
                    if array.shape == further.shape and array.stride() == further.stride():
                        continue
                except AttributeError:  # no tensor of torch
                    pass
                require_same_layout(name, array, further)


def _is_number(value: Any) -> bool:
    return type(value) in (int, bool, str)


def _getter(places: Sequence[Any]) -> Callable[[Any], Any]:
    return itemgetter(*places) if places else lambda given: None


class HotLaunches:
    """The native launchers of one derivative.

    Args:
        kernel: the kernel that it is derived from.
        find: finds the plan of a launch in Python, and what it is launched with.
    """

    def __init__(self, kernel: JITFunction, find: Find) -> None:
        self._kernel = kernel
        self._find = find
        self._launchers: dict[tuple[Any, ...], Launcher | None] = {}
        self._steps: dict[int, tuple[Plan, Step]] = {}

    def of(
        self, plan: Plan, wrt: tuple[str, ...], outputs: tuple[str, ...], how: How
    ) -> Hot | None:
        """A plan for native launches; None if there are none of it."""
        paths = [a for step in plan.steps for a in (*step.arguments, *plan.integers)]
        if plan.overlapping or any(len(a) > 1 and not _is_made(a) for a in paths):
            return None
        if self._kernel.native_chain() is None:
            return None
        launches: list[tuple[int, Launcher, tuple[Made, ...]]] = []
        for step in plan.steps:
            made = tuple(a for a in step.arguments if _is_made(a))
            native = self._launcher(plan, wrt, outputs, how, made)
            if native is None:
                return None
            number = next(_numbers)
            self._steps[number] = plan, step
            launches.append((number, native, made))
        return Hot(plan, tuple(launches), not any(made for _, _, made in launches))

    def _launcher(
        self, plan: Plan, wrt: tuple[str, ...], outputs: tuple[str, ...], how: How,
        made: tuple[Made, ...],
    ) -> Launcher | None:  # fmt: skip
        key = wrt, outputs, how, made, plan.integers
        if key not in self._launchers:

            def fallback(grid: Grid, number: int, *args: Any, **kwargs: Any) -> Any:
                arrays, rest = args[: len(wrt) + len(outputs)], args[len(wrt) + len(outputs) :]
                into = dict(zip(wrt, arrays, strict=False))
                grads = dict(zip(outputs, arrays[len(wrt) :], strict=True))
                values = dict(zip(made, rest, strict=False))
                call = rest[len(made) :], kwargs
                return self._by_python(grid, number, call, into, grads, how, values)

            params = self._kernel.params
            by_value = frozenset([STEP, *(params[first].name for (first,) in plan.integers)])
            described = _Described(self._kernel, len(wrt) + len(outputs) + len(made))
            self._launchers[key] = launcher.make_launcher(
                described, fallback, by_every_value=by_value
            )
        return self._launchers[key]

    def _by_python(
        self, grid: Grid, number: int, call: tuple[tuple[Any, ...], dict[str, Any]],
        into: Arrays, grads: Arrays, how: How, made: Mapping[Made, Any],
    ) -> Any:  # fmt: skip
        """Launch a step whose key the native launcher does not know. Returns what the launcher is
        to know of it."""
        expected, step = self._steps[number]
        plan, launch = self._find(*call, expected.grid, into, grads, how)
        if not is_predicted(plan, expected):
            raise Mispredicted
        start_step(step, launch, grid, made)
        own, further = len(self._kernel.params), len(into) + len(grads)
        first = 1 + further + len(made)
        places = [*range(first, first + own), *range(1, 1 + further)]
        slots: dict[Path | Made, int] = {(i,): place for i, place in enumerate(places)}
        slots |= {name: 1 + further + i for i, name in enumerate(made)}
        return _Started(step, [slots[a] for a in step.arguments])


def is_predicted(plan: Plan, expected: Plan) -> bool:
    """Whether the plan that Python has found is the one for which a native launch was tried."""
    return plan is expected


class _Described:
    """The parameters of a native launcher: the number of the step, the arrays and what the launch
    makes, by position, and those of the kernel."""

    def __init__(self, kernel: JITFunction, further: int) -> None:
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self._kernel = kernel
        front = [
            Parameter(name, Parameter.POSITIONAL_ONLY)
            for name in (STEP, *(f"_tw_{i}" for i in range(further)))
        ]
        self.signature = Signature([*front, *kernel.signature.parameters.values()])
        self.params = [*(KernelParam(i, p) for i, p in enumerate(front)), *kernel.params]

    @property
    def used_global_vals(self) -> Recorded:
        return self._kernel.used_global_vals

    @property
    def used_objects(self) -> Recorded:
        return self._kernel.used_objects


class _Started:
    """A step that was launched, for the native launcher.

    Args:
        slots: for each argument of its kernel the index of its slot.
    """

    def __init__(self, step: Step, slots: Sequence[int]) -> None:
        self.device = step.kernel.device
        self.loaded = self
        self._step = step
        self._slots = slots

    def native_start(self, runtime: Runtime) -> Start | None:
        native = getattr(self._step.kernel.loaded, "native_start", None)
        start: Start | None = native(runtime) if native else None
        if start is None:
            return None
        flags = [slot & layout.TO_FP32 for slot in start.slots]
        slots = [a | b for a, b in zip(self._slots, flags, strict=True)]
        return replace(start, slots=slots)


def _is_made(argument: Any) -> TypeGuard[Made]:
    return isinstance(argument[0], str)

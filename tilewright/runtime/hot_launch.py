"""Repeated launches of a derivative, in native code.

The key of a plan has the kernel's integers, the grid, and the types, alignments and aliases of all
arrays, which take most of the time to read. So a launch *predicts* its plan from the integers and
the grid alone, and passes the prediction as one more argument to the native launcher
(`runtime/native/`), whose key then has everything: the prediction by value, the types of all
arguments, and the layouts of derivatives and of the arrays that they belong to. A key is known to
the launcher only after a launch in Python has checked its arrays and has found the same plan for
it. A wrong prediction is therefore an unknown key, and the launch is repeated in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from tilewright.base.lazy_import import lazy_import
from tilewright.frontend.dependencies import Recorded
from tilewright.frontend.source import KernelParam
from tilewright.runtime.derived_buffers import BufferSizes, layouts_of
from tilewright.runtime.derived_launch import (
    Arrays,
    Checked,
    How,
    Launch,
    Made,
    Mispredicted,
    Path,
    Plan,
    Step,
    start_step,
    zero,
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

Check = Callable[..., Checked]
STEP = "_tw_step"  # the parameter with the number of the predicted step
MOST_PREDICTIONS = 4096
_numbers = count()


Bound = tuple[int, "Callable[..., Any]", tuple[Made, ...]]
"""The number of a step, what launches it on its grid, and the arguments that the launch makes."""


class _Sized(NamedTuple):
    """The launches of a plan with buffers of known sizes."""

    sizes: BufferSizes
    launches: tuple[Bound, ...]


@dataclass
class Hot:
    """A plan whose launch is predicted.

    Attributes:
        plan: the plan.
        launches: for each of its steps, its number and the native launcher.
        fixed: the launches with their grids, if these are known and nothing is allocated.
        zeroed: the arrays of `wrt` that are zeroed first.
        last: the launches for the layouts of the last call.
    """

    plan: Plan
    launches: tuple[tuple[int, Launcher, tuple[Made, ...]], ...]
    fixed: tuple[tuple[int, Callable[..., Any]], ...]
    zeroed: tuple[str, ...]
    last: _Sized | None = None

    def start(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], of_wrt: Arrays, of_outputs: Arrays,
        accumulate: bool,
    ) -> None:  # fmt: skip
        """Launch all steps.

        Raises:
            Mispredicted: this is another plan.
        """
        for name in self.zeroed:
            zero(name, of_wrt[name])
        if self.fixed:
            for number, start in self.fixed:
                start(number, *of_wrt.values(), *of_outputs.values(), *args, **kwargs)
            return
        further = *of_wrt.values(), *of_outputs.values()
        sized = self.last
        if sized is None or sized.sizes.layouts != layouts_of(self.plan, of_wrt):
            sized = self.last = self._sized(of_wrt)
        made = sized.sizes.allocated(of_wrt)
        for number, start, names in sized.launches:
            start(number, *further, *[made[name] for name in names], *args, **kwargs)
        sized.sizes.finish(made, of_wrt, accumulate)

    def _sized(self, of_wrt: Arrays) -> _Sized:
        """The launches for gradients of these layouts."""
        sizes = BufferSizes(self.plan, of_wrt)
        return _Sized(
            sizes,
            tuple(
                (number, native.bind(sizes.grid_of(step)), names)
                for (number, native, names), step in zip(
                    self.launches, self.plan.steps, strict=True
                )
            ),
        )


class CallShape:
    """Calls with as many arguments and the same keywords.

    Args:
        args, kwargs: the arguments of such a call.

    Attributes:
        in_args, in_kwargs: get the numbers among the arguments.
        single: by grid and numbers, the predicted plans that are one native launch: its number, and
            what starts it.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.in_args = _getter([i for i, value in enumerate(args) if _is_number(value)])
        self.in_kwargs = _getter([name for name, value in kwargs.items() if _is_number(value)])
        self._known: dict[Any, Hot | None] = {}
        self.single: dict[Any, tuple[int, Callable[..., Any]]] = {}

    def predicted(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> Hot | None:
        """The plan of the last launch with these numbers."""
        if type(grid) is not tuple:
            return None
        try:
            return self._known.get((grid, self.in_args(args), self.in_kwargs(kwargs)))
        except TypeError:  # not hashable
            return None

    def predict(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, hot: Hot | None
    ) -> None:
        """Expect a plan from now on for launches with these numbers."""
        if len(self._known) >= MOST_PREDICTIONS:
            self._known.clear()
            self.single.clear()
        with suppress(TypeError):
            key = grid, self.in_args(args), self.in_kwargs(kwargs)
            self._known[key] = hot
            self.single.pop(key, None)
            if hot is not None and len(hot.fixed) == 1 and not hot.zeroed:
                self.single[key] = hot.fixed[0]


def _is_number(value: Any) -> bool:
    return type(value) in (int, bool, str)


def _getter(places: Sequence[Any]) -> Callable[[Any], Any]:
    return itemgetter(*places) if places else lambda given: None


class HotLaunches:
    """The native launchers of one derivative.

    Args:
        kernel: the kernel that it is derived from.
        check: checks a launch and finds its plan, in Python.
    """

    def __init__(self, kernel: JITFunction, check: Check) -> None:
        self._kernel = kernel
        self._check = check
        self._launchers: dict[tuple[Any, ...], Launcher | None] = {}
        self._steps: dict[int, tuple[Plan, tuple[str, ...], Step]] = {}

    def of(
        self, found: Checked, wrt: tuple[str, ...], outputs: tuple[str, ...], how: How
    ) -> Hot | None:
        """A plan for native launches; None if there are none of it."""
        plan = found.plan
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
            self._steps[number] = plan, found.zeroed, step
            launches.append((number, native, made))
        fixed = [
            (number, native.bind(step.grid))
            for (number, native, made), step in zip(launches, plan.steps, strict=True)
            if not made
        ]
        is_fixed = len(fixed) == len(launches)
        return Hot(plan, tuple(launches), tuple(fixed) if is_fixed else (), found.zeroed)

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
            further = [_further(i) for i in range(len(wrt) + len(outputs))]
            in_key = launcher.InKey(
                values=frozenset([STEP, *(params[first].name for (first,) in plan.integers)]),
                layouts=frozenset([*further, *wrt, *outputs]),
            )
            described = _Described(self._kernel, len(further) + len(made))
            self._launchers[key] = launcher.make_launcher(described, fallback, in_key=in_key)
        return self._launchers[key]

    def _by_python(
        self, grid: Grid, number: int, call: tuple[tuple[Any, ...], dict[str, Any]],
        into: Arrays, grads: Arrays, how: How, made: Mapping[Made, Any],
    ) -> Any:  # fmt: skip
        """Launch a step whose key the native launcher does not know. Returns what the launcher is
        to know of it."""
        plan, zeroed, step = self._steps[number]
        found = self._check(*call, plan.grid, into, grads, how)
        if not is_predicted(found, plan, zeroed):
            raise Mispredicted
        start_step(step, found.launch, grid, made)
        own, further = len(self._kernel.params), len(into) + len(grads)
        first = 1 + further + len(made)
        places = [*range(first, first + own), *range(1, 1 + further)]
        slots: dict[Path | Made, int] = {(i,): place for i, place in enumerate(places)}
        slots |= {name: 1 + further + i for i, name in enumerate(made)}
        return _Started(step, [slots[a] for a in step.arguments])


def start_plan(plan: Plan, launch: Launch, of_wrt: Arrays, accumulate: bool) -> None:
    """Launch a plan's kernels, through Python."""
    sizes = BufferSizes(plan, of_wrt)
    made = sizes.allocated(of_wrt)
    for step in plan.steps:
        start_step(step, launch, sizes.grid_of(step), made)
    sizes.finish(made, of_wrt, accumulate)


def is_predicted(found: Checked, plan: Plan, zeroed: tuple[str, ...]) -> bool:
    """Whether Python has found the plan for which a native launch was tried, and the same arrays
    were zeroed."""
    return found.plan is plan and found.zeroed == zeroed


def _further(index: int) -> str:
    """The name of a parameter before those of the kernel."""
    return f"_tw_{index}"


class _Described:
    """The parameters of a native launcher: the number of the step, the arrays and what the launch
    makes, by position, and those of the kernel."""

    def __init__(self, kernel: JITFunction, further: int) -> None:
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self._kernel = kernel
        front = [
            Parameter(name, Parameter.POSITIONAL_ONLY)
            for name in (STEP, *map(_further, range(further)))
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

"""Runs a case: creates inputs, checks all contestants, and times the fastest configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.gpu import dialect
from benchmarks.gpu.case import Case, Run, Setting, WrongResult
from benchmarks.gpu.clock import Clock, turn_orders
from benchmarks.gpu.results import TORCH, Outcome, Row, why


@dataclass(frozen=True)
class Bench:
    """The environment of a measurement.

    Attributes:
        setting: device and scale.
        modules: compilers to measure.
        clock: None to check results only.
        announce: called with the row and the contestant before each step.
    """

    setting: Setting
    modules: tuple[str, ...]
    clock: Clock | None
    announce: Callable[[str], None]


TURNS = 3
"""In which configurations are timed, to choose one."""

CLOSE, MORE_TURNS = 1.1, 4
"""Configurations up to so many times as slow as the fastest are timed in more turns: at the power
limit of a GPU, the times of one differ by 10 % from turn to turn."""

Planned = Callable[[Bench, Row], None]
"""Fills in a row. It allocates its inputs when called, and frees them when it returns."""


@dataclass(frozen=True)
class Family:
    """The cases of one workload.

    Attributes:
        title: heading of its table.
        plan: the cases by name.
        check: whether results can be checked without timing.
    """

    title: str
    plan: Callable[[Setting], Mapping[str, Planned]]
    check: bool = True


class PlannedCase(NamedTuple):
    """A deferred measurement of the case ``make(setting, *args)``."""

    make: Callable[..., Case]
    args: tuple[Any, ...]

    def case(self, setting: Setting) -> Case:
        """The case, with its inputs allocated."""
        return self.make(setting, *self.args)

    def __call__(self, bench: Bench, row: Row) -> None:
        measure_case(self.case(bench.setting), bench, row)


def planned(make: Callable[..., Case], *args: Any) -> PlannedCase:
    """A deferred measurement of the case ``make(setting, *args)``."""
    return PlannedCase(make, args)


def measure_case(case: Case, bench: Bench, row: Row) -> None:
    """Check the results of each contestant, choose its fastest configuration, and time these
    alternately."""
    row.bars, row.bytes, row.flops = case.bars, case.bytes, case.flops
    expected = case.expected()
    chosen: dict[str, Run] = {}
    for module in bench.modules:
        bench.announce(module)
        outcome = row.outcomes[module] = Outcome()
        right = _right_ones(case, module, expected, outcome)
        if best := _fastest(right, case.bytes, bench.clock, outcome):
            chosen[module] = best
    if bench.clock is None:
        return
    if case.library:
        bench.announce(TORCH)
        outcome = row.outcomes[TORCH] = Outcome()
        if best := _fastest(_that_run(case.library, outcome), case.bytes, bench.clock, outcome):
            chosen[TORCH] = best
    bench.announce("timing")
    for name, timing in bench.clock.compare(chosen, case.bytes).items():
        row.outcomes[name].us, row.outcomes[name].spread = timing.us, timing.spread


def _right_ones(
    case: Case, module: str, expected: Sequence[torch.Tensor], outcome: Outcome
) -> dict[str, Run]:
    """The launches with correct results, by configuration; failures are recorded in `outcome`."""
    found: dict[str, Run] = {}
    try:
        launches = case.launches(dialect.load(case.kernels, module))
    except Exception as error:
        outcome.failures["all"] = why(error)
        return found
    for config, run in launches.items():
        try:
            error = case.run_checked(run, expected)
        except WrongResult as failure:
            outcome.failures[config] = f"wrong result: {failure}"
        except Exception as failure:
            outcome.failures[config] = why(failure)
            _require_device(case)
        else:
            outcome.error = max(outcome.error or 0.0, error)
            found[config] = run
    return found


class DeviceLost(Exception):
    """A failure has left the device unusable in this process."""


def _require_device(case: Case) -> None:
    """Raise DeviceLost if a failed kernel has left the device unusable (a sticky error)."""
    try:
        float(case.outputs[0].view(-1)[:1].double().sum())
    except RuntimeError as error:
        raise DeviceLost from error


def _that_run(library: Mapping[str, Run], outcome: Outcome) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for name, run in library.items():
        try:
            run()
            found[name] = run
        except Exception as error:
            outcome.failures[name] = why(error)
    return found


def _fastest(
    runs: Mapping[str, Run], touched: int, clock: Clock | None, outcome: Outcome
) -> Run | None:
    """The fastest launch, whose name is recorded in `outcome`; None if there is nothing to time.

    They are timed in turns: the first ones would otherwise have a GPU that is not yet at its power
    limit.
    """
    if not runs or clock is None:
        return None
    times: dict[str, list[float]] = {name: [] for name in runs}

    def take_turns(names: Sequence[str], count: int) -> float:
        """The least median after so many turns."""
        for name in chain.from_iterable(turn_orders(names, count)):
            times[name].append(clock.quick(runs[name], touched))
        return min(map(median, times.values()))

    least = take_turns(list(runs), TURNS)
    close = [name for name in runs if median(times[name]) <= CLOSE * least]
    if len(close) > 1:
        take_turns(close, MORE_TURNS)
    outcome.config = min(close, key=lambda name: median(times[name]))
    return runs[outcome.config]

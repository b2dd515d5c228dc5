"""The search for the fastest configuration: all are compiled and measured, then the best ones are
compared in longer measurements.

Of configurations with the same code, such as those that differ in `num_warps` on the CPU, only the
first one is compiled and measured. A configuration that does not compile, or does not fit on the
device, is skipped and its error recorded. The measurement of one that is far slower than the best
so far is aborted after a few runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from math import inf, isinf
from typing import Any, NamedTuple, Protocol, TypeVar

from tilewright.base.diagnostics import DeviceError, InterpreterError, IRError, TritonError
from tilewright.runtime.bench import clock_of
from tilewright.runtime.clocks import Clock
from tilewright.runtime.config import Config
from tilewright.runtime.measure import ESTIMATE_RUNS, measure, summarize
from tilewright.runtime.tuning.compile_all import Compiling
from tilewright.runtime.tuning.protect import Protection
from tilewright.runtime.tuning.report import Progress, median_of, milliseconds

QUANTILES = (0.5, 0.2, 0.8)
CONTENDER = 1.05
"""Configurations within this factor of the best are measured again, for longer."""
MAX_CONTENDERS = 4  # that are measured again
ROUNDS = 3
"""In so many rounds, each in order and then in reverse order: the clock rate of a device changes
during a search by more than good configurations differ. Few runs are not split so often. One more
pass precedes them, whose times do not count: under load a GPU lowers its clock rate in the first
100 ms, which made the configuration that came first look 4 % faster (H200)."""
DISTURBED = 1.5
"""Configurations that were measured during compilations, and whose fastest runs are within this
factor of the best, are measured again afterwards."""

Times = list[float]
FAILED: Times = [inf] * len(QUANTILES)
"""The times of a configuration that cannot run."""

T = TypeVar("T")


class Effort(NamedTuple):
    """The durations of warm-up and measurement of a configuration, in milliseconds."""

    warmup: float
    rep: float


SCREEN, FULL, ONCE = Effort(5, 20), Effort(25, 100), Effort(0, 0)


class Subject(Protocol):
    """The subject of a search: a kernel with the arguments of one call."""

    @property
    def name(self) -> str: ...

    @property
    def device(self) -> str:
        """The name of the tensors' device."""
        ...

    def reduced(self, config: Config) -> Config:
        """The part of a configuration that affects the code on the device."""
        ...

    def compile(self, config: Config) -> Any:
        """Compile the kernel for a configuration, and return it; None if it is not available."""
        ...

    def written(self, compiled: Any) -> list[Any]:
        """The tensors that the compiled kernel may write."""
        ...

    def run(self, config: Config) -> Callable[[], Any]:
        """A function that runs the kernel once, with its hooks."""
        ...


@dataclass
class Outcome:
    """The result of a search.

    Attributes:
        timings: milliseconds at `QUANTILES` for each configuration; infinite if it failed.
        errors: the errors of those that failed.
        facts: registers, spills and shared memory, where known.
    """

    timings: dict[Config, Any] = field(default_factory=dict)
    errors: dict[Config, Exception] = field(default_factory=dict)
    facts: dict[Config, dict[str, Any]] = field(default_factory=dict)

    @property
    def best(self) -> Config:
        """The fastest configuration."""
        return fastest(self.timings)


def fastest(timings: Mapping[Config, Any]) -> Config:
    """The configuration with the least times, compared lexicographically."""

    def order(config: Config) -> list[float]:
        times = timings[config]
        return [times] if isinstance(times, int | float) else list(times)

    return min(timings, key=order)


def is_of_configuration(error: Exception) -> bool:
    """Whether an error is due to the configuration: it does not compile, or does not fit.

    Errors of arguments, of the device, or found by the interpreter would occur with all others.
    """
    others = (DeviceError, InterpreterError, IRError)
    return isinstance(error, TritonError) and not isinstance(error, others)


class Search:
    """Measures the configurations of a subject.

    Args:
        subject: the kernel and its arguments.
        bench: replaces the default measurement: ``bench(fn, quantiles=…)``.
        effort: the effort for the best configurations; the first measurement of all takes less.
        protection: restores what trial runs write; None if nothing needs restoring.
        log: called with a line of text for each configuration.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        bench: Callable[..., Any] | None = None,
        effort: Effort = FULL,
        protection: Protection | None = None,
        log: Callable[[str], Any] | None = None,
    ) -> None:
        self.outcome = Outcome()
        self._subject = subject
        self._bench = bench
        self._effort = effort
        self._protection = protection
        self._log = log
        self._uncompiled: dict[Config, Exception] = {}
        self._clock: Clock | None = None
        self._not_alone: list[Config] = []

    def run(self, configs: Sequence[Config], progress: Progress) -> Outcome:
        """Compile and measure all configurations, and remeasure the best ones."""
        measured: dict[Config, Config] = {}
        for config in configs:
            measured.setdefault(self._subject.reduced(config), config)
        self._run(list(measured.values()), progress)
        alike = {config: measured[self._subject.reduced(config)] for config in configs}
        result = self.outcome
        result.timings = {c: result.timings[m] for c, m in alike.items()}
        result.errors = {c: result.errors[m] for c, m in alike.items() if m in result.errors}
        result.facts = {c: result.facts[m] for c, m in alike.items() if m in result.facts}
        return result

    def _run(self, configs: Sequence[Config], progress: Progress) -> None:
        """Compile and measure configurations whose code differs."""
        with ExitStack() as kept:
            if self._bench is None:
                self._clock = kept.enter_context(clock_of(self._subject.device))
            for done, config in enumerate(kept.enter_context(self._compiled(configs, progress))):
                progress.show("measured", done, self._leader())
                self.outcome.timings[config] = self.trial(config, self._screen(), self._limit())
            for config in self._disturbed():
                self.outcome.timings[config] = self.trial(config, self._screen(), self._limit())
            self.outcome.timings = {c: self.outcome.timings[c] for c in configs}
            self._compare(self._contenders(), progress)

    def _disturbed(self) -> list[Config]:
        """Configurations to remeasure: concurrent compilations may have delayed launches by holding
        the GIL, and their fastest runs are close to the best."""
        timings, limit = self.outcome.timings, DISTURBED * self._limit()
        return [
            c for c in self._not_alone if not isinstance(t := timings[c], float) and t[1] < limit
        ]

    def _leader(self) -> str:
        """The best configuration so far, as text."""
        if not self.outcome.timings:
            return ""
        leader = self.outcome.best
        return f"{milliseconds(median_of(self.outcome.timings[leader]))} ({leader})"

    @contextmanager
    def _compiled(
        self, configs: Sequence[Config], progress: Progress
    ) -> Generator[Iterator[Config]]:
        """The configurations, each as soon as it is compiled if the device measures time itself, so
        that concurrent compilation does not affect it; otherwise after all are compiled."""
        early = self._clock is not None and self._clock.is_devices_own
        with Compiling(configs, self._subject.compile, early=early) as compiling:
            arriving = self._recording_errors(compiling)
            if early:
                yield self._recording_load(arriving, compiling)
                return
            for done, _ in enumerate(arriving, 1):
                progress.show("compiled", done)
        yield iter(configs)

    def _recording_load(self, arriving: Iterator[Config], compiling: Compiling) -> Iterator[Config]:
        """Record the configurations that are measured during compilations."""
        for config in arriving:
            if compiling.is_busy:
                self._not_alone.append(config)
            yield config

    def _recording_errors(self, compiling: Compiling) -> Iterator[Config]:
        for config, error in compiling:
            if error is not None:
                self._uncompiled[config] = error
            yield config

    def _screen(self) -> Effort:
        warmup, rep = self._effort
        return Effort(min(SCREEN.warmup, warmup), min(SCREEN.rep, rep))

    def _limit(self) -> float:
        """The median of the best so far."""
        return min(map(median_of, self.outcome.timings.values()), default=inf)

    def _contenders(self) -> list[Config]:
        """The configurations that may turn out fastest in a longer measurement, if several."""
        if self._bench is not None or self._effort == self._screen():
            return []
        timings = self.outcome.timings
        close = [c for c in timings if median_of(timings[c]) <= CONTENDER * self._limit() < inf]
        close.sort(key=lambda config: median_of(timings[config]))
        return close[:MAX_CONTENDERS] if len(close) > 1 else []

    def _compare(self, configs: Sequence[Config], progress: Progress) -> None:
        """Measure the best configurations with full effort, alternately."""
        if not configs:
            return
        runs = self._effort.rep / max(self._limit(), 1e-6)
        rounds = min(max(int(runs / (2 * ESTIMATE_RUNS)), 1), ROUNDS)
        effort = Effort(self._effort.warmup / (2 * rounds), self._effort.rep / (2 * rounds))
        times: dict[Config, Times] = {config: [] for config in configs}
        measure = partial(self._times, effort)
        for config in reversed(configs):
            self._attempt(config, measure)
        for done, config in enumerate([*configs, *reversed(configs)] * rounds):
            progress.show("compared", done // (2 * rounds), self._leader())
            times[config] += self._attempt(config, measure) or [inf]
        self.outcome.timings |= {
            config: summarize(found, QUANTILES) if inf not in found else FAILED
            for config, found in times.items()
        }

    def trial(self, config: Config, effort: Effort, limit: float = inf) -> Any:
        """Times of one configuration at `QUANTILES`; infinite if it cannot run.

        Raises:
            Exception: an error that is not due to the configuration.
        """
        if self._log is not None:
            self._log(f"Autotuning kernel {self._subject.name} with config {config}")
        times = self._attempt(config, partial(self._timing, effort, limit))
        return FAILED if times is None else times

    def _attempt(self, config: Config, measure: Callable[[Callable[[], Any]], T]) -> T | None:
        """The result of `measure` for the run of one configuration; None if it cannot run."""
        try:
            if config in self._uncompiled:
                raise self._uncompiled[config]
            compiled = self._subject.compile(config)
            if self._protection is not None:
                self._protection.add(self._subject.written(compiled))
            try:
                measured = measure(self._subject.run(config))
            finally:
                if self._protection is not None:
                    self._protection.restore()
        except Exception as error:
            if not is_of_configuration(error):
                raise
            self.outcome.errors[config] = error
            return None
        names = ("n_regs", "n_spills", "shared")
        self.outcome.facts[config] = {n: v for n in names if (v := _fact(compiled, n)) is not None}
        return measured

    def _timing(self, effort: Effort, limit: float, run: Callable[[], Any]) -> Any:
        """Times at `QUANTILES`, or what a replacement of the measurement returns."""
        if self._bench is not None:
            return self._bench(run, quantiles=QUANTILES)
        return summarize(self._times(effort, run, limit), QUANTILES)

    def _times(self, effort: Effort, run: Callable[[], Any], limit: float = inf) -> Times:
        """The times of single runs in milliseconds."""
        with nullcontext(self._clock) if self._clock else clock_of(self._subject.device) as clock:
            return measure(run, clock, *effort, limit=limit)


def _fact(compiled: Any, name: str) -> Any:
    """An attribute of a compiled kernel; None if it has no such attribute."""
    try:
        return getattr(compiled, name) if name != "shared" else compiled.metadata.shared
    except AttributeError:
        return None


def all_failed(outcome: Outcome) -> bool:
    """Whether every configuration failed."""
    return all(isinf(median_of(times)) for times in outcome.timings.values())

"""The times of the configurations of a call, measured by a search and reported to the user."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilewright.base import knobs
from tilewright.runtime.config import Config
from tilewright.runtime.tuning.call import Call
from tilewright.runtime.tuning.protect import CannotProtect, Protection
from tilewright.runtime.tuning.report import Progress, all_failed_error, first_line, table
from tilewright.runtime.tuning.search import QUANTILES, Effort, Outcome, Search, all_failed


class Timings(NamedTuple):
    """The times of configurations.

    Attributes:
        by_config: milliseconds at the quantiles 0.5, 0.2 and 0.8.
        seconds: the duration of the search; None if there was none, because copies of what the
            kernel writes have no room. Then it is the first configuration alone that has times.
    """

    by_config: dict[Config, Any]
    seconds: float | None


def measured(
    call: Call,
    configs: Sequence[Config],
    key: tuple[Any, ...],
    *,
    bench: Callable[..., Any] | None,
    effort: Effort,
) -> Timings:
    """Measure the configurations of a call.

    Args:
        key: the tuning key, for the report.
        bench: replaces the default measurement.

    Raises:
        AutotunerError: every configuration fails.
    """
    begin = time.perf_counter()
    shown = knobs.autotuning.print
    progress = Progress(call.name, len(configs), knobs.autotuning.progress and not shown)
    protection = _protection()
    search = Search(
        call, bench=bench, effort=effort, protection=protection, log=print if shown else None
    )
    try:
        outcome = search.run(configs, progress)
    except CannotProtect as error:
        _warn_unmeasured(call.name, configs[0], error)
        return Timings({configs[0]: [0.0] * len(QUANTILES)}, None)
    finally:
        progress.clear()
        protection.free()
    seconds = time.perf_counter() - begin
    if all_failed(outcome):
        raise all_failed_error(call.name, outcome.errors)
    if shown:
        _print(call.name, key, seconds, outcome)
    return Timings(outcome.timings, seconds)


def measured_once(
    call: Call, config: Config, *, bench: Callable[..., Any] | None, effort: Effort
) -> Any:
    """The times of one configuration at the quantiles 0.5, 0.2 and 0.8; infinite if it fails."""
    protection = _protection()
    try:
        return Search(call, bench=bench, protection=protection).trial(config, effort)
    finally:
        protection.free()


def _protection() -> Protection:
    return Protection(knobs.autotuning.protect_mib << 20)


def _warn_unmeasured(name: str, config: Config, why: Exception) -> None:
    """Warn that the first configuration is used, as trial runs would modify the arguments."""
    warnings.warn(
        f"{name} is not tuned, and runs with {config}: {why}. The setting autotuning.protect_mib "
        "says how much memory copies may take.",
        RuntimeWarning,
        stacklevel=7,
    )


def _print(name: str, key: tuple[Any, ...], seconds: float, outcome: Outcome) -> None:
    reasons = {config: first_line(error) for config, error in outcome.errors.items()}
    print(
        f"Triton autotuning for function {name},\nwith key as {key},\n"
        f"finished after {seconds:.2f}s,\nbest config selected: {outcome.best};"
    )
    print(table(outcome.timings, reasons, outcome.facts))

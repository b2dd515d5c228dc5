"""Reports of the autotuner: a progress line on a terminal, and a table of results on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from math import isinf
from typing import Any, TextIO

from tilewright.base.diagnostics import AutotunerError

QUIET_SECONDS = 0.5
"""The time in seconds before progress is shown."""


class Progress:
    """A progress line; prints nothing unless the output is a terminal.

    Args:
        name: the name of the kernel.
        total: the number of configurations.
        out: the output; standard error by default.
    """

    def __init__(
        self, name: str, total: int, shown: bool = True, out: TextIO | None = None
    ) -> None:
        self._name, self._total = name, total
        self._out = out if out is not None else sys.stderr
        self._shown = shown and self._out is not None and self._out.isatty()
        self._begin = time.monotonic()
        self._width = 0

    def show(self, doing: str, done: int, best: str = "") -> None:
        """Update the line: `done` configurations have been processed."""
        if not self._shown or time.monotonic() - self._begin < QUIET_SECONDS:
            return
        filled = 20 * done // max(self._total, 1)
        bar = "#" * filled + "." * (20 - filled)
        line = f"tuning {self._name} [{bar}] {doing} {done}/{self._total}"
        self._write(f"{line}, best {best}"[:110] if best else line)

    def clear(self) -> None:
        """Erase the line."""
        if self._width:
            self._write("")
            self._out.write("\r")
            self._out.flush()
            self._width = 0

    def _write(self, line: str) -> None:
        self._out.write("\r" + line.ljust(self._width))
        self._out.flush()
        self._width = len(line)


def milliseconds(time: float) -> str:
    """Format a time: ``0.123 ms``."""
    return "-" if isinf(time) else f"{time:.4g} ms"


def table(
    timings: Mapping[Any, Sequence[float] | float],
    reasons: Mapping[Any, str],
    facts: Mapping[Any, Mapping[str, Any]],
) -> str:
    """A table of the configurations with their times, fastest first, or the reason of failure.

    Args:
        timings: milliseconds at the quantiles 0.5, 0.2 and 0.8, or one number.
        reasons: error messages of the configurations that failed.
        facts: `n_regs`, `n_spills` and `shared` of the configurations, where known.
    """
    ranked = sorted(timings.items(), key=lambda item: median_of(item[1]))
    fastest = median_of(ranked[0][1]) if ranked else 1.0
    header = ["", "median", "20%", "80%", "of best", "registers", "spills", "shared", "config"]
    rows = [header]
    for place, (config, times) in enumerate(ranked, 1):
        known = facts.get(config, {})
        spread = [milliseconds(t) for t in _three(times)]
        median = median_of(times)
        share = "-" if isinf(median) or not median else f"{fastest / median:.0%}"
        resources = [str(known.get(name, "-")) for name in ("n_regs", "n_spills", "shared")]
        why = f"  ({reasons[config]})" if config in reasons else ""
        rows.append([str(place), *spread, share, *resources, f"{config}{why}"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(header) - 1)]
    return "\n".join(
        "  ".join([*(c.rjust(w) for c, w in zip(row[:-1], widths, strict=True)), row[-1]])
        for row in rows
    )


def median_of(times: Sequence[float] | float) -> float:
    """The median, given the result of a benchmark for the quantiles 0.5, 0.2 and 0.8."""
    return times if isinstance(times, int | float) else times[0]


def _three(times: Sequence[float] | float) -> Iterable[float]:
    if isinstance(times, int | float):
        return [times] * 3
    return [*times, times[-1], times[-1]][:3]


def first_line(error: BaseException) -> str:
    """The message of an error in one line, with its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("help: ", "note: "))]
    # A compilation error begins with the kernel's source, and ends with the message.
    text = lines[-1] if lines and lines[0].startswith("at ") else (lines or [""])[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def all_failed_error(name: str, errors: Mapping[Any, Exception]) -> AutotunerError:
    """The error for a kernel of which no configuration runs, with the error of each."""
    lines = [f"  {config}\n    {first_line(error)}" for config, error in errors.items()]
    failure = AutotunerError(
        f"none of the {len(errors)} configurations of {name} runs:\n" + "\n".join(lines)
    )
    failure.__cause__ = next(iter(errors.values()))
    return failure

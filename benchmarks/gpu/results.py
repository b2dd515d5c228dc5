"""Results and their file, which is written after each case."""

from __future__ import annotations

import json
import os
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OURS = "tilewright"
TRITON = "triton"
TORCH = "torch"

TRACEBACK_LINES = 6


@dataclass(frozen=True)
class Bars:
    """The targets of a case; None for no target.

    Attributes:
        triton, torch: least ratio of the rival's time to ours.
        copy: least ratio of the bandwidth to that of a copy of device memory.
        us: most microseconds.
    """

    triton: float | None = None
    torch: float | None = None
    copy: float | None = None
    us: float | None = None


@dataclass
class Outcome:
    """The result of one contestant in a case.

    Attributes:
        us: median time in microseconds; None if it was not timed.
        config: the configuration (or the library's variant) that was timed.
        error: largest error of a correct result, as defined by `case.worst_error`.
        spread: the range of the medians of blocks, relative to the median of all samples.
        failures: by failed configuration, the last lines of the traceback.
    """

    us: float | None = None
    config: str = ""
    error: float | None = None
    spread: float | None = None
    failures: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Row:
    """The results of a case by contestant: tilewright, triton, torch."""

    family: str
    case: str
    bars: Bars = field(default_factory=Bars)
    bytes: int = 0
    flops: int = 0
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])

    @property
    def key(self) -> tuple[str, str]:
        return self.family, self.case

    def time(self, contestant: str) -> float | None:
        """Microseconds of a contestant; None if it was not timed."""
        outcome = self.outcomes.get(contestant)
        return None if outcome is None else outcome.us

    def ratio(self, rival: str) -> float | None:
        """The rival's time over ours; None if one of the two is missing."""
        ours, theirs = self.time(OURS), self.time(rival)
        return None if ours is None or theirs is None else theirs / ours

    def rate(self, contestant: str) -> float | None:
        """TFLOP/s of a compute-bound case, else GB/s."""
        us = self.time(contestant)
        if us is None or not (self.flops or self.bytes):
            return None
        return self.flops / us / 1e6 if self.flops else self.bytes / us / 1e3

    @property
    def unit(self) -> str:
        """The unit of `rate`."""
        if self.flops:
            return "TFLOP/s"
        return "GB/s" if self.bytes else ""


@dataclass
class Results:
    """The results of a run.

    Attributes:
        machine: hardware and software versions; `copy_gb_s` is the bandwidth of a copy.
        rows: the cases, in the order of the run.
        running: the current family, case and contestant, also after a crash of the worker.
        left_out: cases skipped for lack of time.
    """

    machine: dict[str, Any] = field(default_factory=dict[str, Any])
    rows: list[Row] = field(default_factory=list[Row])
    running: tuple[str, str, str] | None = None
    left_out: list[str] = field(default_factory=list[str])

    def save(self, path: Path) -> None:
        """Write the file atomically: a crash leaves either the previous state or this one."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_text(text, "utf-8")
        os.replace(fresh, path)

    @staticmethod
    def load(path: Path) -> Results:
        found = json.loads(path.read_text("utf-8"))
        running = found["running"]
        return Results(
            machine=found["machine"],
            rows=[_row(row) for row in found["rows"]],
            running=None if running is None else (running[0], running[1], running[2]),
            left_out=found["left_out"],
        )


def _row(found: dict[str, Any]) -> Row:
    outcomes = {name: Outcome(**outcome) for name, outcome in found["outcomes"].items()}
    nested: dict[str, Any] = {"bars": Bars(**found["bars"]), "outcomes": outcomes}
    return Row(**(found | nested))


def misses(row: Row, copy_gb_s: float | None) -> list[str]:
    """The missed targets of a row, as text; also failures and wrong results."""
    found: list[str] = []
    for rival, bar in ((TRITON, row.bars.triton), (TORCH, row.bars.torch)):
        ratio = row.ratio(rival)
        if bar is not None and ratio is not None and ratio < bar:
            found.append(f"{rival} {ratio:.2f} < {bar:g}")
    ours = row.time(OURS)
    if row.bars.us is not None and ours is not None and ours > row.bars.us:
        found.append(f"{ours:.1f} us > {row.bars.us:g} us")
    if row.bars.copy is not None and ours is not None and copy_gb_s:
        share = row.bytes / ours / 1e3 / copy_gb_s
        if share < row.bars.copy:
            found.append(f"copy {share:.2f} < {row.bars.copy:g}")
    return found + [f"{name} failed" for name, outcome in row.outcomes.items() if failed(outcome)]


def failed(outcome: Outcome) -> bool:
    """Whether no configuration gave a correct result."""
    return bool(outcome.failures) and outcome.us is None and outcome.error is None


def why(error: BaseException) -> str:
    """The last lines of a traceback."""
    lines = "".join(traceback.format_exception(error)).strip().splitlines()
    return "\n".join(lines[-TRACEBACK_LINES:])

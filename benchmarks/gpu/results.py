"""What was measured, and the file that it is kept in after each case."""

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
    """What is aimed at in a case; None where nothing is.

    Attributes:
        triton, torch: the rival's time over ours, at least.
        copy: the bandwidth over that of a copy of device memory, at least.
        us: microseconds, at most.
    """

    triton: float | None = None
    torch: float | None = None
    copy: float | None = None
    us: float | None = None


@dataclass
class Outcome:
    """What one contestant did in a case.

    Attributes:
        us: median time in microseconds; None if nothing was timed.
        config: the configuration (or the way of the library) that this is the time of.
        error: largest error of a right result, as `case.worst_error` counts it.
        spread: the range of the medians of the blocks, over the median of all samples.
        failures: for each configuration that failed, the last lines of why.
    """

    us: float | None = None
    config: str = ""
    error: float | None = None
    spread: float | None = None
    failures: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Row:
    """The outcome of a case for each contestant, by name: tilewright, triton, torch."""

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
        """Its microseconds, None if it was not timed."""
        outcome = self.outcomes.get(contestant)
        return None if outcome is None else outcome.us

    def ratio(self, rival: str) -> float | None:
        """The rival's time over ours; None if one of the two is missing."""
        ours, theirs = self.time(OURS), self.time(rival)
        return None if ours is None or theirs is None else theirs / ours

    def rate(self, contestant: str) -> float | None:
        """TFLOP/s where operations are counted, else GB/s where bytes are."""
        us = self.time(contestant)
        if us is None or not (self.flops or self.bytes):
            return None
        return self.flops / us / 1e6 if self.flops else self.bytes / us / 1e3

    @property
    def unit(self) -> str:
        """That of `rate`."""
        if self.flops:
            return "TFLOP/s"
        return "GB/s" if self.bytes else ""


@dataclass
class Results:
    """All that a run has found.

    Attributes:
        machine: what the numbers depend on; `copy_gb_s` is the bandwidth of a copy.
        rows: the cases, in the order of the run.
        running: family, case and contestant at work now, or when the process ended.
        left_out: cases that the time did not suffice for.
    """

    machine: dict[str, Any] = field(default_factory=dict[str, Any])
    rows: list[Row] = field(default_factory=list[Row])
    running: tuple[str, str, str] | None = None
    left_out: list[str] = field(default_factory=list[str])

    def save(self, path: Path) -> None:
        """Write the file as a whole: a process that ends leaves the last state or this one."""
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
    """The bars that a row stays below, in words; also failures and wrong results."""
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
    """Whether no configuration gave a right result."""
    return bool(outcome.failures) and outcome.us is None and outcome.error is None


def why(error: BaseException) -> str:
    """The last lines of a traceback."""
    lines = "".join(traceback.format_exception(error)).strip().splitlines()
    return "\n".join(lines[-TRACEBACK_LINES:])

"""Results by operator and their file, which is written after each step."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contestants import OURS, TRITON

TOLERANCES = {"float32": 2e-5, "float16": 5e-3, "bfloat16": 3e-2}
"""Tolerances by type, relative to the largest value: rounding errors of sums of thousands of
numbers."""

LARGE = "large"

RIVAL_FACTOR = 2.0
"""A larger error is accepted if it exceeds Triton's by at most this factor: on the GPU, products of
fp32 numbers use tf32 by default."""


@dataclass
class Outcome:
    """The result of one contestant.

    Attributes:
        error: the largest difference from torch, relative to the largest value.
        launches: number of kernel launches, if counted.
        failure: why there is no error, "" if there is one.
    """

    error: float | None = None
    launches: int | None = None
    failure: str = ""

    @staticmethod
    def of(answer: dict[str, Any]) -> Outcome:
        """The outcome in a worker's response."""
        names = ("error", "launches", "failure")
        return Outcome(**{name: answer[name] for name in names if name in answer})


@dataclass
class Row:
    """The results of an operator.

    Attributes:
        checks: outcomes by comparison ("cuda bfloat16", "cuda bfloat16 large") and contestant.
        times: microseconds by contestant and part.
        done: completed steps.
        slack: `Operator.slack`.
    """

    checks: dict[str, dict[str, Outcome]] = field(default_factory=dict[str, dict[str, Outcome]])
    times: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    done: list[str] = field(default_factory=list[str])
    slack: float = 1.0

    def ratio(self, part: str) -> float | None:
        """Triton's time over tilewright's; None if one of them is missing."""
        if any(part not in self.times.get(name, {}) for name in (OURS, TRITON)):
            return None
        return self.times[TRITON][part] / self.times[OURS][part]

    def keep_samples(self, contestant: str, samples: dict[str, list[float]]) -> None:
        self.times[contestant] = {part: median(found) for part, found in samples.items()}

    def wrong(self) -> list[str]:
        """Failures and wrong results of tilewright, as text."""
        found: list[str] = []
        for what, outcomes in self.checks.items():
            ours, theirs = outcomes.get(OURS), outcomes.get(TRITON)
            if ours is None:
                continue
            if ours.error is None:
                found.append(f"{what}: {ours.failure}")
            elif not _right(ours.error, self._tolerance(what.split()[1]), theirs):
                found.append(f"{what}: differs by {ours.error:.1e}")
        return found

    def _tolerance(self, dtype: str) -> float:
        return TOLERANCES[dtype] * (1 if dtype == "float32" else self.slack)


def _right(error: float, tolerance: float, rival: Outcome | None) -> bool:
    other = rival.error if rival is not None else None
    return error <= tolerance or (other is not None and error <= RIVAL_FACTOR * other)


@dataclass
class Results:
    """Rows by the operators' labels, and the hardware and software."""

    machine: dict[str, str] = field(default_factory=dict[str, str])
    rows: dict[str, Row] = field(default_factory=dict[str, Row])

    def save(self, path: Path) -> None:
        """Write the file atomically: a crash leaves either the previous state or this one."""
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        os.replace(fresh, path)

    @staticmethod
    def load(path: Path) -> Results:
        found = json.loads(path.read_text("utf-8"))
        return Results(found["machine"], {k: _row(row) for k, row in found["rows"].items()})


def _row(found: dict[str, Any]) -> Row:
    checks = {
        what: {name: Outcome(**outcome) for name, outcome in outcomes.items()}
        for what, outcomes in found["checks"].items()
    }
    return Row(checks, found["times"], found["done"], found["slack"])

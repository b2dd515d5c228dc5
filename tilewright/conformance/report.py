"""The outcome of a run of the suite: a table in Markdown, and JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.conformance.case import Case
from tilewright.conformance.execution import (
    ABSENT,
    COMPILED,
    FAILED,
    OUTCOMES,
    PASSED,
    REJECTED,
    UNCLAIMED,
    Outcome,
)
from tilewright.conformance.suite import TITLES
from tilewright.targets.protocol import Claims

MARKS = {PASSED: "", COMPILED: " compiled only", REJECTED: " rejected", UNCLAIMED: " not claimed",
         FAILED: " FAILED"}  # fmt: skip


@dataclass
class Results:
    """The outcomes of cases.

    Attributes:
        target, device: what the suite ran on; the device is "" if kernels were only compiled.
        claims: of the target.
        seconds: that the run took.
        outcomes: by case.
    """

    target: str
    device: str
    claims: Claims
    seconds: float = 0.0
    outcomes: dict[Case, Outcome] = field(default_factory=dict[Case, Outcome])

    def failures(self) -> list[tuple[Case, Outcome]]:
        """The cases that failed."""
        return [(c, o) for c, o in self.outcomes.items() if o.status == FAILED]

    def counts(self) -> dict[str, Counter[str]]:
        """The number of cases by level and outcome."""
        found: dict[str, Counter[str]] = {level: Counter() for level in TITLES}
        for case, outcome in self.outcomes.items():
            found[case.level][outcome.status] += 1
        return {level: counter for level, counter in found.items() if counter}

    def plain(self) -> dict[str, Any]:
        """The results as JSON."""
        cases = [
            {"name": case.name, "level": case.level, **outcome.plain()}
            for case, outcome in self.outcomes.items()
        ]
        return {
            "target": self.target,
            "device": self.device,
            "claims": asdict(self.claims),
            "seconds": round(self.seconds, 1),
            "conformant": not self.failures(),
            "levels": {level: dict(counter) for level, counter in self.counts().items()},
            "cases": cases,
        }

    def markdown(self) -> str:
        """The table of levels, a table of features for each, and the failures."""
        return "\n".join([*self._head(), *self._features(), *self._failures()]) + "\n"

    def _head(self) -> Iterator[str]:
        where = f"on {self.device}" if self.device else "compiled only, as there is no device"
        yield f"# Conformance of `{self.target}`, {where}\n"
        shown = [PASSED, COMPILED, REJECTED, UNCLAIMED, FAILED]
        yield f"| level | {' | '.join(shown)} |"
        yield "|---|" + "---:|" * len(shown)
        for level, counter in self.counts().items():
            cells = " | ".join(str(counter[status] or "") for status in shown)
            yield f"| {level} {TITLES[level]} | {cells} |"

    def _features(self) -> Iterator[str]:
        for level in self.counts():
            rows: defaultdict[str, dict[str, list[str]]] = defaultdict(
                lambda: {status: [] for status in OUTCOMES}
            )
            for case, outcome in self.outcomes.items():
                if case.level == level:
                    rows[case.feature][outcome.status].append(case.variant or "yes")
            yield f"\n## Level {level}: {TITLES[level]}\n"
            yield "| feature | outcome |"
            yield "|---|---|"
            for feature, by_status in rows.items():
                cells = [
                    f"{', '.join(by_status[status])}{mark}"
                    for status, mark in MARKS.items()
                    if by_status[status]
                ]
                if cells:
                    yield f"| `{feature}` | {'; '.join(cells)} |".replace("x | y", "x \\| y")
        absent = sum(o.status == ABSENT for o in self.outcomes.values())
        if absent:
            yield f"\n{absent} cases do not exist: no target has the element type, or the case"
            yield "needs a device and there is none."

    def _failures(self) -> Iterator[str]:
        rejections = [(c, o) for c, o in self.outcomes.items() if o.status == REJECTED]
        for title, found in (("Rejected", rejections), ("Failures", self.failures())):
            if found:
                yield f"\n## {title}\n"
            for case, outcome in found:
                yield f"- `{case.name}`: {outcome.detail}"

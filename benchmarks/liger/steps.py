"""The steps for each operator; results are saved after each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time

from benchmarks.contestants import OURS, Contestant
from benchmarks.liger.clock import PARTS, Times
from benchmarks.liger.operators import OPERATORS, Operator
from benchmarks.liger.results import LARGE, Outcome, Results, Row

CHECK_SECONDS = 90
"""Limit for compiling and checking an operator with small inputs, in seconds."""

PREPARE_SECONDS = 150
"""The same with large inputs, including autotuning."""

ROUND_SECONDS, ROUNDS = 0.25, 4
"""Duration of a contestant's turn, and the number of turns."""


@dataclass(frozen=True)
class Step:
    """A check or a measurement of operators.

    Attributes:
        device: "cpu" or "cuda".
        dtype: name of torch's type of the inputs.
        timed: measure times, with large inputs; otherwise compare results only.
        small: use small inputs even if timed, for a rehearsal.
    """

    device: str
    dtype: str
    timed: bool = False
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.device} {self.dtype}{f' {LARGE}' * self.timed}"


@dataclass
class Run:
    """Executes the steps.

    Attributes:
        contestants: by name.
        results: earlier and new results.
        path: the file of results.
        until: no step is started after this `time.time`.
        missed: steps skipped for lack of time.
    """

    contestants: Mapping[str, Contestant]
    results: Results
    path: Path
    until: float = float("inf")
    missed: list[str] = field(default_factory=list[str])

    def do(self, steps: Sequence[Step], only: str) -> Iterator[tuple[Operator, Step, Row]]:
        """Run each step for each operator whose label contains `only`; yields finished rows."""
        for step in steps:
            for number, operator in enumerate(OPERATORS):
                row = self.results.rows.setdefault(operator.label, Row(slack=operator.slack))
                if only not in operator.label or step.name in row.done:
                    continue
                if operator.needs_cuda and step.device == "cpu":
                    continue
                if time() > self.until:
                    self.missed.append(f"{operator.label}, {step.name}")
                    continue
                self._take(number, step, row)
                row.done.append(step.name)
                self.results.save(self.path)
                yield operator, step, row

    def _take(self, number: int, step: Step, row: Row) -> None:
        if step.timed:
            self._time(number, step, row)
            return
        able = self._able(step)
        for contestant in able.values():
            contestant.send("check", operator=number, device=step.device, dtype=step.dtype)
        row.checks[step.name] = {
            name: Outcome.of(contestant.receive(CHECK_SECONDS)) for name, contestant in able.items()
        }

    def _able(self, step: Step) -> Mapping[str, Contestant]:
        """The contestants of a step: Triton runs on GPUs only, except in a rehearsal."""
        if step.device == "cuda" or step.small:
            return self.contestants
        return {OURS: self.contestants[OURS]}

    def _time(self, number: int, step: Step, row: Row) -> None:
        """Prepare both contestants, and time those that succeed alternately."""
        outcomes = row.checks[step.name] = {}
        ready: dict[str, Contestant] = {}
        about = {"operator": number, "device": step.device, "dtype": step.dtype}
        for name, contestant in self._able(step).items():
            answer = contestant.ask(PREPARE_SECONDS, "prepare", **about, small=step.small)
            outcomes[name] = Outcome.of(answer)
            if "failure" not in answer:
                ready[name] = contestant
        ours = outcomes[OURS]
        if ours.launches != 0:  # otherwise the operator uses torch only, in both
            self._rounds(ready, row, outcomes)
        for contestant in ready.values():
            contestant.ask(CHECK_SECONDS, "drop")

    def _rounds(self, ready: dict[str, Contestant], row: Row, outcomes: dict[str, Outcome]) -> None:
        samples: dict[str, Times] = {name: {part: [] for part in PARTS} for name in ready}
        for _ in range(ROUNDS):
            for name, contestant in list(ready.items()):
                answer = contestant.ask(CHECK_SECONDS, "samples", seconds=ROUND_SECONDS)
                if "failure" in answer:
                    outcomes[name].failure = answer["failure"]
                    del ready[name], samples[name]
                    continue
                for part in PARTS:
                    samples[name][part] += answer["samples"][part]
        for name, found in samples.items():
            row.keep_samples(name, found)

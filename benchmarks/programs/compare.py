"""Prepares, compares and times the calls of a file under both contestants."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

import torch

from benchmarks.contestants import OURS, TRITON, Contestant

PREPARE_SECONDS = 120
"""Limit for compiling and running a call, in seconds."""

ROUNDS, SAMPLES = 3, 4
"""The number of a contestant's turns, and of runs in each."""

Kernels = dict[str, float]
"""Microseconds by kernel."""


@dataclass
class Outcome:
    """What was found of one call.

    Attributes:
        kernels: the time that each kernel takes in a run, by contestant: medians.
        difference: of the results, as a part of their norm; NaN if they were not compared.
        failures: by contestant.
    """

    name: str
    kernels: dict[str, Kernels] = field(default_factory=dict[str, Kernels])
    difference: float = math.nan
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def us(self, contestant: str) -> float:
        """The time of all kernels; NaN if there are none."""
        return sum(self.kernels.get(contestant, {}).values()) or math.nan

    @property
    def ratio(self) -> float:
        """Triton's time over tilewright's; NaN unless both were timed."""
        return self.us(TRITON) / self.us(OURS)

    def kernel_ratios(self) -> dict[str, float]:
        """The same for each kernel that both run."""
        ours, theirs = (self.kernels.get(name, {}) for name in (OURS, TRITON))
        return {name: theirs[name] / ours[name] for name in ours if name in theirs}


def compare(contestants: Mapping[str, Contestant], names: list[str]) -> Iterator[Outcome]:
    """Run each of the named calls under each contestant, alternately."""
    for name in names:
        outcome = Outcome(name)
        for contestant in contestants.values():
            contestant.send("prepare", name=name)
        answers = {who: c.receive(PREPARE_SECONDS) for who, c in contestants.items()}
        for who, answer in answers.items():
            if "failure" in answer:
                outcome.failures[who] = answer["failure"]
        if not outcome.failures:
            paths = [answer["results"] for answer in answers.values()]
            outcome.difference = difference(*(torch.load(path) for path in paths))
            _time(contestants, outcome)
        for who, contestant in contestants.items():
            if who not in outcome.failures:
                contestant.ask(PREPARE_SECONDS, "drop")
        yield outcome


def _time(contestants: Mapping[str, Contestant], outcome: Outcome) -> None:
    samples: dict[str, dict[str, list[float]]] = {who: {} for who in contestants}
    for _ in range(ROUNDS):
        for who, contestant in contestants.items():
            answer = contestant.ask(PREPARE_SECONDS, "samples", count=SAMPLES)
            if "failure" in answer:
                outcome.failures[who] = answer["failure"]
                return
            for kernel, found in answer["samples"].items():
                samples[who].setdefault(kernel, []).extend(found)
    outcome.kernels = {
        who: {kernel: median(found) for kernel, found in kernels.items()}
        for who, kernels in samples.items()
    }


def difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """The largest difference of two results, as a part of the norm of the second; infinite if they
    differ in shapes or in which elements are finite."""
    if [x.shape for x in ours] != [x.shape for x in theirs]:
        return math.inf
    return max((_difference(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    exact = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(exact), b.to(exact)
    finite = b.isfinite()
    if not torch.equal(a.isfinite(), finite):
        return math.inf
    a, b = torch.where(finite, a, 0), torch.where(finite, b, 0)
    return float((a - b).norm() / b.norm().clamp(min=1e-30))

"""All cases of the suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilewright.conformance import (
    concurrency,
    elementwise,
    products,
    protocol_checks,
    random_programs,
    runtime_checks,
    tiles,
    use_cases,
)
from tilewright.conformance.case import Case
from tilewright.targets.protocol import LEVELS

TITLES = {
    "0": "compilation",
    "1": "elementwise",
    "2": "tiles",
    "3": "products",
    "4": "whole language",
    "5": "concurrency",
    "R": "runtime",
    "F": "random programs",
}
DEFAULT_SEEDS = 50


class Selection(NamedTuple):
    """A part of the suite.

    Attributes:
        levels: of `LEVELS`.
        only: texts of which the name of a case must contain one; () for all cases.
        seed, seeds: the first seed and the number of the random programs.
        part, parts: every `parts`-th case, from the `part`-th on.
    """

    levels: Sequence[str] = LEVELS
    only: Sequence[str] = ()
    seed: int = 0
    seeds: int = DEFAULT_SEEDS
    part: int = 0
    parts: int = 1

    def cases(self) -> list[Case]:
        """The cases, in the order of levels."""
        found = [
            case
            for case in _all(self.seed, self.seeds)
            if case.level in self.levels
            and (not self.only or any(text in case.name for text in self.only))
        ]
        found.sort(key=lambda case: LEVELS.index(case.level))
        return found[self.part :: self.parts]


def _all(seed: int, seeds: int) -> Iterator[Case]:
    yield from protocol_checks.cases()
    yield from elementwise.cases()
    yield from tiles.cases()
    yield from products.cases()
    yield from concurrency.cases()
    yield from use_cases.cases()
    yield from runtime_checks.cases()
    yield from random_programs.cases(seed, seeds)

"""The cost of a choice of autotuning: its time over that of the fastest launch."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from benchmarks.gpu.case import Run
from benchmarks.gpu.clock import Timing
from benchmarks.tuned_choices import Choice, choose


class Sleeps:
    """A clock that knows the times."""

    def quick(self, run: Run, touched: int) -> float:
        raise NotImplementedError

    def compare(self, runs: Mapping[str, Run], touched: int) -> dict[str, Timing]:
        return {name: Timing(float(name), 0) for name in runs}


def test_search_chooses_among_the_launches() -> None:
    runs = {ms: lambda ms=ms: time.sleep(float(ms) / 1e3) for ms in ("4", "1", "9")}
    choice = choose("sleeps", runs, "cpu", Sleeps(), 0)
    assert (choice.chosen, choice.best, choice.cost) == ("1", "1", 1)
    assert choice.times == {"4": 4, "1": 1, "9": 9}


def test_cost_of_a_poor_choice() -> None:
    choice = Choice("case", "a", {"a": 12, "b": 10}, 0.5)
    assert choice.cost == pytest.approx(1.2)
    assert str(choice) == "1.200  case: a, 12.0 µs; b, 10.0 µs (of 2, 0.5 s)"

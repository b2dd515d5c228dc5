"""How close the choices of autotuning are to the fastest configuration.

python -m benchmarks.tuned_choices                        the cases of benchmarks.gpu
python -m benchmarks.tuned_choices --only matmul,softmax  those of some families
python -m benchmarks.tuned_choices --json out.json        also write all results

The launches of a case, at least three, are searched as `tilewright.autotune` does. Then all of them
are timed alternately, in several turns. The cost of a choice is its time divided by the least time;
the limit is 3 %. Run it on an idle GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.gpu import dialect, work
from benchmarks.gpu.case import SCALES, Case, Run, Setting
from benchmarks.gpu.clock import Clock, CudaClock
from benchmarks.gpu.measure import PlannedCase
from tilewright.runtime.config import Config
from tilewright.runtime.tuning.report import Progress
from tilewright.runtime.tuning.search import Search

LIMIT = 1.03
LEAST_LAUNCHES = 3
BLOCK_MS, TURNS = 10, 7


class Launches:
    """Launches by name as the subject of a search. They are compiled, and need no protection."""

    name = "case"

    def __init__(self, runs: Mapping[str, Run], device: str) -> None:
        self.runs = runs
        self.device = device

    def configs(self) -> list[Config]:
        return [Config({"launch": name}) for name in self.runs]

    def reduced(self, config: Config) -> Config:
        return config

    def compile(self, config: Config) -> None:
        return None

    def written(self, compiled: Any) -> list[Any]:
        return []

    def run(self, config: Config) -> Callable[[], Any]:
        return self.runs[config.kwargs["launch"]]


class Choice(NamedTuple):
    """What the search chose for a case, and the time of each launch.

    Attributes:
        chosen: the name of a launch.
        times: microseconds by name.
        seconds: of the search.
    """

    case: str
    chosen: str
    times: dict[str, float]
    seconds: float

    @property
    def best(self) -> str:
        return min(self.times, key=lambda name: self.times[name])

    @property
    def cost(self) -> float:
        """The time of the choice, divided by the least time."""
        return self.times[self.chosen] / self.times[self.best]

    def __str__(self) -> str:
        line = f"{self.cost:.3f}  {self.case}: {self.chosen}, {self.times[self.chosen]:.1f} µs"
        other = "" if self.chosen == self.best else f"; {self.best}, {self.times[self.best]:.1f} µs"
        return f"{line}{other} (of {len(self.times)}, {self.seconds:.1f} s)"


def choose(name: str, runs: Mapping[str, Run], device: str, clock: Clock, touched: int) -> Choice:
    """Search as autotuning does, then time everything.

    Args:
        name: of the case.
        runs: launches, compiled.
        device: of their tensors.
        clock: measures all of them.
        touched: bytes that a launch accesses.
    """
    subject = Launches(runs, device)
    begin = time.perf_counter()
    found = Search(subject).run(subject.configs(), Progress(name, len(runs), shown=False))
    seconds = time.perf_counter() - begin
    chosen = found.best.kwargs["launch"]
    times = {launch: timing.us for launch, timing in clock.compare(runs, touched).items()}
    return Choice(name, chosen, times, seconds)


def working(case: Case) -> dict[str, Run]:
    """The launches of a case that compile and run."""
    found: dict[str, Run] = {}
    for name, run in case.launches(dialect.load(case.kernels, "tilewright")).items():
        try:
            run()
        except Exception as error:
            print(f"  {name}: {type(error).__name__}", flush=True)
        else:
            found[name] = run
    torch.cuda.synchronize()
    return found


def choices(only: str, setting: Setting, until: float) -> Iterator[Choice]:
    """The choices for all cases of the selected families, until a time."""
    clock = CudaClock(BLOCK_MS, TURNS)
    for family in work.chosen(only).values():
        for name, planned in family.plan(setting).items():
            if not isinstance(planned, PlannedCase) or time.time() > until:
                continue
            case = planned.case(setting)
            runs = working(case)
            if len(runs) >= LEAST_LAUNCHES:
                title = f"{family.title}, {name}"
                yield choose(title, runs, setting.device, clock, case.bytes)
            del case, runs
            torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="families of benchmarks.gpu, comma-separated")
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--minutes", type=float, default=10, help="begin no case after these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: list[Choice] = []
    until = time.time() + 60 * options.minutes
    for choice in choices(options.only, Setting("cuda", options.scale), until):
        found.append(choice)
        print(choice, flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([choice._asdict() for choice in found]))
    over = [choice for choice in found if choice.cost > LIMIT]
    print(f"{len(found)} choices, {len(over)} over {LIMIT}")


if __name__ == "__main__":
    main()

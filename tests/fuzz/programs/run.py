"""Runs many random programs by many processes, and tells how they fail.

    python -m tests.fuzz.programs.run --first=0 --count=20000 --processes=16
    python -m tests.fuzz.programs.run --emulated --count=100     # as threads of an emulated GPU

Each failure is told once with the seeds that have it; the first program of each is made smaller
and shown whole. A process that crashes is replaced, and its program counts as failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.fuzz.programs.check import check, check_emulated, failure
from tests.fuzz.programs.program import random_program
from tests.fuzz.programs.shrink import shrink

SHRINKING = 60.0  # seconds for each kind of failure


@dataclass
class Shard:
    """A process that runs some of the programs, and what it told."""

    seeds: range
    emulated: bool
    process: subprocess.Popen[str] | None = None
    done: int = 0
    failures: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def start(self) -> None:
        seeds = self.seeds[self.done :]
        command = [sys.executable, "-m", __spec__.name, "--worker", f"--first={seeds.start}"]
        command += [f"--count={len(seeds)}", f"--step={seeds.step}"]
        command += ["--emulated"] * self.emulated
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def finish(self) -> None:
        """Read what the process tells until it is through, and start it again if it crashes."""
        while self.done < len(self.seeds):
            self.start()
            assert self.process is not None
            assert self.process.stdout is not None
            for line in self.process.stdout:
                seed, _, found = line.rstrip("\n").partition(" ")
                assert int(seed) == self.seeds[self.done]
                self.done += 1
                if found:
                    self.failures[found].append(int(seed))
            if self.process.wait() == 0:
                return
            self.failures[f"the process ended with {self.process.returncode}"].append(
                self.seeds[self.done]
            )
            self.done += 1


def work(seeds: range, check: Callable[[str], None]) -> None:
    """Tell of each seed how its program fails, or nothing."""
    warnings.simplefilter("error")
    for seed in seeds:
        print(seed, failure(random_program(seed), check) or "", flush=True)


def _gathered(shards: list[Shard]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for shard in shards:
        for kind, seeds in shard.failures.items():
            found[kind] += seeds
    return {kind: sorted(seeds) for kind, seeds in found.items()}


def run(seeds: range, processes: int, emulated: bool) -> dict[str, list[int]]:
    """The seeds of the programs that fail, by how they do."""
    shards = [Shard(seeds[i::processes], emulated) for i in range(processes)]
    with ThreadPoolExecutor(processes) as threads:
        list(threads.map(Shard.finish, shards))
    return _gathered(shards)


def main() -> int:
    parser = argparse.ArgumentParser(description="runs random programs")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--emulated", action="store_true", help="on an emulated GPU, not the CPU")
    parser.add_argument("--no-shrink", action="store_true", help="show no programs")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.count * given.step, given.step)
    chosen = check_emulated if given.emulated else check
    if given.worker:
        work(seeds, chosen)
        return 0
    begin = time.monotonic()
    failures = run(seeds, given.processes, given.emulated)
    seconds = time.monotonic() - begin
    wrong = sum(map(len, failures.values()))
    print(f"{len(seeds)} programs in {seconds:.0f} s, {wrong} fail")
    for kind, found in failures.items():
        print(f"\n{len(found)} times {kind}\n  seeds {found[:10]}")
        if not given.no_shrink and not kind.startswith("the process"):
            print(
                shrink(
                    random_program(found[0]), lambda t, k=kind: failure(t, chosen) == k, SHRINKING
                )
            )
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())

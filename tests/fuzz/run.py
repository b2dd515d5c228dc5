"""Runs many random programs in many processes; reports failures and coverage.

    python -m tests.fuzz.run --programs=50000 --programs-emulated=10000 --views=250 \\
        --processes=32 --minutes=10 --output=summary.txt

There is one option for each of `tests.fuzz.checks.CHECKS`: how many programs to check so, each
with a seed of its own from ``--first`` on. Each kind of failure is listed once with its seeds; the
first program of each is reduced and shown whole. A process that crashes, or that takes too long for
one program, is replaced, and the program counts as failed.

The summary is of the programs that ran. So a bar may be run in parts, each with seeds of its own,
and each ended by ``--minutes`` or by SIGTERM: their counts add up. The file has the summary so far
while programs run. Each new kind of failure is also printed to standard error at once.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.fuzz.checks import CHECKS, TEXTS, VIEWS
from tests.fuzz.programs.check import failure, failure_of
from tests.fuzz.programs.program import classes
from tests.fuzz.programs.shrink import shrink
from tilewright.base.diagnostics import CompilationError
from tilewright.ir.define import REGISTRY

SHRINKING = 30.0  # seconds for each kind of failure
PROGRAM_SECONDS = 60.0  # that one program may take
SHOWN_SEEDS = 50  # of each kind of failure
SUMMARY_SECONDS = 20.0  # between two versions of the file with the summary
RENEWED = 400  # programs that one process runs: what it keeps of each adds up

STOPPING = (signal.SIGTERM, signal.SIGINT)

Task = tuple[str, int]  # a check and a seed


@dataclass
class Summary:
    """What the programs that ran showed.

    Attributes:
        failures: of each way to fail, the programs that did.
        reached: how many programs reached each production and op.
    """

    ran: Counter[str] = field(default_factory=Counter[str])
    failures: dict[str, list[Task]] = field(default_factory=lambda: defaultdict(list))
    reached: Counter[str] = field(default_factory=Counter[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, task: Task, failed: str, reached: Sequence[str] = ()) -> None:
        with self.lock:
            self.ran[task[0]] += 1
            self.reached.update(reached)
            if failed:
                if failed not in self.failures:
                    print(f"{task[0]} {task[1]}: {failed}", file=sys.stderr, flush=True)
                self.failures[failed].append(task)

    def count(self, *prefixes: str) -> int:
        return sum(len(t) for kind, t in self.failures.items() if kind.startswith(prefixes))


class Worker:
    """A process that checks one program after the other."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __spec__.name, "--worker"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.selector = selectors.DefaultSelector()
        assert self.process.stdout is not None
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.done = 0

    def check(self, task: Task) -> dict[str, Any] | str:
        """What the process answers, or how it failed to."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.done += 1
        try:
            self.process.stdin.write(f"{task[0]} {task[1]}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return f"Crash: the process ended with {_name_of(self.process.wait())} before this"
        if not self.selector.select(PROGRAM_SECONDS):
            self.end()
            return f"Crash: no answer in {PROGRAM_SECONDS:.0f} s"
        line = self.process.stdout.readline()
        if line.endswith("\n"):
            return json.loads(line)
        return f"Crash: the process ended with {_name_of(self.process.wait())}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.selector.close()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        with suppress(BrokenPipeError):  # of what it did not read
            self.process.stdin.close()


def _name_of(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


class Run:
    """Programs that several processes share."""

    def __init__(self, tasks: Sequence[Task], until: float) -> None:
        self.summary = Summary()
        self.until = until
        self.stopped = False
        self.tasks: Iterator[Task] = iter(tasks)
        self.lock = threading.Lock()
        self.workers: dict[int, Worker | None] = {}  # by the number of a thread

    def next(self) -> Task | None:
        with self.lock:
            over = self.stopped or time.monotonic() > self.until
            return None if over else next(self.tasks, None)

    def stop(self, *_: object) -> None:
        """Start no more programs, and end those that run, which do not count; a signal handler."""
        self.stopped = True
        for worker in list(self.workers.values()):
            if worker is not None:
                worker.process.kill()

    def drive(self, number: int) -> None:
        """Run a process, and another in its place when it has failed or grown old."""
        worker: Worker | None = None
        while (task := self.next()) is not None:
            worker = self.workers[number] = worker or Worker()
            found = worker.check(task)
            if self.stopped:
                break
            if isinstance(found, str):
                self.summary.add(task, found)
            else:
                self.summary.add(task, found["failed"], found["reached"])
            if isinstance(found, str) or worker.done == RENEWED:
                worker.end()
                worker = None
        if worker is not None:
            worker.end()


def work() -> None:
    """Check the programs that standard input names, and answer how each failed."""
    for name in STOPPING:
        signal.signal(name, signal.SIG_IGN)  # the process that started this one ends it
    warnings.simplefilter("error")
    answers, sys.stdout = sys.stdout, sys.stderr  # what a program prints is no answer
    for line in sys.stdin:
        name, seed = line.split()
        failed, reached = "", set[str]()
        try:
            reached = CHECKS[name](int(seed))
        except Exception as error:
            failed = failure_of(error)
        print(json.dumps({"failed": failed, "reached": sorted(reached)}), file=answers, flush=True)


# -- the summary ----------------------------------------------------------------------------------


def _counts(summary: Summary, requested: int, seconds: float) -> Iterator[str]:
    ran = sum(summary.ran.values())
    for name, count in sorted(summary.ran.items()):
        each = f", {count * VIEWS} views" if name == "views" else ""
        yield f"{name}: {count} programs{each}"
    yield f"{ran} of {requested} programs in {seconds:.0f} s"
    differences, crashes = summary.count("Difference"), summary.count("Crash")
    rejections = summary.count(CompilationError.__name__)
    wrong = sum(map(len, summary.failures.values()))
    yield (f"differences: {differences}, crashes: {crashes}, rejections: {rejections}, "
           f"other errors: {wrong - differences - crashes - rejections}")  # fmt: skip


def _reached(summary: Summary) -> Iterator[str]:
    """What of the generators and the op set the programs consist of."""
    ops = {name for name in REGISTRY if not name.startswith(("gpu.", "nvidia."))}
    for what, all in (("classes", classes()), ("ops", ops)):
        never = sorted(all - summary.reached.keys())
        yield f"{what} reached: {len(all) - len(never)} of {len(all)}; never: {', '.join(never)}"
    seldom = sorted((n, name) for name, n in summary.reached.items())
    yield "least often: " + ", ".join(f"{name} {n}" for n, name in seldom[:12])
    others = [f"{name} {n}" for n, name in seldom if name not in classes() | ops]
    yield f"others reached, {len(others)}: {', '.join(others)}"


def _failures(summary: Summary) -> Iterator[str]:
    for kind, tasks in summary.failures.items():
        yield f"\n{len(tasks)} times {kind}"
        yield "  " + ", ".join(f"{name} {seed}" for name, seed in sorted(tasks)[:SHOWN_SEEDS])


def _smallest(summary: Summary) -> Iterator[str]:
    """Of each kind of failure a program, reduced."""
    for kind, tasks in summary.failures.items():
        name, seed = min(tasks)
        if name in TEXTS and not kind.startswith("Crash"):
            program, check = TEXTS[name]
            yield f"\n{kind}"
            yield _reduced(program(seed), check, kind)


def _reduced(program: str, check: Callable[[str], object], kind: str) -> str:
    return shrink(program, lambda text: failure(text, check) == kind, SHRINKING)


def _tasks(counts: dict[str, int], first: int) -> list[Task]:
    """The programs, each with a seed of its own, in an order that has some of each check early."""
    placed: list[tuple[float, Task]] = []
    for name, count in counts.items():
        placed += [(i / count, (name, first + i)) for i in range(count)]
        first += count
    return [task for _, task in sorted(placed)]


def _print(lines: list[str], output: Path | None, mode: str) -> None:
    """To standard output, and to a file."""
    print("\n".join(lines), flush=True)
    _write(lines, output, mode)


def _write(lines: list[str], output: Path | None, mode: str) -> None:
    if output is not None:
        with output.open(mode, encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="runs random programs")
    for name in CHECKS:
        parser.add_argument(f"--{name}", type=int, default=0, metavar="N", help="how many of them")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0, help="start no program after these")
    parser.add_argument("--output", type=Path, help="a file for the summary as well")
    parser.add_argument("--no-shrink", action="store_true", help="show no programs")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return 0
    counts = {name: getattr(given, name.replace("-", "_")) for name in CHECKS}
    tasks = _tasks(counts, given.first)
    begin = time.monotonic()
    run = Run(tasks, begin + 60 * given.minutes)
    for name in STOPPING:
        signal.signal(name, run.stop)
    summary = run.summary

    def report() -> list[str]:
        with summary.lock:
            counts = _counts(summary, len(tasks), time.monotonic() - begin)
            return [*counts, *_reached(summary), *_failures(summary)]

    with TemporaryDirectory() as cache, ThreadPoolExecutor(given.processes) as threads:
        os.environ["TILEWRIGHT_CACHE_DIR"] = cache
        driven = [threads.submit(run.drive, number) for number in range(given.processes)]
        while wait(driven, SUMMARY_SECONDS).not_done:
            _write(report(), given.output, "w")
        for thread in driven:
            thread.result()
    _print(report(), given.output, "w")
    if not given.no_shrink and not run.stopped:
        for name in STOPPING:
            signal.signal(name, signal.SIG_DFL)
        for text in _smallest(summary):
            _print([text], given.output, "a")
    return 1 if summary.failures or sum(summary.ran.values()) < len(tasks) else 0


if __name__ == "__main__":
    raise SystemExit(main())

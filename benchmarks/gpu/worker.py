"""The measuring process: runs case after case, and saves each result immediately.

It may crash or be killed at any time, due to an illegal access or an infinite loop in a kernel:
`supervisor` then starts another, which continues with the next case.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Timer
from time import time
from typing import Any

import torch

import tilewright
from benchmarks.gpu import work
from benchmarks.gpu.case import Setting
from benchmarks.gpu.clock import CudaClock, copy_bandwidth
from benchmarks.gpu.measure import Bench, DeviceLost, Family, Planned
from benchmarks.gpu.options import CASE_SECONDS, DEVICE_LOST, Options
from benchmarks.gpu.report import line
from benchmarks.gpu.results import Outcome, Results, Row, why

BLOCKS = {"check": (1, 1), "quick": (3, 3), "full": (10, 6)}
"""By scale: milliseconds of a contestant's turn, and the number of turns."""


def machine(device: str) -> dict[str, Any]:
    """The hardware and software that the results depend on."""
    found = {
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "versions": f"tilewright {tilewright.__version__}, Triton {_triton_version()}, "
        f"torch {torch.__version__}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": platform.processor() or platform.machine(),
    }
    if device == "cuda":
        about = torch.cuda.get_device_properties(0)
        found["device"] = f"{about.name}, {about.multi_processor_count} processors"
        found["versions"] += f", CUDA {torch.version.cuda}"
    return found


def _triton_version() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return "not installed"


class Worker:
    """Runs the remaining cases.

    Args:
        options: see `Options`.
        families: workloads by name.
        results: results of earlier processes.
    """

    def __init__(self, options: Options, families: Mapping[str, Family], results: Results) -> None:
        self.options = options
        self.families = families
        self.results = results
        self.path = Path(options.path)
        self.setting = Setting(options.device, options.scale)

    def run(self) -> None:
        """Measure each case that has no row yet.

        Raises:
            DeviceLost: the device is unusable in this process.
        """
        clock = None
        if self.options.timed:
            clock = CudaClock(*BLOCKS[self.options.scale])
            if "copy_gb_s" not in self.results.machine:
                self.results.machine["copy_gb_s"] = copy_bandwidth(clock)
        for family, name, planned in self._left():
            row = Row(family.title, name)
            bench = Bench(
                self.setting, self.options.modules, clock, lambda who, row=row: self._mark(row, who)
            )
            with self._kept(row):
                planned(bench, row)
            if self.options.device == "cuda":
                torch.cuda.empty_cache()

    def _left(self) -> Iterator[tuple[Family, str, Planned]]:
        """The cases to run; after the time limit, the others are recorded as skipped."""
        done = {row.key for row in self.results.rows}
        self.results.left_out = []
        for family in self.families.values():
            if not (self.options.timed or family.check):
                continue
            for name, planned in family.plan(self.setting).items():
                if (family.title, name) in done:
                    continue
                if self.options.until is not None and time() > self.options.until:
                    self.results.left_out.append(f"{family.title}, {name}")
                else:
                    yield family, name, planned
        self.results.save(self.path)

    def _mark(self, row: Row, contestant: str) -> None:
        """Record the current contestant, for the report if it crashes this process."""
        self.results.running = row.family, row.case, contestant
        self.results.save(self.path)

    @contextmanager
    def _kept(self, row: Row) -> Generator[None]:
        """Save the row even if the case fails; a case that hangs is killed after a timeout."""
        self._mark(row, "case")
        watchdog = Timer(CASE_SECONDS, os._exit, (1,))
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        except DeviceLost:
            raise
        except Exception as error:
            row.outcomes["case"] = Outcome(failures={"": why(error)})
        finally:
            watchdog.cancel()
            self.results.running = None
            self.results.rows.append(row)
            self.results.save(self.path)
            print(line(row, self.results.machine.get("copy_gb_s")), flush=True)


def main() -> int:
    options = Options.parse(sys.argv[1])
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    path = Path(options.path)
    results = Results.load(path) if path.exists() else Results()
    results.machine = {**machine(options.device), **results.machine}
    try:
        Worker(options, work.chosen(options.only), results).run()
    except DeviceLost:
        return DEVICE_LOST
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # finalizers may hang after the device was lost

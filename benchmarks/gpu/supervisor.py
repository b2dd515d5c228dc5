"""Starts workers, one after the other, until all cases are done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks import ROOT
from benchmarks.gpu.options import CASE_SECONDS, DEVICE_LOST, Options
from benchmarks.gpu.results import Outcome, Results, Row

WORKER = "benchmarks.gpu.worker"


def run_all(options: Options, worker: str = WORKER) -> Results:
    """Measure all cases that have no row in the file of results.

    A case in which a worker crashes gets a row with the failure, and a new worker continues with
    the next case.

    Args:
        options: the workers' options.
        worker: the module to run, with the options as its argument.

    Raises:
        SystemExit: a worker ended before its first case.
    """
    path = Path(options.path)
    while True:
        command = [sys.executable, "-m", worker, options.text()]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        results = Results.load(path) if path.exists() else Results()
        if status == 0:
            return results
        if results.running is not None:
            _keep_interrupted(results, status)
            results.save(path)
        elif status != DEVICE_LOST:  # in that case the worker has saved the row itself
            raise SystemExit(f"{worker} ended with status {status} before its first case")


def _keep_interrupted(results: Results, status: int) -> None:
    """Add a row for the case in which a worker crashed."""
    assert results.running is not None
    family, case, contestant = results.running
    reason = f"the process ended here with status {status} (after {CASE_SECONDS} s it is ended)"
    outcome = Outcome(failures={"": reason})
    results.rows.append(Row(family, case, outcomes={contestant: outcome}))
    results.running = None
    print(f"{family}, {case}: {contestant}: {reason}", flush=True)

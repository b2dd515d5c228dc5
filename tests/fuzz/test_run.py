"""`python -m tests.fuzz.run`: programs in separate processes, and the summary."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path

import pytest

from tests.fuzz import run as runner
from tests.fuzz.checks import CHECKS
from tests.fuzz.run import Run, Worker

ROOT = Path(__file__).parents[2]
ONLY_HERE = ("programs-cross", "kernels-amd")  # no other test runs these checks


def test_checks_run_and_are_in_the_summary(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With --all-cases each of them; otherwise those that no other test runs."""
    chosen = CHECKS if request.config.getoption("--all-cases") else ONLY_HERE
    output = tmp_path / "summary.txt"
    command = [sys.executable, "-m", "tests.fuzz.run", "--processes=1", f"--output={output}"]
    command += [f"--{name}=1" for name in chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = output.read_text()
    assert summary == done.stdout
    for name in chosen:
        assert f"{name}: 1 programs" in summary
    assert "differences: 0, crashes: 0, rejections: 0, other errors: 0" in summary


def test_a_crashed_process_is_a_failure_of_the_program() -> None:
    worker = Worker()
    answer = worker.check(("views", 0))
    assert isinstance(answer, dict)
    assert answer["failed"] == ""
    assert "tile.reshape" in answer["reached"]
    worker.process.kill()
    found = worker.check(("views", 2))
    assert isinstance(found, str)
    assert found.startswith("Crash: the process ended with SIGKILL")
    worker.end()


def test_a_stopped_run_counts_what_ran() -> None:
    """As SIGTERM stops one: the programs that run are ended at once, and do not count."""
    run = Run([("views", seed) for seed in range(100_000)], until=inf)
    with ThreadPoolExecutor(2) as threads:
        driven = [threads.submit(run.drive, number) for number in range(2)]
        while not run.summary.ran["views"] and not any(d.done() for d in driven):
            time.sleep(0.05)
        run.stop()
        for thread in driven:
            thread.result()
    assert 0 < run.summary.ran["views"] < 100_000
    assert not run.summary.failures
    assert all(worker.process.returncode is not None for worker in run.workers.values() if worker)


def test_the_file_has_the_summary_while_programs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "summary.txt"
    written: list[str] = []
    write = runner._write

    def record(lines: list[str], path: Path | None, mode: str) -> None:
        write(lines, path, mode)
        written.append(output.read_text())

    monkeypatch.setattr(runner, "_write", record)
    monkeypatch.setattr(runner, "SUMMARY_SECONDS", 0.1)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))  # which it replaces
    command = ["run", "--derivatives-nested=1000", "--processes=1", "--minutes=0.1"]
    monkeypatch.setattr(sys, "argv", [*command, f"--output={output}"])
    assert runner.main() == 1  # not all of them ran
    assert len(written) > 2
    assert written[0].startswith("0 of 1000 programs")
    assert "others reached, " in written[-1]
    assert written[-1] == output.read_text()

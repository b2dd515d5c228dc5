"""Compiles torch's operators with tilewright and reports those that torch's C++ back end runs.

    python -m tests.op_db.run --output=op_db.jsonl             all cases; hours on one core
    python -m tests.op_db.run --part=3/20                      every 20th, from the third on
    python -m tests.op_db.run --types=float32 --only=softmax,nn.functional
    python -m tests.op_db.run --list=cases.txt                 the cases in a file, one a line

Cases run one after the other in a process, which is replaced if it crashes or takes too long. A
case that does not give the results of eager execution is repeated with the C++ back end; without
one (no C++ compiler), eager execution is the only reference. The exit status is 1 if a case fails
that the C++ back end passes. `--output` has a line of JSON for each case; cases that the file
already has are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.op_db.cases import TYPES, case_names, check

CASE_SECONDS = 180.0
"""That one case may take with one back end."""

RENEWED = 150
"""Cases that one process runs: torch keeps something of each."""

BACKENDS = ("triton", "cpp")

Row = dict[str, Any]


class Worker:
    """A process that checks one case after the other.

    Args:
        command: reads lines of a back end and a case, and answers each with a row.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.done = 0

    def check(self, case: str, backend: str) -> Row:
        """The outcome of a case, as a row."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.done += 1
        start = time.monotonic()
        with suppress(BrokenPipeError):  # the process has ended: so does its output
            self.process.stdin.write(f"{backend} {case}\n".encode())
            self.process.stdin.flush()
        if not self.selector.select(CASE_SECONDS):
            self.process.kill()
            self.process.wait()
            return {"kind": "failed", "detail": f"no answer in {CASE_SECONDS:.0f} s"}
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            return {"kind": "failed", "detail": f"exit status {self.process.wait()}"}
        return {**json.loads(line), "seconds": round(time.monotonic() - start, 2)}

    def end(self) -> None:
        self.selector.close()
        with suppress(BrokenPipeError), self.process:
            self.process.kill()


class Workers:
    """A worker, replaced when it has ended or has run many cases."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self.worker = Worker(command)

    def check(self, case: str, backend: str) -> Row:
        if self.worker.done >= RENEWED or self.worker.process.poll() is not None:
            self.worker.end()
            self.worker = Worker(self.command)
        return self.worker.check(case, backend)


def compare(case: str, workers: Workers) -> Row:
    """The outcome of a case, and with the C++ back end if it is not as in eager execution."""
    row = {"case": case, **workers.check(case, "triton")}
    if row["kind"] in ("different", "failed"):
        row["cpp"] = workers.check(case, "cpp")
    return row


def failed(row: Row) -> bool:
    """Whether a case fails that passes with the C++ back end."""
    return row["kind"] in ("different", "failed") and row["cpp"]["kind"] == "same"


def _serve(samples: int, seed: int) -> None:
    """Check the cases whose names arrive on standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what operators print
    os.environ["TORCH_WARM_POOL"] = "0"  # no compile workers
    import torch

    import tilewright

    tilewright.torch.enable(cpu=False)
    from torch._inductor import config

    config.compile_threads = 1
    config.fx_graph_cache = False
    config.cpp_cache_precompile_headers = False
    torch.set_num_threads(1)
    for line in sys.stdin:
        backend, _, case = line.strip().partition(" ")
        answers.write(json.dumps(asdict(check(case, backend, samples, seed))) + "\n")
        answers.flush()


def _selected(args: argparse.Namespace) -> Sequence[str]:
    if args.list:
        return args.list.read_text().split()
    part, _, parts = args.part.partition("/")
    words = args.only.split(",")
    cases = [case for case in case_names(args.types.split(",")) if any(w in case for w in words)]
    return cases[int(part) - 1 :: int(parts)]


def _known(path: Path | None) -> dict[str, Row]:
    if path is None or not path.exists():
        return {}
    return {row["case"]: row for row in map(json.loads, path.read_text().splitlines())}


def report(rows: Sequence[Row]) -> None:
    """Print a line for each case that fails, and counts."""
    for row in rows:
        if row["kind"] in ("different", "failed"):
            cpp = row["cpp"]
            print(f"{row['case']}: {row['kind']}: {row['detail']}")
            print(f"    C++: {cpp['kind']}{': ' * bool(cpp['detail'])}{cpp['detail'][:160]}")
    counts = Counter(row["kind"] for row in rows)
    kernels = sum(bool(row.get("kernels")) for row in rows)
    parts = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"{len(rows)} cases: {parts}; {kernels} have kernels")
    print(f"{sum(map(failed, rows))} fail that pass with the C++ back end")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--only", default="", help="parts of names, with commas between")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--list", type=Path)
    parser.add_argument("--samples", type=int, default=2, help="of each case")
    parser.add_argument("--seed", type=int, default=0, help="which samples")
    parser.add_argument("--minutes", type=float, default=1e9, help="no case begins after these")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        _serve(args.samples, args.seed)
        return 0
    end = time.monotonic() + 60 * args.minutes
    command = [sys.executable, "-m", "tests.op_db.run", "--worker"]
    command += [f"--samples={args.samples}", f"--seed={args.seed}"]
    workers, rows, known = Workers(command), [], _known(args.output)
    for case in _selected(args):
        if case in known:
            rows.append(known[case])
        elif time.monotonic() < end:
            rows.append(compare(case, workers))
            if args.output:
                with args.output.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    workers.worker.end()
    report(rows)
    return int(any(map(failed, rows)))


if __name__ == "__main__":
    sys.exit(main())

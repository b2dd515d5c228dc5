"""The child process of the suite: runs the cases whose names it reads, and writes the outcomes.

A line of standard input is the name of a case; the answer is a line of JSON. Output of kernels and
libraries goes to standard error, so that it cannot be mistaken for an answer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from tilewright.conformance.case import Machine
from tilewright.conformance.execution import machine_of, run_case
from tilewright.conformance.suite import Selection


def serve(target: str, device: str, selection: Sequence[object]) -> None:
    """Answer for the machine that `machine_of` returns."""
    answer(machine_of(target, device), selection)


def answer(machine: Machine, selection: Sequence[object]) -> None:
    """Run cases on a machine until the end of the input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    where = machine.device if machine.execute is None else "an emulator"
    cases = {case.name: case for case in Selection(*selection).cases()}  # pyright: ignore[reportArgumentType]
    print(json.dumps({"ready": where}), file=answers, flush=True)
    for line in sys.stdin:
        outcome = run_case(cases[line.rstrip("\n")], machine)
        print(json.dumps(outcome.plain()), file=answers, flush=True)

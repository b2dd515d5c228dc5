"""A compile worker: a process that receives tile IR and returns code.

It is started by `compiler/workers.py` and imports nothing from the program that it serves, in
particular not its main module. It exits at the end of its input or after an idle timeout.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
from typing import Any

from tilewright.base import knobs
from tilewright.compiler.build import lower
from tilewright.compiler.job import Job, receive, send
from tilewright.compiler.pipeline import pipeline
from tilewright.ir.parser import parse_module
from tilewright.targets.protocol import Lowered
from tilewright.targets.registry import target as find_target

IDLE_SECONDS = 60.0  # without a job, after which the process ends


def run(job: Job) -> Lowered:
    """Compile: the tile passes and the target."""
    for name, values in job.settings.items():
        group = knobs.GROUPS[name].reset()
        for knob, value in values.items():
            setattr(group, knob, value)
    module = parse_module(job.text, "")
    module.entry.arg_names = job.arg_names
    target = find_target(job.device)
    return lower(module, target, job.options, pipeline(target))


def serve() -> None:
    """Serve jobs from standard input. Each reply on standard output is (success, result or error),
    with None for an error that cannot be pickled."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the parent
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep stray prints out of the replies
    jobs = os.fdopen(0, "rb", buffering=0, closefd=False)
    send(answers, os.getpid())
    while select.select([jobs], [], [], IDLE_SECONDS)[0]:
        try:
            job = receive(_Unbuffered(jobs))
        except EOFError:
            return
        send(answers, _answer(job))


class _Unbuffered:
    """Reads exactly the requested bytes from a pipe, so that `select` detects remaining ones."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def read(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = self._source.read(count)
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _answer(job: Job) -> tuple[bool, Any]:
    try:
        return True, run(job)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return False, None
        return False, error

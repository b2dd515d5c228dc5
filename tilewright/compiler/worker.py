"""A process that compiles for another one: tile IR comes in, code goes out.

It is started by `compiler/workers.py` and knows nothing of the program that it works for: no module
of that program is imported, and its main module least of all. It ends when its input does, or when
nothing has come for a while.
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

IDLE_SECONDS = 60.0


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
    """Answer jobs from standard input on standard output: (whether it succeeded, the result or the
    error), None for an error that cannot be sent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses Ctrl-C means the program
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what prints by mistake is no answer
    jobs = os.fdopen(0, "rb", buffering=0, closefd=False)
    send(answers, os.getpid())
    while select.select([jobs], [], [], IDLE_SECONDS)[0]:
        try:
            job = receive(_Unbuffered(jobs))
        except EOFError:
            return
        send(answers, _answer(job))


class _Unbuffered:
    """Reads whole counts of bytes from a pipe, and not one more, so that `select` sees the rest."""

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

"""Worker processes, in each of which the module `triton` is another compiler, and their client.

Requests and responses are lines of JSON on the worker's standard input and output, such as
``{"do": "check", …}``. Any other output of a worker is redirected to its standard error.
"""

from __future__ import annotations

import gc
import json
import os
import select
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TextIO

import torch

from benchmarks import ROOT, child_environment

OURS, TRITON = "tilewright", "triton"
"""What the module `triton` is in a worker."""


class Contestant:
    """The client of a worker, which is started by the first request, and again after a crash or a
    timeout.

    Args:
        module: the worker's module, which calls `serve`.
        arguments: of its command line.
        log: receives the output of the worker and its libraries; None for the standard error.
        settings: variables of its environment.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], log: TextIO | None = None, **settings: str
    ) -> None:
        self.command = [sys.executable, "-m", module, *arguments]
        self._log = log
        self._environment = child_environment(**settings)
        self._process: subprocess.Popen[str] | None = None

    def send(self, do: str, **request: Any) -> None:
        """Send a request; `receive` returns the response."""
        if self._process is None:
            self._process = subprocess.Popen(
                self.command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._log, text=True, env=self._environment,
            )  # fmt: skip
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the worker has ended: `receive` reports it
            print(json.dumps({"do": do, **request}), file=self._process.stdin, flush=True)

    def receive(self, patience: float) -> dict[str, Any]:
        """The response; has the key "failure" if there is none within `patience` seconds."""
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], patience)
        line = self._process.stdout.readline() if ready else ""
        if line:
            answer = json.loads(line)
            if answer.get("lost"):
                self.end()
            return answer
        if not ready:
            self._process.kill()
        status = self._process.wait()
        self.end()
        if not ready:
            return {"failure": f"no answer within {patience:.0f} s"}
        return {"failure": f"the process ended with status {status}"}

    def ask(self, patience: float, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and receive its response."""
        self.send(do, **request)
        return self.receive(patience)

    def end(self) -> None:
        """End the worker, if there is one."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process = None


def serve(make: Callable[[], Any]) -> None:
    """Serve the requests of a `Contestant` until its end of the pipe is closed.

    Args:
        make: creates the object whose methods the requests name; its `drop` frees what an earlier
            request has prepared. An exception in it is the answer to every request.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            worker = worker or make()
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:  # any failure is reported in the table
            traceback.print_exc()
            if worker is not None:
                worker.drop()
            answer = _failure(error)
        print(json.dumps(answer), file=answers, flush=True)


def free_memory() -> None:
    """Free what a worker no longer refers to, on the GPU, too."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _failure(error: Exception) -> dict[str, Any]:
    """The response for an exception; `lost`: the GPU is unusable in this process."""
    lost = False
    if torch.cuda.is_available():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            lost = True
    text = f"{type(error).__name__}: {error}".strip().splitlines()
    return {"failure": " ".join(text)[:400], "lost": lost}

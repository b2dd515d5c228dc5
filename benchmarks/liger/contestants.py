"""The client of a worker: sends requests, and restarts the worker after a crash or a timeout."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from benchmarks import ROOT

WORKER = "benchmarks.liger.worker"


class Contestant:
    """A worker process, which is started by the first request.

    Args:
        name: the compiler that `triton` refers to in it.
        path: the folder that contains `liger_kernel`, "" if it is installed.
        log: receives the output of the worker and its libraries; None for the standard error.
    """

    def __init__(self, name: str, path: str, log: TextIO | None = None) -> None:
        self.command = [sys.executable, "-m", WORKER, name, path and str(Path(path).resolve())]
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def send(self, do: str, **request: Any) -> None:
        """Send a request; `receive` returns the response."""
        if self._process is None:
            self._process = subprocess.Popen(
                self.command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._log, text=True,
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

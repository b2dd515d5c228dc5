"""The client of the process in which Triton compiles (`worker.py`)."""

from __future__ import annotations

import atexit
import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.base.diagnostics import Loc, TilewrightError
from tilewright.base.locks import Lock
from tilewright.base.plug_ins import PlugInError
from tilewright.compat import search_path

TESTED = ("3.6", "3.7")
"""The versions of Triton that the tests cover."""

PYTHON = "TILEWRIGHT_TRITON_PYTHON"
"""The environment variable that names the Python interpreter with Triton; default: this one."""

UNTESTED = "TILEWRIGHT_TRITON_UNTESTED"
"""The environment variable that permits other versions of Triton, if it is 1."""

WORKER = Path(__file__).with_name("worker.py")
_DIAGNOSTIC = re.compile(r'^(?:loc\()?"?([^"\n]*?)"?:(\d+):(\d+)\)?: error: (.*)$', re.MULTILINE)

Request = Mapping[str, Any]


class TritonMissingError(PlugInError):
    """There is no Triton, or one of a version that is not tested."""


class TritonFailure(TilewrightError):
    """A back end of Triton rejects a kernel.

    Attributes:
        loc: the place in the kernel's file, if it is known.
    """

    def __init__(self, message: str, loc: Loc | None = None) -> None:
        super().__init__(message)
        self.loc = loc


def python() -> str:
    """The Python interpreter of the environment that has Triton."""
    return os.environ.get(PYTHON) or sys.executable


class Client:
    """The process, which is started by the first request, and restarted after it has ended.

    Requests of several threads are answered one after another.
    """

    def __init__(self, python: str) -> None:
        self._python = python
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def ask(self, request: Request) -> dict[str, Any]:
        """The answer to a request of `worker.py`.

        Raises:
            TritonFailure: the request failed, or ended the process.
        """
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:
                self._process = None
                status = process.wait()
                self._close(process)
                raise TritonFailure(f"the process of Triton ended with status {status}")
        answer = json.loads(line)
        if "error" in answer:
            raise _failure(answer["error"], answer["log"])
        return answer

    def _running(self) -> subprocess.Popen[str]:
        # A child after a fork must not share the pipes with its parent.
        if self._process is None or self._owner != os.getpid():
            self._process = self._started()
            self._owner = os.getpid()
            atexit.register(self.close)
        return self._process

    def _started(self) -> subprocess.Popen[str]:
        code = f"exec(compile(open({str(WORKER)!r}).read(), {str(WORKER)!r}, 'exec'))"
        own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = [entry for entry in own if entry and entry != search_path()]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}
        return subprocess.Popen(
            [self._python, "-c", code], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def close(self) -> None:
        """End the process."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None and self._owner == os.getpid():
                self._close(process)
                process.wait()

    @staticmethod
    def _close(process: subprocess.Popen[str]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _failure(error: str, log: str) -> TritonFailure:
    """The error of a rejected kernel: the first diagnostic of MLIR, if there is one."""
    found = _DIAGNOSTIC.search(log)
    if found is None:
        last = log.strip().splitlines()[-1:]
        return TritonFailure("\n".join([f"Triton: {error}", *last]))
    file, line, column, message = found.groups()
    return TritonFailure(f"Triton: {message}", Loc(file, int(line), int(column)))


@cache
def client() -> Client:
    """The process of this one, after a check of Triton's version.

    Raises:
        TritonMissingError: there is no Triton, or one of a version that is not tested.
    """
    made = Client(python())
    version = version_of(made)
    if _short(version) not in TESTED and os.environ.get(UNTESTED) != "1":
        raise TritonMissingError(
            f"Triton {version} of {python()} is not one of the versions that the bridge is tested "
            f"with, {' and '.join(TESTED)}. Install one of those, or set {UNTESTED}=1 to use it."
        )
    return made


def _short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def version_of(made: Client) -> str:
    """The version of Triton.

    Raises:
        TritonMissingError: there is none.
    """
    try:
        return made.ask({"what": "version"})["version"]
    except (TritonFailure, OSError) as error:
        raise TritonMissingError(
            f"{python()} has no Triton ({error}). Install it there (pip install triton), or name "
            f"another interpreter by {PYTHON}."
        ) from error


def stage_of(encoded: Mapping[str, str]) -> str | bytes:
    """A stage as the worker sends it."""
    return base64.b64decode(encoded["base64"]) if "base64" in encoded else encoded["text"]

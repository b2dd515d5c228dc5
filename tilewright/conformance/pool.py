"""Runs the cases of the suite in child processes, so that a hang or a crash is an outcome."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.child import python_command, signal_name
from tilewright.conformance.case import Case
from tilewright.conformance.execution import FAILED, Outcome
from tilewright.conformance.suite import Selection

START_SECONDS = 120.0
WORKER = "tilewright.conformance.worker"  # the module whose function `serve` a child process calls

Report = Callable[[Case, Outcome], None]


class StartError(RuntimeError):
    """The target cannot be used at all. The message is that of the child process."""


class _Worker:
    """A child process. A thread reads its answers, so that waiting for one can time out."""

    def __init__(self, module: str, target: str, device: str, selection: Selection) -> None:
        given = json.dumps([target, device, list(selection)])
        code = f"import json; serve(*json.loads({given!r}))"
        code = f"from {module} import serve; {code}"
        self._process = subprocess.Popen(
            python_command(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._threads = [threading.Thread(target=read) for read in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()
        answer = self._next(START_SECONDS)
        if "ready" not in answer:
            self.end()
            raise StartError(answer["detail"])
        self.device: str = answer["ready"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-20:], line]

    def _next(self, seconds: float) -> dict[str, Any]:
        """The next answer, or an outcome that says why there is none."""
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            return {"status": FAILED, "detail": f"timed out after {seconds:g} s", "ended": True}
        if line:
            return json.loads(line)
        status = self._process.wait()
        self._threads[1].join()
        last = [e.strip() for e in self._errors if e.strip()][-1:] or ["no output"]
        how = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with {status}"
        return {"status": FAILED, "detail": f"the process {how}: {last[0]}", "ended": True}

    def ask(self, name: str, seconds: float) -> dict[str, Any]:
        """The outcome of a case; with `ended` if the process is of no use any more."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # if it has ended, the answer says so
            self._process.stdin.write(name + "\n")
            self._process.stdin.flush()
        return self._next(seconds)

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was written after its end
                    stream.close()


class Pool:
    """Runs cases in a number of child processes.

    Args:
        target, device: as for `machine_of`.
        selection: the cases.
        jobs: the number of processes.
        seconds: after which a case has failed, and its process is ended.
        worker: the name of the module whose function `serve` the processes call.

    Attributes:
        device: the device that cases are launched on; "" if there is none. Set by `run`.

    Raises (by `run`):
        StartError: the target cannot be used at all.
    """

    def __init__(
        self,
        target: str,
        device: str,
        selection: Selection,
        jobs: int,
        seconds: float,
        worker: str = WORKER,
    ) -> None:
        self._given = worker, target, device, selection
        self._jobs, self._seconds = jobs, seconds
        self.device = ""

    def run(self, report: Report) -> None:
        """Run all cases; `report` is called for each, by one thread at a time."""
        waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
        cases = self._given[-1].cases()
        for case in cases:
            waiting.put(case)
        first = _Worker(*self._given)
        self.device = first.device
        lock, faults = threading.Lock(), list[BaseException]()

        def work(worker: _Worker | None) -> None:
            try:
                self._work(worker, waiting, lock, report)
            except BaseException as error:
                faults.append(error)

        count = max(1, min(self._jobs, len(cases)))
        workers: Sequence[_Worker | None] = [first, *[None] * (count - 1)]
        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]

    def _work(
        self,
        worker: _Worker | None,
        waiting: queue.SimpleQueue[Case],
        lock: threading.Lock,
        report: Report,
    ) -> None:
        try:
            while True:
                try:
                    case = waiting.get_nowait()
                except queue.Empty:
                    return
                worker = worker or _Worker(*self._given)
                answer = worker.ask(case.name, self._seconds)
                if answer.pop("ended", False):
                    worker.end()
                    worker = None
                with lock:
                    report(case, Outcome(**answer))
        finally:
            if worker is not None:
                worker.end()

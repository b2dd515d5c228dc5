"""Compilation in worker processes: many configurations of a kernel at once, on all cores.

    with compiling_elsewhere(pool):         # in a thread
        compile_source(...)                 # front end here, passes and target in a worker

The front end runs in this process, since it needs the program's functions; it takes about 1 % of
the time. Workers receive its tile IR. If no process can be started, or one is lost, this process
compiles the module itself.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Protocol

from tilewright.base.diagnostics import TritonError
from tilewright.compiler.build import elsewhere
from tilewright.compiler.job import Job, receive, send, settings
from tilewright.ir.core import Module
from tilewright.ir.printer import print_module
from tilewright.targets.protocol import GPUTarget, Lowered
from tilewright.targets.registry import is_installed

_BOOT = "import sys; sys.path[:] = {path!r}; from tilewright.compiler.worker import serve; serve()"

_NOTHING = """
func @nothing() {
  control.return [] : () -> ()
}
"""

# Exits for which the compiled code is to blame: repeating the job here would crash this process.
_CRASHES = frozenset(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")
    if hasattr(signal, name)
)


class Lost(Exception):
    """A worker cannot be started or has exited for reasons unrelated to the job."""


class Worker:
    """A compile worker process.

    Raises:
        Lost: it cannot be started.
    """

    def __init__(self) -> None:
        path = [os.path.abspath(entry) for entry in sys.path]
        command = [sys.executable, "-c", _BOOT.format(path=path)]
        pipe = subprocess.PIPE
        try:
            self._process: Any = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        except (OSError, ValueError) as error:
            raise Lost(str(error)) from None
        try:
            receive(self._process.stdout)
        except (EOFError, OSError):
            self.close()
            raise Lost("the process ended while it started") from None

    def lower(self, job: Job) -> Lowered:
        """Compile a job.

        Raises:
            Lost: the worker is gone, or had an error that could not be pickled.
            RuntimeError: it crashed while compiling.
            TritonError: the kernel is invalid or too large.
        """
        try:
            send(self._process.stdin, job)
            good, result = receive(self._process.stdout)
        except (EOFError, OSError):
            self.close()
            status = -self._process.returncode
            if status in _CRASHES:
                name = signal.Signals(status).name
                raise RuntimeError(f"the process that compiled it died of {name}") from None
            raise Lost("the process ended") from None
        if good:
            return result
        # Errors that are not the kernel's recur in this process, which can say more about them.
        if isinstance(result, TritonError):
            raise result
        raise Lost("compiling failed")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Terminate the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()
        self._process.wait()


class Pool:
    """Worker processes, started on demand and kept for reuse."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._usable = bool(sys.executable) and os.name == "posix"

    def lower(self, module: Module, device: GPUTarget, options: Any) -> Lowered | None:
        """Compile a module in a worker; None if this process must compile it.

        Raises:
            RuntimeError: the worker crashed.
            TritonError: as raised by compiling in this process.
        """
        if not self._usable or not is_installed(device.backend):
            return None
        text = print_module(module, locations=True)
        job = Job(text, module.entry.arg_names, device, options, settings())
        try:
            worker = self._take()
        except Lost:
            self._usable = False
            return None
        try:
            return worker.lower(job)
        except Lost:
            return None
        finally:
            if worker.alive:
                self._idle.append(worker)

    @property
    def idle(self) -> int:
        """The number of idle workers."""
        return len(self._idle)

    def start(self, device: GPUTarget, options: Any) -> None:
        """Start a worker and preload the target, so that its first job is not slower than others.
        Returns when it is ready; does nothing if no process can be started."""
        if not self._usable or not is_installed(device.backend):
            return
        try:
            worker = Worker()
        except Lost:
            self._usable = False
            return
        # Later jobs report any error here.
        with suppress(Lost, RuntimeError, TritonError):
            worker.lower(Job(_NOTHING, [], device, options, settings()))
        if worker.alive:
            self._idle.append(worker)

    def _take(self) -> Worker:
        while True:
            try:
                worker = self._idle.pop()
            except IndexError:
                return Worker()
            if worker.alive:
                return worker
            worker.close()

    def close(self) -> None:
        """Terminate the idle workers."""
        while self._idle:
            self._idle.pop().close()

    def abandon(self) -> None:
        """Leave the workers to the parent after a fork."""
        self._idle = []


@cache
def shared_pool() -> Pool:
    """The pool of this process."""
    pool = Pool()
    atexit.register(pool.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=pool.abandon)
    return pool


def may_start_processes() -> bool:
    """Whether this process may have children: a daemonic process of multiprocessing must not leave
    any behind."""
    return not multiprocessing.current_process().daemon


class Lowering(Protocol):
    """A substitute for compiling in the current thread."""

    def lower(self, module: Module, device: GPUTarget, options: Any) -> Lowered | None:
        """Compile a module; None if the current thread must compile it."""
        ...


@contextmanager
def compiling_elsewhere(pool: Lowering) -> Generator[None]:
    """Compile in workers whatever the current thread compiles within the block."""
    before, elsewhere.lower = elsewhere.lower, pool.lower
    try:
        yield
    finally:
        elsewhere.lower = before

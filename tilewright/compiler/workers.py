"""Compiling in other processes: many configurations of a kernel at once, on all cores.

    with compiling_elsewhere(pool):         # in a thread
        compile_source(...)                 # front end here, passes and target in a worker

The front end runs here, for it needs the program's functions, and takes a hundredth of the time.
What goes to a worker is the tile IR that it made. Where no process can be started, or one is lost,
this process compiles by itself.
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
from tilewright.targets.registry import is_built_in

_BOOT = "import sys; sys.path[:] = {path!r}; from tilewright.compiler.worker import serve; serve()"

_NOTHING = """
func @nothing() {
  control.return [] : () -> ()
}
"""

# Ends of a process that the compiled code is to blame for: doing the same here would end this one.
_CRASHES = frozenset(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")
    if hasattr(signal, name)
)


class Lost(Exception):
    """A worker cannot be started or is gone, for reasons of its own."""


class Worker:
    """A process that compiles.

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
        """What a job gives.

        Raises:
            Lost: the process is gone, or had an error that cannot be told.
            RuntimeError: it crashed while compiling.
            TritonError: the kernel is wrong, or too large.
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
        # What is no error of the kernel is found again here, where there is more to say about it.
        if isinstance(result, TritonError):
            raise result
        raise Lost("compiling failed")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()
        self._process.wait()


class Pool:
    """Workers, started when they are needed and kept for the next time."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._usable = bool(sys.executable) and os.name == "posix"

    def lower(self, module: Module, device: GPUTarget, options: Any) -> Lowered | None:
        """What a worker makes of a module; None where this process has to compile it.

        Raises:
            RuntimeError: the worker crashed.
            TritonError: as compiling here raises it.
        """
        if not self._usable or not is_built_in(device.backend):
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
        """How many workers have nothing to do."""
        return len(self._idle)

    def start(self, device: GPUTarget, options: Any) -> None:
        """Start a worker and have it load all that compiling for a target needs, so that its first
        job takes no longer than others. Returns when it has; does nothing where none can start."""
        if not self._usable or not is_built_in(device.backend):
            return
        try:
            worker = Worker()
        except Lost:
            self._usable = False
            return
        # Whatever is wrong here will be found by a job that matters.
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
        """End the workers that have nothing to do."""
        while self._idle:
            self._idle.pop().close()

    def abandon(self) -> None:
        """Leave the workers to the process that this one was forked from."""
        self._idle = []


@cache
def shared_pool() -> Pool:
    """This process's."""
    pool = Pool()
    atexit.register(pool.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=pool.abandon)
    return pool


def may_start_processes() -> bool:
    """Whether this process may have children of its own: a daemonic one of multiprocessing's is
    meant to leave none behind."""
    return not multiprocessing.current_process().daemon


class Lowering(Protocol):
    """What may compile a module in place of this thread."""

    def lower(self, module: Module, device: GPUTarget, options: Any) -> Lowered | None:
        """What becomes of a module; None where this thread has to compile it."""
        ...


@contextmanager
def compiling_elsewhere(pool: Lowering) -> Generator[None]:
    """Have what this thread compiles inside the block compiled by workers."""
    before, elsewhere.lower = elsewhere.lower, pool.lower
    try:
        yield
    finally:
        elsewhere.lower = before

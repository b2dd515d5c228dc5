"""The CPU as a device: loads object code into this process and runs grids over its cores.

A compiled kernel is one C function that runs a range of programs of the flattened grid (x moves
fastest):

    void kernel(void **args, void *scratch, int64_t first, int64_t last, const int32_t grid[3])

`args` is an array of 8-byte slots, one per runtime argument, each holding its value from the
slot's first byte on; `scratch` is a 64-byte aligned workspace that belongs to the thread.

How a launch runs
-----------------
The pool is native code (cpu_pool.ll), so that no thread needs the interpreter to take work.
The calling thread takes part. What a launch takes is known from the launch before: one of less than
4 µs runs on the calling thread alone; one of less than 20 µs does, too, unless workers are awake or
several such have followed each other closely, which is worth waking them. Any other is published in
the pool's one job slot, whose fields are:

- `state`: how many workers are in the job, how many may be, whether it is open, and its epoch, in
  one word, so that a worker joins by one compare-and-swap and never a job that has ended;
- ranges of programs, one for each thread, with the first that nobody has taken. A thread takes
  chunks from its own, then from what is left of the others': as large as about 25 to 100 µs of
  work, and smaller towards the end, so that all threads finish together. On each launch a thread
  has the same programs so, as far as that goes, and their memory in its core's caches. Of a launch
  of less than 50 µs it takes its whole range at once, as each chunk costs something;
- `owner`: the launch that holds the slot. A second launch at the same time finds it taken and runs
  on its own thread, so launches never wait for each other.

A thread takes the programs of a range in order, and goes to the next range only when all of its own
are taken. So all programs below the one that the calling thread runs have been taken, and whoever
waits only for programs of lower numbers, or for those that have begun, waits for one that runs:
look-back and locks need no more. Who waits for all others needs `cooperative.py`.

A worker without work spins for some 40 µs and then sleeps on a condition variable. The
caller comes back to Python every 50 ms, so that Python's signal handlers run; an exception from
one (Ctrl-C) drops the programs that have not started and waits for those that have.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tilewright.base import knobs
from tilewright.base.amx import amx_permitted
from tilewright.base.host import host
from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import Lock
from tilewright.runtime.devices.code import LoadedCode as LoadedCode  # for who loads code to run it
from tilewright.runtime.devices.code import when_unloaded
from tilewright.runtime.devices.cooperative import report
from tilewright.runtime.devices.cpu_pool import PoolCode, has_threads
from tilewright.runtime.devices.scratch import SCRATCH

if TYPE_CHECKING:
    from tilewright.runtime.devices import python_pool
else:
    python_pool = lazy_import("tilewright.runtime.devices.python_pool")


SLICE_NS = 50_000_000
"""How long a launch stays in native code before it lets Python handle signals, in nanoseconds."""

_MAX_WORKERS = (1 << 15) - 1  # the width of the field in the pool's state word


class Pool(Protocol):
    """What runs grids: the native pool, or Python threads where there are no pthreads."""

    def launch(
        self,
        function: int,
        args: int | bytes,
        grid: tuple[int, int, int],
        scratch_bytes: int,
        threads: int,
    ) -> None: ...


class Job(NamedTuple):
    """A launch on the native pool, as the arguments of its function `pool_launch`.

    `begin` is the first program to run; negative when the pool has the rest of them. `ticket` tells
    the launch from others: no two have the same at a time.
    """

    function: int
    args: int | bytes
    x: int
    y: int
    z: int
    begin: int
    scratch: int
    scratch_bytes: int
    workers: int
    ticket: int


class NativePool:
    """Worker threads in native code; see the module's text.

    A pool lives until the process ends: its workers sleep in memory that is never freed.
    """

    def __init__(self, code: PoolCode) -> None:
        self._code = code
        self._state: int = code.new()
        if not self._state:
            raise MemoryError("no memory for the thread pool")
        self._tickets = itertools.count(1)
        self._workers = ctypes.c_int64(0)  # where native code reads it, too
        self._growing = threading.Lock()
        self._counting = Lock()  # next() of a count is not atomic in every Python

    @property
    def workers(self) -> int:
        """How many worker threads run, the callers not counted."""
        return self._workers.value

    @property
    def state(self) -> int:
        """Address of the pool, for native code that launches on it; see `resume`."""
        return self._state

    @property
    def workers_address(self) -> int:
        """Address of the number of worker threads, a word."""
        return ctypes.addressof(self._workers)

    def address_of(self, function: str) -> int:
        """Address of a native function of the pool, such as `pool_launch`."""
        return self._code.address_of(function)

    def launch(
        self,
        function: int,
        args: int | bytes,
        grid: tuple[int, int, int],
        scratch_bytes: int,
        threads: int,
    ) -> None:
        x, y, z = grid
        workers = threads - 1
        if workers > self.workers:
            workers = self._grow(workers)
        # `memory` stays bound, as a signal handler's own launch may replace the thread's scratch.
        scratch, memory = SCRATCH.reserve(scratch_bytes) if scratch_bytes else (0, None)
        with self._counting:
            ticket = next(self._tickets)
        self._run(Job(function, args, x, y, z, 0, scratch, scratch_bytes, workers, ticket))
        del memory

    def forget(self, function: int) -> None:
        """Another function may have this address from now on: how long it takes is not known."""
        self._code.forget(self._state, function)

    def resume(self, job: int) -> None:
        """Go on with a launch by native code, whose call of `pool_launch` did not finish it.

        Args:
            job: address of the words of a `Job`; its `begin` is what the call gave. What it refers
                to must last until the launch has ended. An exception may leave it under way, for
                a signal handler can raise before this code runs: then cancel it, and help it end.
        """
        self._run(Job(*(ctypes.c_int64 * len(Job._fields)).from_address(job)))

    def _run(self, job: Job) -> None:
        """Run the programs from `job.begin` on, in slices, between which signals are handled."""
        begin = job.begin
        function, args, x, y, z, _, scratch, scratch_bytes, workers, ticket = job
        try:
            while begin >= 0:
                begin = self._code.launch(
                    self._state, function, args, x, y, z, begin,
                    scratch, scratch_bytes, workers, ticket, SLICE_NS,
                )  # fmt: skip
                if begin == 0:
                    return
            while self._code.help(self._state, ticket, scratch, SLICE_NS):
                pass
        except BaseException:
            self._abandon(ticket, function)
            raise

    def _abandon(self, ticket: int, function: int) -> None:
        """Drop what has not started and wait for the rest: it still reads the caller's memory."""
        while True:
            try:
                self._code.cancel(self._state, ticket)
                while self._code.help(self._state, ticket, 0, SLICE_NS):
                    pass
                return
            except KeyboardInterrupt:  # the first one is on its way to the user already
                report(_names.get(function, "a kernel"))

    def _grow(self, wanted: int) -> int:
        """Start workers until there are `wanted`; how many there are, if the system refuses."""
        with self._growing, _signals_blocked():
            while self.workers < min(wanted, _MAX_WORKERS) and not self._code.grow(self._state):
                self._workers.value += 1
        return min(wanted, self.workers)


@contextmanager
def _signals_blocked() -> Generator[None]:
    """Threads made here inherit a mask that leaves every signal to Python's own threads."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --------------------------------------------------------------------------------------------
# Launching
# --------------------------------------------------------------------------------------------

_pool_lock = Lock()
_pool: Pool | None = None
_pool_code: PoolCode | None = None


def _make_pool() -> Pool:
    global _pool, _pool_code
    with _pool_lock:
        if _pool is None:
            amx_permitted()  # before any thread runs a kernel that uses it
            if has_threads():
                _pool_code = _pool_code or PoolCode()
                _pool = NativePool(_pool_code)
            else:
                _pool = python_pool.PythonPool()
            assert _pool is not None
        return _pool


def native_pool() -> NativePool | None:
    """The pool as native code can use it; None where Python threads take its place."""
    pool = _pool or _make_pool()
    return pool if isinstance(pool, NativePool) else None


_names: dict[int, str] = {}


def name_function(function: int, name: str) -> None:
    """Name the kernel at an address, for what is said of its launches."""
    _names[function] = name


def _forget(function: int) -> None:
    _names.pop(function, None)
    if isinstance(_pool, NativePool):
        _pool.forget(function)


when_unloaded(_forget)


def _after_fork_in_child() -> None:
    """A forked child has the parent's memory but none of its threads: it makes its own pool."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def thread_count() -> int:
    """Threads of a launch, the caller counted: the knob `runtime.cpu_threads`, else every core
    that this process may use."""
    chosen = knobs.runtime.cpu_threads
    if chosen > 0:
        return chosen
    usable: Callable[[], int | None] | None = getattr(os, "process_cpu_count", None)  # Python 3.13
    if usable is not None:
        return usable() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """The processor of this machine, as LLVM calls it: ``znver4``."""
    return host().cpu


def launch(
    function: int,
    args: int | bytes,
    grid: tuple[int, int, int],
    scratch_bytes: int = 0,
    threads: int = 0,
) -> None:
    """Run a kernel over a grid and return when all its programs have run.

    Args:
        function: address of the kernel, which must stay loaded; see the module's text for its type.
        args: address of its array of 8-byte argument slots; 0 when it has none.
        grid: programs along x, y and z. A zero among them: nothing runs.
        scratch_bytes: size of the workspace that each thread gets.
        threads: how many threads may take part, the caller counted; 0 for :func:`thread_count`.

    Raises:
        ValueError: a negative or too large extent.
        KeyboardInterrupt, or what a signal handler raises: programs that had not started then
            never run, and the others have ended.

    Safe to call from several threads at once, from signal handlers, and after a fork.
    """
    x, y, z = grid
    total = x * y * z
    if total == 0:
        return
    if not (0 < x < 1 << 31 and 0 < y < 1 << 31 and 0 < z < 1 << 31 and total < 1 << 62):
        raise ValueError(f"grid {grid} has an extent below 0 or above 2**31 - 1, or is too large")
    (_pool or _make_pool()).launch(function, args, grid, scratch_bytes, threads or thread_count())

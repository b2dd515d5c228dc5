"""The CPU as a device: runs the grid of a kernel on a pool of threads.

A compiled kernel is one C function that runs the programs `first` to `last - 1` of the flattened
grid (x varies fastest):

    void kernel(void **args, void *scratch, int64_t first, int64_t last, const int32_t grid[3])

`args` is an array of 8-byte slots, one per runtime argument, each holding its value from the
slot's first byte on; `scratch` is a 64-byte aligned workspace, private to the thread.

Scheduling
----------
The pool is native code (cpu_pool.ll): workers never take the GIL. The calling thread works, too.
The duration of a launch is estimated from earlier launches of the same function. One below 4 µs
runs on the calling thread alone; so does one below 20 µs, unless workers are still spinning or
several such launches have followed each other closely, in which case waking workers pays. Any other
launch is published in the pool's single job slot, whose fields are:

- `state`: the number of workers in the job, their limit, whether the job is open, and its epoch,
  packed into one word, so that a worker joins by one compare-and-swap and cannot join a job that
  has ended;
- ranges of programs, one for each thread, each with the index of its next program. A thread takes
  chunks from its own range, then steals from the others. Chunks are 25 to 100 µs of work, and
  smaller towards the end for load balance. As a thread starts with the same range on each launch,
  its core's caches may still hold the data. A launch of less than 50 µs is not divided into chunks,
  to save the atomic operations;
- `owner`: the launch that holds the slot. A concurrent launch finds it taken and runs on its own
  thread alone, so launches never block each other.

Forward progress: a thread takes the programs of a range in ascending order, and steals only after
its own range is exhausted. Hence all programs below one that the calling thread runs have been
taken. A program may therefore wait for programs with lower numbers (decoupled look-back) or for
programs that have begun (locks). A barrier over the whole grid needs `cooperative.py`.

Instead of workers, the threads of another runtime can take part (`Team`): a job is then run in a
parallel region, whose threads join it as workers do.

An idle worker spins for about 40 µs and then sleeps on a condition variable. The caller returns to
Python every 50 ms, so that Python's signal handlers run; if one raises (Ctrl-C), programs that have
not started are dropped, and the launch waits for the others.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tilewright.base import knobs
from tilewright.base.amx import amx_permitted
from tilewright.base.host import host
from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import Lock
from tilewright.runtime.devices import faults
from tilewright.runtime.devices.code import LoadedCode as LoadedCode  # re-exported
from tilewright.runtime.devices.code import when_unloaded
from tilewright.runtime.devices.cooperative import report
from tilewright.runtime.devices.cpu_pool import LAYOUT, MOST_MEMBERS, PoolCode, has_threads
from tilewright.runtime.devices.interrupts import watch
from tilewright.runtime.devices.scratch import SCRATCH

if TYPE_CHECKING:
    from tilewright.runtime.devices import python_pool
else:
    python_pool = lazy_import("tilewright.runtime.devices.python_pool")


SLICE_NS = 50_000_000
"""How long a launch stays in native code before Python handles pending signals, in nanoseconds."""

_OF_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS")

_MAX_WORKERS = (1 << 15) - 1  # the width of the field in the pool's state word


class Pool(Protocol):
    """Runs grids: the native pool, or Python threads on platforms without pthreads."""

    def launch(
        self,
        function: int,
        args: int | bytes,
        grid: tuple[int, int, int],
        scratch_bytes: int,
        threads: int,
    ) -> None: ...


class Team(NamedTuple):
    """Threads of another runtime, such as those of OpenMP, that run grids in place of workers.

    The threads of a library that the program uses as well may spin between its operations. Workers
    would compete with them for cores; see docs/decisions/0034-threads-of-openmp.md.

    Attributes:
        run: address of ``void run(void (*body)(void *), void *data, unsigned threads, unsigned
            flags)``, which calls `body` on each thread of a team, of which the caller is one, and
            returns when all calls have: ``GOMP_parallel``. The team may have fewer threads.
        number: address of ``int number(void)``, the number of the calling thread in its team, 0 for
            the caller of `run`: ``omp_get_thread_num``.
    """

    run: int
    number: int


class Job(NamedTuple):
    """The arguments of the native function `pool_launch`.

    `begin` is the first program that remains to be run; negative once the remaining programs have
    been published in the job slot. `ticket` identifies the launch: it is unique among concurrent
    launches.
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
    """Worker threads in native code; see the module's docstring.

    A pool is never destroyed: its workers sleep on a condition variable in its memory.
    """

    def __init__(self, code: PoolCode) -> None:
        self._code = code
        self._state: int = code.new()
        if not self._state:
            raise MemoryError("no memory for the thread pool")
        self._tickets = itertools.count(1)
        self._workers = ctypes.c_int64(0)  # also read by native launchers, at `workers_address`
        self._started = 0
        self._team: Team | None = None
        self._growing = threading.Lock()
        self._counting = Lock()  # next() of itertools.count is not atomic without the GIL

    @property
    def workers(self) -> int:
        """The most threads that a launch can use besides its own: workers, or those of a team."""
        return self._workers.value

    def use(self, team: Team | None) -> None:
        """Run launches on the threads of a team from now on; None: on the pool's own workers.

        A launch that is running may end on the threads on which it began.
        """
        with self._growing:
            if team is not None:
                self._word("MEMBER_NUMBER").value = team.number
            self._word("REGION").value = team.run if team is not None else 0
            self._team = team
            self._workers.value = self._started if team is None else MOST_MEMBERS - 1

    @property
    def state(self) -> int:
        """Address of the pool's memory, for native launchers; see `resume`."""
        return self._state

    def running(self) -> tuple[int, int]:
        """The address of the kernel that runs in native code, 0 for none, and how many times
        launches have entered native code."""
        return self._word("RUNNING").value, self._word("ENTRIES").value

    def _word(self, name: str) -> ctypes.c_int64:
        """A word of the pool's memory."""
        return ctypes.c_int64.from_address(self._state + LAYOUT[name])

    @property
    def workers_address(self) -> int:
        """Address of the number of worker threads, an int64."""
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
        workers = self.grow(threads - 1)
        # `memory` stays bound, as a signal handler's own launch may replace the thread's scratch.
        scratch, memory = SCRATCH.reserve(scratch_bytes) if scratch_bytes else (0, None)
        with self._counting:
            ticket = next(self._tickets)
        self._run(Job(function, args, x, y, z, 0, scratch, scratch_bytes, workers, ticket))
        del memory

    def forget(self, function: int) -> None:
        """Drop the duration recorded for a function whose code is being unloaded."""
        self._code.forget(self._state, function)

    def resume(self, job: int) -> None:
        """Continue a native launcher's launch that `pool_launch` left unfinished after a slice.

        Args:
            job: address of the words of a `Job`; its `begin` is the result of `pool_launch`. The
                memory it refers to must stay valid until the launch has ended. If this raises, the
                launch may still be running, as a signal handler can raise before the first line
                runs; the launcher must then call `pool_cancel` and `pool_help` until it has ended.
        """
        self._run(Job(*(ctypes.c_int64 * len(Job._fields)).from_address(job)))

    def _run(self, job: Job) -> None:
        """Run the programs from `job.begin` on; signals are handled after each time slice."""
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
        """Drop programs that have not started; wait for the others, which use caller's memory."""
        while True:
            try:
                self._code.cancel(self._state, ticket)
                while self._code.help(self._state, ticket, 0, SLICE_NS):
                    pass
                return
            except KeyboardInterrupt:  # the first one is already propagating
                report(_names.get(function, "a kernel"))

    def grow(self, count: int) -> int:
        """Start workers until there are `count`.

        Returns:
            the number of workers to use, which is smaller if the system cannot start more threads.
        """
        if count <= self.workers:
            return count
        with self._growing, _signals_blocked():
            while self._may_start(count) and not self._code.grow(self._state):
                self._started += 1
                self._workers.value = self._started
        return min(count, self.workers)

    def _may_start(self, count: int) -> bool:
        return self._team is None and self._started < min(count, _MAX_WORKERS)


@contextmanager
def _signals_blocked() -> Generator[None]:
    """Block all signals except those of faults: threads created inside inherit the mask, so that
    signals are delivered to Python's threads only. A fault of a thread that blocks its signal would
    end the process without calling its handler, such as Python's `faulthandler`."""
    faults_of_threads = {signal.Signals[name] for name in _OF_FAULTS if hasattr(signal, name)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults_of_threads)
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
_team: Team | None = None


def _make_pool() -> Pool:
    global _pool, _pool_code
    with _pool_lock:
        if _pool is None:
            amx_permitted()  # before any thread runs a kernel that uses it
            if has_threads():
                _pool_code = _pool_code or PoolCode()
                _pool = NativePool(_pool_code)
                _pool.use(_team)
                faults.watch(_pool.state, _pool.address_of("pool_fault"))
                watch(_pool.running, lambda function: report(_names.get(function, "a kernel")))
            else:
                _pool = python_pool.PythonPool()
            assert _pool is not None
        return _pool


def native_pool() -> NativePool | None:
    """The pool, for native launchers; None on platforms without pthreads."""
    pool = _pool or _make_pool()
    return pool if isinstance(pool, NativePool) else None


def use_team(team: Team | None) -> None:
    """Run grids on the threads of another runtime from now on; None: on the pool's own.

    The threads of the runtime must be usable in this process. In a forked child, where those of
    OpenMP are not, launches use the pool's own again.
    """
    global _team
    with _pool_lock:
        _team = team
        if isinstance(_pool, NativePool):
            _pool.use(team)


_names: dict[int, str] = {}


def name_function(function: int, name: str) -> None:
    """Record the name of the kernel at an address, for messages about its launches."""
    _names[function] = name
    faults.add(function, name)


def _forget(function: int) -> None:
    _names.pop(function, None)
    faults.drop(function)
    if isinstance(_pool, NativePool):
        _pool.forget(function)


when_unloaded(_forget)


def _after_fork_in_child() -> None:
    """A forked child inherits the pool's memory but not its threads: it needs a new pool."""
    global _pool, _team
    _pool = _team = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def thread_count() -> int:
    """Threads of a launch, including the caller: the knob `runtime.cpu_threads` if it is positive,
    else `torch_threads`, else `core_count`."""
    return knobs.runtime.cpu_threads or torch_threads() or core_count()


def torch_threads() -> int:
    """The number of threads that torch uses in an operation, as set by `torch.set_num_threads` and
    OMP_NUM_THREADS; 0 if the process has not imported torch."""
    query: Callable[[], int] | None = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return query() if query is not None else 0


def core_count() -> int:
    """The number of cores in the process's affinity mask."""
    usable: Callable[[], int | None] | None = getattr(os, "process_cpu_count", None)  # Python 3.13
    if usable is not None:
        return usable() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """LLVM's name of this machine's processor: ``znver4``."""
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
        function: address of the kernel, which must stay loaded; the module's docstring has its
            prototype.
        args: address of its array of 8-byte argument slots; 0 if it has none.
        grid: programs along x, y and z. Nothing runs if one of them is 0.
        scratch_bytes: size of each thread's workspace, in bytes.
        threads: the most threads to use, including the caller; 0 for :func:`thread_count`.

    Raises:
        ValueError: an extent is negative or too large.
        KeyboardInterrupt, or an exception of a signal handler: programs that had not started are
            dropped, and the others have ended.

    Safe to call concurrently, from signal handlers, and after a fork.
    """
    x, y, z = grid
    total = x * y * z
    if total == 0:
        return
    if not (0 < x < 1 << 31 and 0 < y < 1 << 31 and 0 < z < 1 << 31 and total < 1 << 62):
        raise ValueError(f"grid {grid} has an extent below 0 or above 2**31 - 1, or is too large")
    (_pool or _make_pool()).launch(function, args, grid, scratch_bytes, threads or thread_count())

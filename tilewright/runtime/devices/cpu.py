"""The CPU as a device: loads object code into this process and runs grids over its cores.

A compiled kernel is one C function that runs a range of programs of the flattened grid (x moves
fastest):

    void kernel(void **args, void *scratch, int64_t first, int64_t last, const int32_t grid[3])

`args` is an array of 8-byte slots, one per runtime argument, each holding its value from the
slot's first byte on; `scratch` is a 64-byte aligned workspace that belongs to the thread.

How a launch runs
-----------------
The pool is native code, made from the LLVM IR in cpu_pool.ll once per process, so that no thread
needs the interpreter to take work. The calling thread takes part. A launch that is known to be
short runs on it alone; any other is published in the pool's one job slot, whose fields are:

- `state`: how many workers are in the job, how many may be, whether it is open, and its epoch, in
  one word, so that a worker joins by one compare-and-swap and never a job that has ended;
- `next`: the first program nobody has taken. Threads take chunks from it, as large as about
  25 to 100 µs of work, and smaller towards the end, so that all threads finish together;
- `owner`: the launch that holds the slot. A second launch at the same time finds it taken and runs
  on its own thread, so launches never wait for each other.

A worker without work spins for some microseconds and then sleeps on a condition variable. The
caller comes back to Python every 50 ms, so that Python's signal handlers run; an exception from
one (Ctrl-C) drops the programs that have not started and waits for those that have.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import llvmlite.binding as llvm

from tilewright.base import knobs
from tilewright.base.amx import amx_permitted
from tilewright.base.locks import Lock
from tilewright.base.remembered import remembered

SLICE_NS = 50_000_000
"""How long a launch stays in native code before it lets Python handle signals, in nanoseconds."""

SCRATCH_ALIGNMENT = 64
_WORKER_STACK_BYTES = 8 << 20
_MAX_WORKERS = (1 << 15) - 1  # the width of the field in the pool's state word

_PTHREAD_SYMBOLS = (
    "pthread_create",
    "pthread_attr_init",
    "pthread_attr_setdetachstate",
    "pthread_attr_setstacksize",
    "pthread_mutex_init",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_cond_init",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_signal",
    "posix_memalign",
    "clock_gettime",
)

# --------------------------------------------------------------------------------------------
# Loading
# --------------------------------------------------------------------------------------------


def _initialize_llvm() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


class _Linker:
    """The process's in-memory linker.

    JITLink gives each object its own namespace and can unload it. Measured on a kernel of 900
    bytes: 0.16 ms, against 0.30 ms with the older RuntimeDyld; MCJIT needs 0.06 ms, but there equal
    symbol names of two kernels collide and nothing can be unloaded.
    """

    def __init__(self) -> None:
        _initialize_llvm()
        machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic")
        # JITLink's COFF support is young; RuntimeDyld is what LLVM uses by default on Windows.
        self.jit = llvm.create_lljit_compiler(machine, use_jit_link=sys.platform != "win32")
        self.links = 0

    def link(
        self, code: bytes, exports: Sequence[str], imports: Mapping[str, int]
    ) -> llvm.ResourceTracker:
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in exports:
            builder.export_symbol(name)
        for name, address in imports.items():
            builder.import_symbol(name, address)
        # LLVM never lets a library's name be used again, not even after it was unloaded.
        self.links += 1
        return builder.link(self.jit, f"tilewright.{self.links}")


_MAX_LINKS = 64
"""What is linked leaves 8 KB in its linker for ever; making a linker takes 2 ms. So each links so
much, and goes away with the last of it."""

_linker_lock = Lock()
_linker: _Linker | None = None


def _link(
    code: bytes, exports: Sequence[str], imports: Mapping[str, int]
) -> tuple[_Linker, llvm.ResourceTracker]:
    global _linker
    with _linker_lock:
        if _linker is None or _linker.links >= _MAX_LINKS:
            _linker = _Linker()
        return _linker, _linker.link(code, exports, imports)


class LoadedCode:
    """Object code in this process. The addresses are valid as long as this object lives.

    Args:
        code: the bytes of an object file for this machine (ELF, Mach-O or COFF).
        names: the functions whose addresses are wanted.
        imports: addresses for symbols that the code refers to and the process does not export.

    Raises:
        RuntimeError: the bytes are no object file, or a symbol is missing.

    Example:
        code = LoadedCode(object_bytes, ["add_kernel"])
        launch(code["add_kernel"], args_address, (16, 1, 1))
    """

    def __init__(
        self, code: bytes, names: Sequence[str], imports: Mapping[str, int] | None = None
    ) -> None:
        # The tracker unloads the code, for which it needs the linker.
        self._linker, self._tracker = _link(code, names, imports or {})
        self._addresses: dict[str, int] = {name: int(self._tracker[name]) for name in names}

    def __getitem__(self, name: str) -> int:
        """The address of the function `name`; KeyError when it was not asked for."""
        return self._addresses[name]


# --------------------------------------------------------------------------------------------
# The native pool
# --------------------------------------------------------------------------------------------

# Offsets into the pool, in bytes. Each thing that several threads write has its own cache lines
# (two of 64 bytes, for processors that fetch lines in pairs). The blocks for pthread objects are
# larger than any known platform's.
_LAYOUT = {
    "MUTEX": 0,
    "WORK": 128,
    "DONE": 256,
    "ATTR": 384,
    "STATE": 512,
    "NEXT": 640,
    "SLEEPERS": 768,
    "WAITING": 772,
    "OWNER": 896,
    "FN": 1024,
    "ARGS": 1032,
    "GRID": 1040,
    "TOTAL": 1056,
    "SCRATCH": 1064,
    "PARTS": 1072,
    "COSTS": 1152,
    "SIZE": 1152 + 512 * 16,
}


_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_MACHINE_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}

# About 20 to 60 µs, by the processor's pause: longer than the gap between launches in a loop,
# short enough that an idle pool costs nothing.
_SPINS = 1500


def _pool_ir() -> str:
    """The pool's LLVM IR for this platform."""
    machine = platform.machine().lower()
    declaration, pause = _PAUSES.get(_MACHINE_NAMES.get(machine, machine), ("", ""))
    values: dict[str, object] = {
        **_LAYOUT,
        "PAUSE_DECLARATION": declaration,
        "PAUSE": pause,
        "SPINS": _SPINS,
        "STACK": _WORKER_STACK_BYTES,
        # PTHREAD_CREATE_DETACHED and the clocks have other numbers on Darwin.
        "DETACHED": 2 if sys.platform == "darwin" else 1,
        "MONOTONIC": time.CLOCK_MONOTONIC,
        "REALTIME": time.CLOCK_REALTIME,
    }
    text = Path(__file__).with_name("cpu_pool.ll").read_text("utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _compile_pool() -> LoadedCode:
    _initialize_llvm()
    text = _pool_ir()

    def make() -> str:
        # For any processor of this architecture, as the pool gains nothing from a newer one; and at
        # level 0, as it holds no loop that matters: 7 ms to make, against 20 ms at level 1.
        machine = llvm.Target.from_default_triple().create_target_machine(opt=0, reloc="pic")
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = machine.triple
        module.verify()
        return machine.emit_object(module).hex()

    told_by = text, llvm.get_default_triple(), list(llvm.llvm_version_info)
    code = bytes.fromhex(remembered("thread pool", told_by, make))
    names = ["pool_new", "pool_grow", "pool_launch", "pool_help", "pool_cancel"]
    return LoadedCode(code, names)


class _PoolCode:
    """The pool's native functions as callables that run without the GIL."""

    def __init__(self) -> None:
        self._code = _compile_pool()
        word, address = ctypes.c_int64, ctypes.c_void_p
        self.new = self._function("pool_new", address)
        self.grow = self._function("pool_grow", ctypes.c_int32, address)
        self.help = self._function("pool_help", word, address, word, address, word)
        self.cancel = self._function("pool_cancel", None, address, word)
        self.launch = self._function(
            "pool_launch", word, *[address] * 3, *[word] * 4, address, *[word] * 4
        )

    def address_of(self, name: str) -> int:
        """Address of a function by its name in cpu_pool.ll."""
        return self._code[name]

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(self._code[name])


class _Scratch(threading.local):
    """Workspace of each thread that launches; it grows to the largest one asked for."""

    def __init__(self) -> None:
        self.size = 0
        self.address = 0
        self.buffer: Any = None

    def reserve(self, size: int) -> tuple[int, object]:
        """An aligned address with `size` bytes behind it, and what keeps them alive."""
        if size > self.size:
            self.buffer = ctypes.create_string_buffer(size + SCRATCH_ALIGNMENT - 1)
            self.address = -(-ctypes.addressof(self.buffer) // SCRATCH_ALIGNMENT)
            self.address *= SCRATCH_ALIGNMENT
            self.size = size
        return self.address, self.buffer


_scratch = _Scratch()


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

    def __init__(self, code: _PoolCode) -> None:
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
        scratch, memory = _scratch.reserve(scratch_bytes) if scratch_bytes else (0, None)
        with self._counting:
            ticket = next(self._tickets)
        self._run(Job(function, args, x, y, z, 0, scratch, scratch_bytes, workers, ticket))
        del memory

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
            self._abandon(ticket)
            raise

    def _abandon(self, ticket: int) -> None:
        """Drop what has not started and wait for the rest: it still reads the caller's memory."""
        while True:
            try:
                self._code.cancel(self._state, ticket)
                while self._code.help(self._state, ticket, 0, SLICE_NS):
                    pass
                return
            except KeyboardInterrupt:
                continue  # the first one is on its way to the user already

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


class PythonPool:
    """Runs ranges on Python threads, for platforms without pthreads."""

    CHUNKS_PER_THREAD = 8

    def __init__(self) -> None:
        self._kernel_type: Any = ctypes.CFUNCTYPE(
            None,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_void_p,
        )
        self._executor: ThreadPoolExecutor | None = None
        self._size = 0
        self._lock = threading.Lock()

    def launch(
        self,
        function: int,
        args: int | bytes,
        grid: tuple[int, int, int],
        scratch_bytes: int,
        threads: int,
    ) -> None:
        kernel = self._kernel_type(function)
        extents = (ctypes.c_int32 * 3)(*grid)
        total = grid[0] * grid[1] * grid[2]
        threads = min(threads, total)
        step = max(1, total // (threads * self.CHUNKS_PER_THREAD))
        chunks = iter(range(0, total, step))
        taking = threading.Lock()
        cancelled = threading.Event()

        def drain() -> None:
            address, _memory = _scratch.reserve(scratch_bytes)
            while not cancelled.is_set():
                with taking:
                    first = next(chunks, None)
                if first is None:
                    return
                kernel(args, address, first, min(first + step, total), extents)

        futures: list[Future[None]] = []
        try:
            if threads > 1:
                workers = self._workers(threads - 1)
                futures += [workers.submit(drain) for _ in range(threads - 1)]
            drain()
        except BaseException:
            cancelled.set()
            raise
        finally:
            _wait_for_all(futures)

    def close(self) -> None:
        """End the threads; the next launch makes new ones."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    def _workers(self, count: int) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None or count > self._size:
                # The old one finishes what others have given it; its threads then end.
                self._executor = ThreadPoolExecutor(count, thread_name_prefix="tilewright")
                self._size = count
            return self._executor


def _wait_for_all(futures: Sequence[Future[None]]) -> None:
    """Wait whatever happens, for the threads read the caller's memory."""
    while True:
        try:
            wait(futures)
            return
        except KeyboardInterrupt:
            for future in futures:
                future.cancel()  # what has started goes on


# --------------------------------------------------------------------------------------------
# Launching
# --------------------------------------------------------------------------------------------

_pool_lock = Lock()
_pool: Pool | None = None
_pool_code: _PoolCode | None = None


def _make_pool() -> Pool:
    global _pool, _pool_code
    with _pool_lock:
        if _pool is None:
            _initialize_llvm()
            amx_permitted()  # before any thread runs a kernel that uses it
            if all(llvm.address_of_symbol(name) for name in _PTHREAD_SYMBOLS):
                _pool_code = _pool_code or _PoolCode()
                _pool = NativePool(_pool_code)
            else:
                _pool = PythonPool()
        return _pool


def native_pool() -> NativePool | None:
    """The pool as native code can use it; None where Python threads take its place."""
    pool = _pool or _make_pool()
    return pool if isinstance(pool, NativePool) else None


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
    return llvm.get_host_cpu_name()


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

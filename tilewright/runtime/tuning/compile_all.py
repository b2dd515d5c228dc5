"""Compilation of the configurations of a kernel, in parallel if that is expected to pay.

    with Compiling(configs, compile, early=True) as compiling:
        for config, error in compiling:         # in order of completion
            ...

This process compiles one configuration after another. If worker processes are started, they take
configurations from the same queue as soon as they are ready, and this process continues to compile
while none of their results is available.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base import knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.runtime.config import Config

if TYPE_CHECKING:
    from tilewright.compiler import workers
else:
    workers = lazy_import("tilewright.compiler.workers")

EARLY_CONFIGS = 6
"""For at least this many configurations, each slow to compile, workers are started immediately."""
WORTH_SECONDS = 2.0
"""The remaining compile time (seconds) from which starting workers pays."""


Done = tuple[Config, Exception | None]


class Compiling:
    """Compiles all configurations. Iterating yields each with its error, or None.

    Kernels compiled by workers are in the memory cache of the kernel when they are yielded.

    Args:
        compile: compiles one configuration; may be called in any thread.
        early: whether compilation is known to be slow. Workers are then started when the first
            configuration misses the cache; otherwise when a compilation, other than the one that
            loads the compiler, was slow.
    """

    def __init__(
        self, configs: Sequence[Config], compile: Callable[[Config], Any], *, early: bool
    ) -> None:
        self._count = len(configs)
        self._waiting = deque(configs)
        self._done: deque[Done] = deque()
        self._more = threading.Condition()
        self._compile = compile
        self._early = early
        self._threads: list[threading.Thread] = []
        # As the setting: -1 for automatic, 0 and 1 for none, else the number of workers.
        self._workers = knobs.autotuning.workers if workers.may_start_processes() else 0
        self._lowered = 0

    def __enter__(self) -> Compiling:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()
        for thread in self._threads:
            thread.join()

    @property
    def is_busy(self) -> bool:
        """Whether threads of this process are compiling."""
        return any(thread.is_alive() for thread in self._threads)

    def __iter__(self) -> Iterator[Done]:
        for _ in range(self._count):
            yield self._next()

    def _next(self) -> Done:
        if self._done:
            return self._done.popleft()
        # With an explicit number of workers, these compile all configurations but the first.
        if not self._threads or self._workers < 0:
            config = self._take()
            if config is not None:
                return self._here(config)
        with self._more:
            self._more.wait_for(lambda: self._done)
        return self._done.popleft()

    def _take(self) -> Config | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _attempt(self, config: Config) -> Done:
        try:
            self._compile(config)
        except Exception as error:
            return config, error
        return config, None

    def _here(self, config: Config) -> Done:
        if self._threads or self._workers in (0, 1):
            return self._attempt(config)
        begin, lowered = time.perf_counter(), self._lowered
        with workers.compiling_elsewhere(self):
            done = self._attempt(config)
        # The first compilation loads the compiler, so its duration is not representative.
        seconds = (time.perf_counter() - begin) if lowered and self._lowered > lowered else 0.0
        if seconds * len(self._waiting) > WORTH_SECONDS:
            self._start(*self._example)
        return done

    # -- worker processes -----------------------------------------------------------------------

    def lower(self, module: Any, device: Any, options: Any) -> None:
        """Called before a module is compiled in this process (`workers.Lowering`)."""
        self._lowered += 1
        self._example = device, options
        if self._workers > 1 or (self._early and self._count >= EARLY_CONFIGS):
            self._start(device, options)

    def _start(self, device: Any, options: Any) -> None:
        """Start threads, each with a worker process, that take configurations from the queue."""
        if self._threads:
            return
        waiting = len(self._waiting)
        # One core is left to this process, and each worker should have two configurations at least.
        count = min(_cores() - 1, (waiting + 1) // 2) if self._workers < 0 else self._workers
        pool = workers.shared_pool()
        idle = pool.idle
        for number in range(min(count, waiting)):
            prepare = number >= idle
            work = (pool, (device, options) if prepare else None)
            thread = threading.Thread(target=self._work, args=work, name="tilewright-compile")
            thread.daemon = True
            try:
                thread.start()
            except RuntimeError:  # too many threads: continue with those started so far
                break
            self._threads.append(thread)

    def _work(self, pool: Any, prepare: tuple[Any, Any] | None) -> None:
        if prepare is not None and self._waiting:
            pool.start(*prepare)
        while (config := self._take()) is not None:
            with workers.compiling_elsewhere(pool):
                done = self._attempt(config)
            with self._more:
                self._done.append(done)
                self._more.notify()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

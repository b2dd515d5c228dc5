"""Compiling the configurations of a kernel, many at once where it pays.

    with Compiling(configs, compile, early=True) as compiling:
        for config, error in compiling:         # in the order in which they are done
            ...

This process compiles one configuration after the other. Where others are set to work, they take
configurations from the same list as soon as they have started, and this process goes on with its
own while there is nothing to be had from them: whoever is free does the next.
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
"""So many configurations that each take long have processes started for them at once."""
WORTH_SECONDS = 2.0
"""Compiling that takes less in all is nearly over before other processes have started."""


Done = tuple[Config, Exception | None]


class Compiling:
    """Compiles for all configurations; a loop over it gives each with its error, if it has one.

    What other processes make is in the kernel's memory when it is asked for.

    Args:
        compile: compiles for one, in any thread.
        early: whether compiling is known to take long. Processes are then started when the first
            configuration turns out to need compiling, else when one, which did not have to load
            the compiler first, took long.
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
        self._wanted = knobs.autotuning.workers if workers.may_start_processes() else 0
        self._lowered = 0

    def __enter__(self) -> Compiling:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()
        for thread in self._threads:
            thread.join()

    @property
    def is_busy(self) -> bool:
        """Whether threads of this process are at work for it."""
        return any(thread.is_alive() for thread in self._threads)

    def __iter__(self) -> Iterator[Done]:
        for _ in range(self._count):
            yield self._next()

    def _next(self) -> Done:
        if self._done:
            return self._done.popleft()
        # Where a number of processes is asked for, they compile all but the first.
        if not self._threads or self._wanted < 0:
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
        if self._threads or self._wanted in (0, 1):
            return self._attempt(config)
        begin, lowered = time.perf_counter(), self._lowered
        with workers.compiling_elsewhere(self):
            done = self._attempt(config)
        # The first loads the compiler: it tells nothing of the others.
        seconds = (time.perf_counter() - begin) if lowered and self._lowered > lowered else 0.0
        if seconds * len(self._waiting) > WORTH_SECONDS:
            self._start(*self._example)
        return done

    # -- other processes ------------------------------------------------------------------------

    def lower(self, module: Any, device: Any, options: Any) -> None:
        """Told of a module that is about to be compiled in this process."""
        self._lowered += 1
        self._example = device, options
        if self._wanted > 1 or (self._early and self._count >= EARLY_CONFIGS):
            self._start(device, options)

    def _start(self, device: Any, options: Any) -> None:
        """Have threads, each with a process, take what is waiting; once."""
        if self._threads:
            return
        waiting = len(self._waiting)
        # One core is this process's. A process that gets one configuration is not worth its start.
        count = min(_cores() - 1, (waiting + 1) // 2) if self._wanted < 0 else self._wanted
        pool = workers.shared_pool()
        idle = pool.idle
        for number in range(min(count, waiting)):
            prepare = number >= idle
            work = (pool, (device, options) if prepare else None)
            thread = threading.Thread(target=self._work, args=work, name="tilewright-compile")
            thread.daemon = True
            try:
                thread.start()
            except RuntimeError:  # there are too many: those that have started will do
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

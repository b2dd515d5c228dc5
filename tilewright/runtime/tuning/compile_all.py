"""Compiling the configurations of a kernel before they are measured, many at once where it pays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base import knobs
from tilewright.base.late import late
from tilewright.runtime.config import Config

LOADING_SECONDS = 0.3
"""What the first compilation of a process takes more than the next: loading the compiler."""
WORTH_SECONDS = 3.0
"""Compiling that takes less in all is nearly over before other processes have started."""
WORKER_SECONDS = 1.0
"""The least work that another process is started for."""

_thread_pool = late("concurrent.futures:ThreadPoolExecutor")
_as_completed = late("concurrent.futures:as_completed")
_shared_pool = late("tilewright.compiler.workers:shared_pool")
_compiling_elsewhere = late("tilewright.compiler.workers:compiling_elsewhere")
_may_start_processes = late("tilewright.compiler.workers:may_start_processes")


def compile_all(
    configs: Sequence[Config],
    compile: Callable[[Config], Any],
    done: Callable[[int], Any],
) -> dict[Config, Exception]:
    """Compile for all of the configurations; gives the errors.

    The first is compiled here, and tells how long the others will take: only where that is long
    are others processes set to work. What they make is in the kernel's memory when it is asked for.

    Args:
        compile: compiles one, in any thread.
        done: called with how many are compiled, in this thread.
    """
    errors: dict[Config, Exception] = {}

    def attempt(config: Config) -> None:
        try:
            compile(config)
        except Exception as error:
            errors[config] = error

    begin = time.perf_counter()
    attempt(configs[0])
    seconds = time.perf_counter() - begin
    rest = configs[1:]
    count = _workers(len(rest), seconds)
    if count < 2:
        for number, config in enumerate(rest, 1):
            done(number)
            attempt(config)
        return errors

    pool = _shared_pool()

    def attempt_elsewhere(config: Config) -> None:
        with _compiling_elsewhere(pool):
            attempt(config)

    with _thread_pool(count, "tilewright-compile") as threads:
        started = [threads.submit(attempt_elsewhere, config) for config in rest]
        for number, _ in enumerate(_as_completed(started), 1):
            done(number)
    return errors


def _workers(remaining: int, seconds: float) -> int:
    """How many processes compile so many configurations that take so long each; less than two
    where this one does it."""
    wanted = knobs.autotuning.workers
    if not _may_start_processes():
        return 0
    if wanted >= 0:
        return min(wanted, remaining)
    work = max(seconds - LOADING_SECONDS, 0.0) * remaining
    return min(_cores(), remaining, int(work / WORKER_SECONDS)) if work > WORTH_SECONDS else 0


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

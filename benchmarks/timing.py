"""Median times of functions that do the same work, measured in turn."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter, sleep
from typing import Any

Run = Callable[[], Any]

SAMPLE_SECONDS = 50e-6
"""A sample lasts at least this long, so that reading the clock does not show."""

BLOCK_SECONDS = 10e-3
"""How long one contestant is measured before the next has its turn."""

WARM_SECONDS = 5e-3
"""How long it runs before that in each turn, for its threads to wake and the caches to fill."""

PAUSE_SECONDS = 10e-3
"""Rest between turns: the threads of GNU OpenMP, which torch uses, spin for some 7 ms after their
work, and would take a core from whoever comes next."""


def medians(runs: Mapping[str, Run], seconds: float = 0.4) -> dict[str, float]:
    """The median seconds of each function.

    They run in turn, in blocks of about 10 ms, so that whatever slows the machine down for a while
    slows all of them. Calls find in the caches what this contestant has used, as far as they hold
    it: each block starts with calls that are not counted.

    Args:
        seconds: about how long each function is measured for; at least three blocks are run.
    """
    loops = {name: max(1, round(SAMPLE_SECONDS / _once(run))) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(max(3, round(seconds / BLOCK_SECONDS))):
        for name, run in runs.items():
            sleep(PAUSE_SECONDS)
            samples[name] += _block(run, loops[name])
    return {name: median(found) for name, found in samples.items()}


def _once(run: Run) -> float:
    """Seconds of one call, after others that compile and warm up."""
    run()
    run()
    start = perf_counter()
    run()
    return max(perf_counter() - start, 1e-9)


def _block(run: Run, loops: int) -> list[float]:
    warm = perf_counter() + WARM_SECONDS
    run()
    while perf_counter() < warm:
        run()
    samples: list[float] = []
    end = perf_counter() + BLOCK_SECONDS
    while not samples or perf_counter() < end:
        start = perf_counter()
        for _ in range(loops):
            run()
        samples.append((perf_counter() - start) / loops)
    return samples


def keep_freed_memory() -> None:
    """Have the C library reuse large blocks instead of giving them back to the system.

    Where torch has no form that writes into a given output, it allocates one. Without this, fresh
    pages from the system would cost it more than the work. (glibc; elsewhere nothing happens.)
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        m_trim_threshold, m_mmap_max = -1, -4  # malloc.h
        mallopt(m_mmap_max, 0)
        mallopt(m_trim_threshold, 2**31 - 1)

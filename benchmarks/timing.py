"""Median times of functions that do the same work, measured alternately."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from time import perf_counter, sleep
from typing import Any

Run = Callable[[], Any]

SAMPLE_SECONDS = 50e-6
"""The least duration of a sample, so that the cost of reading the clock is negligible."""

BLOCK_SECONDS = 10e-3
"""Duration of a contestant's turn."""

WARM_SECONDS = 5e-3
"""Warm-up at the start of each turn, in which threads wake and caches are filled."""

PAUSE_SECONDS = 10e-3
"""Pause between turns: the threads of GNU OpenMP, which torch uses, spin for about 7 ms after their
work and would compete with the next contestant."""


def medians(
    runs: Mapping[str, Run],
    seconds: float = 0.4,
    statistic: Callable[[Iterable[float]], float] = median,
) -> dict[str, float]:
    """The median seconds of each function.

    They run alternately, in blocks of about 10 ms, so that temporary slowdowns of the machine
    affect all of them. Each block starts with uncounted calls, so that caches are warm.

    Args:
        seconds: approximate total time of each function; at least three blocks are run.
        statistic: of the samples; `min` on a machine with other work.
    """
    loops = {name: max(1, round(SAMPLE_SECONDS / _once(run))) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(max(3, round(seconds / BLOCK_SECONDS))):
        for name, run in runs.items():
            sleep(PAUSE_SECONDS)
            samples[name] += _block(run, loops[name])
    return {name: statistic(found) for name, found in samples.items()}


def _once(run: Run) -> float:
    """Seconds of one call, after warm-up calls."""
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
    """Make the C library reuse large blocks instead of returning them to the system.

    Where torch cannot write into a given output, it allocates one; page faults in fresh memory
    would then dominate its time. (glibc only; no effect elsewhere.)
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        m_trim_threshold, m_mmap_max = -1, -4  # malloc.h
        mallopt(m_mmap_max, 0)
        mallopt(m_trim_threshold, 2**31 - 1)

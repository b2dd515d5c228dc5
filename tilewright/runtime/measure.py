"""Measurement of the run time of functions by the clock of a device.

One loop measures on all devices. Statistics are plain Python, because a library may have replaced
torch operators by kernels that are being tuned, which must not be called here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from math import floor
from typing import Any

from tilewright.runtime.clocks import Clock

RETURN_MODES = ("min", "max", "mean", "median", "all")
ESTIMATE_RUNS = 5

HOPELESS_RUN = 4.0
"""A single run that takes this many times the limit ends the measurement."""
HOPELESS = 1.5
"""So does a minimum over the first few runs of this many times the limit."""
HICCUP_MS = 50.0
"""Runs shorter than this (ms) are not given up after one run: another thread or process may have
interfered."""
LOOK_MS = 5.0
"""Measurements shorter than this in total (ms) are not given up: little time would be saved."""


def measure(
    fn: Callable[[], Any],
    clock: Clock,
    warmup: float,
    rep: float,
    *,
    before: Callable[[], Any] | None = None,
    limit: float = float("inf"),
) -> list[float]:
    """Run a function repeatedly; returns the milliseconds of each measured run.

    Args:
        warmup, rep: durations of warm-up and measurement in milliseconds; at least one run each.
        before: called before each run, outside the measurement.
        limit: the time in milliseconds that a run should not exceed. A function that is far slower
            is given up after the first runs, whose times are returned.
    """

    def run() -> float:
        if before is not None:
            before()
        clock.flush()
        start = clock.mark()
        fn()
        return clock.elapsed(start, clock.mark())

    fn()
    clock.synchronize()
    first = run()
    hopeless = max(HOPELESS_RUN * limit, LOOK_MS)
    if hopeless < first < HICCUP_MS:
        first = min(first, run())
    if first > hopeless or first > warmup + rep:
        return [first]
    begin = time.perf_counter()
    times = [first, *(run() for _ in range(ESTIMATE_RUNS - 1))]
    # Includes the overhead around the function; otherwise short functions would run for ever.
    estimate = max((time.perf_counter() - begin) * 1e3 / (ESTIMATE_RUNS - 1), 1e-4)
    if min(times) > HOPELESS * limit and sum(times) > LOOK_MS:
        return times
    if ESTIMATE_RUNS * estimate > warmup + rep:  # these took longer than what remains would
        return times
    for _ in range(max(1, int(warmup / estimate))):
        if before is not None:
            before()
        fn()
    return _all_runs(fn, clock, max(1, int(rep / estimate)), before)


def _all_runs(
    fn: Callable[[], Any], clock: Clock, count: int, before: Callable[[], Any] | None
) -> list[float]:
    """The times of back-to-back runs, without waiting for the device in between."""
    marks: list[tuple[Any, Any]] = []
    for _ in range(count):
        if before is not None:
            before()
        clock.flush()
        start = clock.mark()
        fn()
        marks.append((start, clock.mark()))
    clock.synchronize()
    return [clock.elapsed(start, end) for start, end in marks]


def quantile(times: Sequence[float], q: float) -> float:
    """The q-quantile of the times, with linear interpolation.

    >>> quantile([4.0, 1.0, 2.0, 3.0], 0.5)
    2.5
    """
    ordered = sorted(times)
    at = q * (len(ordered) - 1)
    low = floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def summarize(
    times: Sequence[float], quantiles: Iterable[float] | None = None, return_mode: str = "mean"
) -> Any:
    """The result of `do_bench` for the times of the runs."""
    if quantiles is not None:
        found = [quantile(times, q) for q in quantiles]
        return found[0] if len(found) == 1 else found
    match return_mode:
        case "all":
            return list(times)
        case "min":
            return min(times)
        case "max":
            return max(times)
        case "median":
            return quantile(times, 0.5)
        case _:
            return sum(times) / len(times)


def forget_gradients(tensors: Iterable[Any] | None) -> Callable[[], None] | None:
    """A function that sets the gradients of the tensors to None; None without tensors."""
    if tensors is None:
        return None
    given = list(tensors)

    def forget() -> None:
        for tensor in given:
            tensor.grad = None

    return forget


def bench_on(
    clock: Callable[[], AbstractContextManager[Clock]],
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Iterable[float] | None = None,
    return_mode: str = "mean",
    *,
    fast_flush: bool = True,
) -> Any:
    """`do_bench` (`runtime/bench.py`) by a clock, which is opened for the measurement."""
    assert return_mode in RETURN_MODES
    with clock() as opened:
        times = measure(fn, opened, warmup, rep, before=forget_gradients(grad_to_none))
    return summarize(times, quantiles, return_mode)

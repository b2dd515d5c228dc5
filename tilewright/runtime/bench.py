"""Benchmarking functions on their device.

    do_bench(lambda: kernel[grid](x, y, n, BLOCK=128))                     # mean, in ms
    do_bench(run, quantiles=(0.5, 0.2, 0.8))                               # [median, …]

The `Clock` of a device records timestamps, driver events on a GPU and the wall clock on the CPU, so
that one loop measures both. Statistics are plain Python, because a library may have replaced torch
operators by kernels that are being tuned, which must not be called here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from math import floor
from typing import Any, Protocol

from tilewright.runtime import driver

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

GRAPH_REPLAYS = 10


class Clock(Protocol):
    """Measures time on a device, in stream order.

    Attributes:
        is_devices_own: whether the time is measured by the device, independent of host activity.
    """

    is_devices_own: bool

    def mark(self) -> Any:
        """Record a timestamp after all previously enqueued work."""
        ...

    def elapsed(self, start: Any, end: Any) -> float:
        """Milliseconds between two timestamps; waits for both."""
        ...

    def synchronize(self) -> None:
        """Wait until all enqueued work has finished."""
        ...

    def is_capturing(self) -> bool:
        """Whether work is captured into a graph instead of running: timestamps have no time."""
        ...

    def flush(self) -> None:
        """Evict the device's cache before the next measurement, if that is cheap."""
        ...


class WallClock:
    """Wall clock time, for devices whose launches are synchronous.

    `flush` does nothing: evicting the caches of a CPU takes longer than most kernels.

    Args:
        wait: synchronizes with the device, if launches are asynchronous.
    """

    is_devices_own = False

    def __init__(self, wait: Callable[[], Any] | None = None) -> None:
        self._wait = wait

    def __enter__(self) -> WallClock:
        return self

    def __exit__(self, *error: object) -> None: ...

    def mark(self) -> int:
        self.synchronize()
        return time.perf_counter_ns()

    def elapsed(self, start: int, end: int) -> float:
        return (end - start) / 1e6

    def synchronize(self) -> None:
        if self._wait is not None:
            self._wait()

    def is_capturing(self) -> bool:
        return False

    def flush(self) -> None: ...


def clock_of(device: str) -> AbstractContextManager[Clock]:
    """The clock of a device, given its name: ``clock_of("cuda:0")``."""
    kind, _, index = device.partition(":")
    found: Any = driver.driver_of(kind)
    make = getattr(found, "clock", None)
    if make is not None:
        return make(int(index or 0))
    # An external driver: use torch's interface to the device, which it must have.
    interface = getattr(found, "get_device_interface", None)
    return WallClock(interface().synchronize if interface else None)


def default_device() -> str:
    """The device on which a function is assumed to run: that of the driver that the program set as
    active, else torch's current GPU if it uses one, else the CPU."""
    if not driver.is_default():
        return driver.name_of(driver.active)
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return f"cuda:{cuda.current_device()}"
    return "cpu"


# -- measuring ------------------------------------------------------------------------------------


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


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Iterable[float] | None = None,
    return_mode: str = "mean",
    *,
    device: str | None = None,
    fast_flush: bool = True,
) -> Any:
    """Measure the run time of a function in milliseconds.

    On a GPU, the L2 cache is cleared before each run, and time is measured on the device. On the
    CPU, time is measured by the wall clock, and caches are left as they are.

    Args:
        fn: a function without arguments.
        warmup, rep: durations of warm-up and measurement in milliseconds.
        grad_to_none: tensors whose gradients are set to None before each run.
        quantiles: quantiles to return, as a list; a single one is returned as a number.
        return_mode: without quantiles, one of "min", "max", "mean", "median", "all".
        device: the device on which the function runs, such as ``"cpu"`` or ``"cuda:0"``. By
            default torch's current GPU if the program uses one, else that of the active driver.
        fast_flush: ignored; accepted for compatibility.

    Example:
        ms = do_bench(lambda: torch.add(x, y))
    """
    assert return_mode in RETURN_MODES
    with clock_of(device or default_device()) as clock:
        times = measure(fn, clock, warmup, rep, before=forget_gradients(grad_to_none))
    return summarize(times, quantiles, return_mode)


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Iterable[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Like `do_bench`, for functions whose launch takes longer than their execution: many calls are
    captured into a torch CUDA graph, which is measured. Caches stay warm.

    On the CPU, which has no graphs, this is `do_bench`.

    Args:
        rep: total duration of the runs in the graph, in milliseconds.
    """
    assert return_mode in RETURN_MODES
    device = default_device()
    torch = sys.modules.get("torch")
    if torch is None or not device.startswith("cuda"):
        return do_bench(fn, rep, rep, grad_to_none, quantiles, return_mode, device=device)
    with torch.cuda.stream(torch.cuda.Stream()), clock_of(device) as clock:
        fn()
        clear = forget_gradients(grad_to_none) or (lambda: None)
        clear()
        start = clock.mark()
        for _ in range(ESTIMATE_RUNS):
            fn()
        estimate = clock.elapsed(start, clock.mark()) / ESTIMATE_RUNS
        count = 1000 if estimate == 0 else max(1, int(rep / estimate))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                clear()
                fn()
        torch.cuda.synchronize()
        times: list[float] = []
        for _ in range(GRAPH_REPLAYS):
            start = clock.mark()
            graph.replay()
            times.append(clock.elapsed(start, clock.mark()) / count)
    return summarize(times, quantiles, return_mode)

"""How long something takes on its device.

    do_bench(lambda: kernel[grid](x, y, n, BLOCK=128))                     # mean, in ms
    do_bench(run, quantiles=(0.5, 0.2, 0.8))                               # [median, …]

A device's `Clock` gives marks in its own time, the driver's events on a GPU and the wall clock on
the CPU, so that one loop measures both. Statistics are plain Python: where a library has replaced
torch's operators by kernels that are just being tuned, none of them may be called here.
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
"""A single run that takes so many times the limit ends a measurement."""
HOPELESS = 1.5
"""The fastest of the first few runs taking so many times the limit ends it, too."""
HICCUP_MS = 50.0
"""What takes less than this is not given up after one run: another thread or process may have been
in the way."""
LOOK_MS = 5.0
"""What takes less than this in all is not given up: something else may have been in the way, and
little is gained."""

GRAPH_REPLAYS = 10


class Clock(Protocol):
    """Measures time on a device, in the order of what is started on it.

    Attributes:
        is_devices_own: whether the time is the device's, and what else this machine does meanwhile
            does not enter it.
    """

    is_devices_own: bool

    def mark(self) -> Any:
        """A point in time: after all that was started before it."""
        ...

    def elapsed(self, start: Any, end: Any) -> float:
        """Milliseconds between two marks; waits for both."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was started is done."""
        ...

    def flush(self) -> None:
        """Have what is measured next find the device's cache cold, where that is cheap."""
        ...


class WallClock:
    """The time of this process, for devices whose launches are complete when they return.

    Its `flush` does nothing: clearing the caches of a CPU takes longer than most kernels run.

    Args:
        wait: waits for what was started, where launches return early.
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

    def flush(self) -> None: ...


def clock_of(device: str) -> AbstractContextManager[Clock]:
    """The clock of a device by its name: ``clock_of("cuda:0")``."""
    kind, _, index = device.partition(":")
    found: Any = driver.driver_of(kind)
    make = getattr(found, "clock", None)
    if make is not None:
        return make(int(index or 0))
    # A driver from elsewhere: what it must have is torch's interface to the device.
    interface = getattr(found, "get_device_interface", None)
    return WallClock(interface().synchronize if interface else None)


def default_device() -> str:
    """Where a function that nobody has described is taken to run: on the active driver's device; on
    torch's current GPU where the program uses torch on one."""
    if driver.name_of(driver.active) == "cpu" and driver.is_default():
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and cuda.is_initialized():
            return f"cuda:{cuda.current_device()}"
    return driver.name_of(driver.active)


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
    """Run a function for some time; gives the milliseconds of each run that counts.

    Args:
        warmup, rep: milliseconds that warming up and measuring take; a run is made of each at
            least.
        before: called before each run, and not measured.
        limit: milliseconds that a run should take at most. A function that is hopelessly slower
            than that is given up after the first runs, whose times are the result.
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
    # With what a run costs around the function, or short functions would take for ever.
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
    """The times of runs that follow each other without waiting for the device."""
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
    """The value below which a part `q` of the times lies, linearly between neighbours.

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
    """What `do_bench` gives for the times of the runs."""
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
    """What sets the gradients of tensors to None; None without tensors."""
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
    """How long a function takes, in milliseconds.

    On a GPU each run finds the L2 cache cleared, and the time is the device's. On the CPU it is
    the wall clock's, with caches as they are.

    Args:
        fn: takes no arguments.
        warmup, rep: milliseconds for which it runs before, and while it is measured.
        grad_to_none: tensors whose gradients are set to None before each run.
        quantiles: which quantiles of the runs' times to give, as a list; of one, the number.
        return_mode: without quantiles, one of "min", "max", "mean", "median", "all".
        device: where the function runs, such as ``"cpu"`` or ``"cuda:0"``. By default torch's
            current GPU if the program uses torch on one, else the active driver's device.
        fast_flush: accepted for callers that pass it; clearing the cache is always fast.

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
    """Like `do_bench`, for functions so short that launching them takes longer than they run: they
    are captured, many at once, into a graph of torch's, which is measured. Caches stay warm.

    On the CPU, where there are no graphs, it is `do_bench`.

    Args:
        rep: milliseconds that the runs in a graph take together.
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

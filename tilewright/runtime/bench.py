"""Benchmarking functions on their device.

    do_bench(lambda: kernel[grid](x, y, n, BLOCK=128))                     # mean, in ms
    do_bench(run, quantiles=(0.5, 0.2, 0.8))                               # [median, …]

`runtime/measure.py` measures by the clock of the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from tilewright.runtime import driver
from tilewright.runtime.clocks import Clock, WallClock
from tilewright.runtime.measure import (
    ESTIMATE_RUNS,
    RETURN_MODES,
    bench_on,
    forget_gradients,
    summarize,
)

GRAPH_REPLAYS = 10


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
    clock = partial(clock_of, device or default_device())
    return bench_on(clock, fn, warmup, rep, grad_to_none, quantiles, return_mode)


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

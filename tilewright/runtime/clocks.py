"""Clocks of devices: driver events on a GPU, the wall clock on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol


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

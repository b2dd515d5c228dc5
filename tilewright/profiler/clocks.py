"""Times of launches on any device.

On the CPU, whose launches are synchronous, a time is known at once. GPUs record events, whose
times are read in batches: reading waits for the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tilewright.runtime import bench

BATCH = 1024
"""Launches of a GPU between two waits for it."""

Receive = Callable[[int, int], None]
"""Takes the beginning of a launch and its duration, in ns of `time.perf_counter_ns`."""


class _Pending(NamedTuple):
    start: Any
    end: Any
    receive: Receive


class DeviceTimes:
    """Measures launches on a device.

    Args:
        device: its name, such as ``cuda:0``.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._pending: list[_Pending] = []
        self._context = bench.clock_of(device)
        self._clock = self._context.__enter__()
        self._base: Any = None
        self._base_ns = 0

    def mark(self) -> Any:
        """A timestamp after the work that is already enqueued; None while that is captured into a
        graph, and does not run."""
        if self._clock.is_capturing():
            return None
        if self._base is None:
            self._clock.synchronize()
            self._base = self._clock.mark()
            self._base_ns = time.perf_counter_ns()
        return self._clock.mark()

    def record(self, start: Any, receive: Receive) -> None:
        """Pass on the time from `start` until the end of the work that is enqueued: now, or once
        the device is done."""
        if start is None or self._clock.is_capturing():
            return
        self._pending.append(_Pending(start, self._clock.mark(), receive))
        if not self._clock.is_devices_own:
            self._read()
        elif len(self._pending) >= BATCH:
            self.resolve()

    def resolve(self) -> None:
        """Pass on all times, after waiting for the device; its events are released."""
        if not self._pending:
            return
        self._read()
        self._context.__exit__(None, None, None)
        self._context = bench.clock_of(self._device)
        self._clock = self._context.__enter__()
        self._base = None

    def close(self) -> None:
        self._read()
        self._context.__exit__(None, None, None)

    def _read(self) -> None:
        pending, self._pending = self._pending, []
        for start, end, receive in pending:
            begin = self._clock.elapsed(self._base, start)
            duration = self._clock.elapsed(start, end)
            receive(self._base_ns + round(begin * 1e6), round(duration * 1e6))

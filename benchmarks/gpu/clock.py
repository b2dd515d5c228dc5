"""Times of work, on the GPU by its own events or on the host; contestants take turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import torch

Run = Callable[[], Any]

FLUSH = 4
"""A flush writes so many times the size of the L2 cache, which takes longer than a launch."""

COLD_BELOW = 4
"""Work that touches less than so many times the L2 is timed with a flush before each call."""


@dataclass(frozen=True)
class Timing:
    """Microseconds, and the range of the blocks' medians over the median of all."""

    us: float
    spread: float


class Clock(Protocol):
    """What takes times of calls that touch so many bytes."""

    def quick(self, run: Run, touched: int) -> float:
        """About how many microseconds a call takes, to choose among configurations."""
        ...

    def compare(self, runs: Mapping[str, Run], touched: int) -> dict[str, Timing]:
        """The median time of each, measured in turn, so that a slow moment meets all of them."""
        ...


class CudaClock:
    """Takes times on the current device.

    Args:
        block_ms: about how long a contestant works before the next has its turn.
        rounds: how many turns each has.
    """

    def __init__(self, block_ms: float, rounds: int) -> None:
        self.block_ms = block_ms
        self.rounds = rounds
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self._junk = torch.empty(FLUSH * self.l2, dtype=torch.int8, device="cuda")

    def samples(self, run: Run, count: int, cold: bool) -> list[float]:
        """Microseconds of each of `count` calls.

        The GPU gets all calls at once and is never waited for in between. With `cold`, a fill of
        a large buffer before each call pushes the call's data out of the L2. It also keeps the GPU
        busy while the host prepares the call, so that a short kernel starts as soon as it may.
        """
        events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(count)
        ]
        for start, end in events:
            if cold:
                self._junk.zero_()
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in events]

    def quick(self, run: Run, touched: int) -> float:
        run()
        return median(self.samples(run, 5, self.is_cold(touched)))

    def is_cold(self, touched: int) -> bool:
        """Whether work that touches so many bytes is timed with flushes."""
        return touched < COLD_BELOW * self.l2

    def compare(self, runs: Mapping[str, Run], touched: int) -> dict[str, Timing]:
        cold = self.is_cold(touched)
        counts = {
            name: min(50, max(2, round(self.block_ms * 1e3 / self.quick(run, touched))))
            for name, run in runs.items()
        }
        blocks: dict[str, list[list[float]]] = {name: [] for name in runs}
        for _ in range(self.rounds):
            for name, run in runs.items():
                run()  # of a turn, the first call is not counted
                blocks[name].append(self.samples(run, counts[name], cold))
        return {name: _timing(found) for name, found in blocks.items()}


class HostClock:
    """Takes the host's time for calls that only hand work to the GPU, of which there is little.

    The calls of a block fit into the queue of the GPU, so that none waits for it.
    """

    CALLS = 200
    ROUNDS = 20

    def quick(self, run: Run, touched: int) -> float:
        run()
        return self._block(run)

    def compare(self, runs: Mapping[str, Run], touched: int) -> dict[str, Timing]:
        blocks: dict[str, list[list[float]]] = {name: [] for name in runs}
        for _ in range(self.ROUNDS):
            for name, run in runs.items():
                blocks[name].append([self._block(run)])
        return {name: _timing(found) for name, found in blocks.items()}

    def _block(self, run: Run) -> float:
        torch.cuda.synchronize()
        start = perf_counter()
        for _ in range(self.CALLS):
            run()
        end = perf_counter()
        torch.cuda.synchronize()
        return (end - start) / self.CALLS * 1e6


def _timing(blocks: list[list[float]]) -> Timing:
    middle = median(sample for block in blocks for sample in block)
    medians = [median(block) for block in blocks]
    return Timing(middle, (max(medians) - min(medians)) / middle)


def copy_bandwidth(clock: CudaClock, size: int = 2**32) -> float:
    """GB/s, read and written, of a copy of `size` bytes from the device to itself."""
    source = torch.empty(size, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    timing = clock.compare({"copy": lambda: target.copy_(source)}, 2 * size)["copy"]
    return 2 * size / timing.us / 1e3

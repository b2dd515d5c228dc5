"""Timing by GPU events or by the host's clock; contestants are measured alternately."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice, zip_longest
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import torch

Run = Callable[[], Any]

FLUSH = 4
"""Bytes written by a flush, as a multiple of the L2 size; it takes longer than a launch."""

COLD_BELOW = 4
"""Work that touches less than this multiple of the L2 size is timed with a flush before each
call."""


@dataclass(frozen=True)
class Timing:
    """Median microseconds, and the range of the medians of blocks relative to it."""

    us: float
    spread: float


class Clock(Protocol):
    """Measures times of calls; `touched` is the number of bytes that a call accesses."""

    def quick(self, run: Run, touched: int) -> float:
        """A quick estimate of a call's microseconds, to choose among configurations."""
        ...

    def compare(self, runs: Mapping[str, Run], touched: int) -> dict[str, Timing]:
        """The median time of each, measured alternately, so that temporary slowdowns affect all."""
        ...


class CudaClock:
    """Measures times on the current device, by CUDA events.

    Args:
        block_ms: approximate duration of a contestant's turn.
        rounds: number of turns of each.
    """

    def __init__(self, block_ms: float, rounds: int) -> None:
        self.block_ms = block_ms
        self.rounds = rounds
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self._junk = torch.empty(FLUSH * self.l2, dtype=torch.int8, device="cuda")

    def samples(self, run: Run, count: int, cold: bool) -> list[float]:
        """Microseconds of each of `count` calls.

        All calls are enqueued without synchronisation in between. With `cold`, a large buffer is
        filled before each call, which evicts the call's data from the L2. It also keeps the GPU
        busy while the host prepares the call, so that the host's overhead is hidden.
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
        """Whether work that touches this many bytes is timed with flushes."""
        return touched < COLD_BELOW * self.l2

    def compare(self, runs: Mapping[str, Run], touched: int) -> dict[str, Timing]:
        cold = self.is_cold(touched)
        counts = {
            name: min(50, max(2, round(self.block_ms * 1e3 / self.quick(run, touched))))
            for name, run in runs.items()
        }
        blocks: dict[str, list[list[float]]] = {name: [] for name in runs}
        for order in turn_orders(list(runs), self.rounds):
            for name in order:
                runs[name]()  # of a turn, the first call is not counted
                blocks[name].append(self.samples(runs[name], counts[name], cold))
        return {name: _timing(found) for name, found in blocks.items()}


class HostClock:
    """Measures asynchronous calls by the host's clock.

    Args:
        calls: of a block. They fit into the queue of the GPU, so that none blocks.
        until_done: whether a block ends when the GPU has executed its calls, rather than when the
            last one returns.
    """

    ROUNDS = 20

    def __init__(self, calls: int = 200, until_done: bool = False) -> None:
        self.calls = calls
        self.until_done = until_done

    def quick(self, run: Run, touched: int) -> float:
        run()
        return self._block(run)

    def compare(self, runs: Mapping[str, Run], touched: int) -> dict[str, Timing]:
        blocks: dict[str, list[list[float]]] = {name: [] for name in runs}
        for order in turn_orders(list(runs), self.ROUNDS):
            for name in order:
                blocks[name].append([self._block(runs[name])])
        return {name: _timing(found) for name, found in blocks.items()}

    def _block(self, run: Run) -> float:
        torch.cuda.synchronize()
        start = perf_counter()
        for _ in range(self.calls):
            run()
        if self.until_done:
            torch.cuda.synchronize()
        end = perf_counter()
        torch.cuda.synchronize()
        return (end - start) / self.calls * 1e6


def turn_orders(names: Sequence[str], rounds: int) -> Iterator[list[str]]:
    """The order in which contestants take their turns, for each round.

    Each contestant follows each other one about equally often, as in a Williams design (a Latin
    square balanced for carry-over). With a fixed order, a contestant always has the same
    predecessor, and one that runs after a slow kernel has a higher clock at the GPU's power limit.
    """
    count = len(names)
    middle = (count + 1) // 2
    pairs = zip_longest(range(middle), range(count - 1, middle - 1, -1))
    zigzag = [i for i in chain.from_iterable(pairs) if i is not None]  # 0, n - 1, 1, n - 2, …
    rows = [[names[(i + shift) % count] for i in zigzag] for shift in range(count)]
    yield from islice(cycle(chain.from_iterable((row, row[::-1]) for row in rows)), rounds)


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

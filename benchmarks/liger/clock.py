"""Times of an operator's forward and backward pass, each with a cold L2 cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import torch

from benchmarks.liger.call import Call

PARTS = ("forward", "backward", "both")
"""The timed parts: each pass alone, and both in sequence."""

FLUSH = 4
"""Bytes written by a flush, as a multiple of the L2 size."""

CYCLES_PER_SECOND = 2e9
LEAST_SLEEP, MOST_SLEEP = 1e-3, 5e-3
"""Limits, in seconds, of the delay on the GPU before the timed work. The delay is four times the
host's time for the work, so that all of it is enqueued when the GPU begins. Synchronisation within
an operator is still measured."""

Times = dict[str, list[float]]
Measured = Callable[[], float]
"""Returns the microseconds between two events; call it after synchronisation."""


class Clock(Protocol):
    def timed(self, run: Callable[[], Any]) -> tuple[Any, Measured]:
        """Run a function; returns its result and a function that returns its duration."""
        ...

    def wait(self) -> None:
        """Wait until all work is complete."""
        ...

    def expect(self, seconds: float) -> None:
        """Set the longest time that the host takes for the calls that are timed next."""
        ...


class CudaClock:
    """Measures times by CUDA events."""

    def __init__(self) -> None:
        size = FLUSH * torch.cuda.get_device_properties(0).L2_cache_size
        self._junk = torch.empty(size, dtype=torch.int8, device="cuda")
        self._cycles = round(LEAST_SLEEP * CYCLES_PER_SECOND)

    def timed(self, run: Callable[[], Any]) -> tuple[Any, Measured]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._junk.zero_()
        torch.cuda._sleep(self._cycles)
        start.record()
        result = run()
        end.record()
        return result, lambda: start.elapsed_time(end) * 1e3

    def wait(self) -> None:
        torch.cuda.synchronize()

    def expect(self, seconds: float) -> None:
        sleep = min(max(4 * seconds, LEAST_SLEEP), MOST_SLEEP)
        self._cycles = round(sleep * CYCLES_PER_SECOND)


class HostClock:
    """Measures the host's time, for a rehearsal without a GPU."""

    def timed(self, run: Callable[[], Any]) -> tuple[Any, Measured]:
        start = perf_counter()
        result = run()
        us = (perf_counter() - start) * 1e6
        return result, lambda: us

    def wait(self) -> None:
        pass

    def expect(self, seconds: float) -> None:
        pass


class Timed:
    """An operator that is ready to be timed: compiled and tuned, with its arguments saved.

    Args:
        call: the operator with its arguments.
        count: the number of its results that have gradients.
        clock: measures the times.
    """

    def __init__(self, call: Call, count: int, clock: Clock) -> None:
        self.call, self.count, self.clock = call, count, clock
        arguments = [x for x in call.args if isinstance(x, torch.Tensor)]
        before = [x.detach().clone() for x in arguments]
        results = call.forward(count)
        state = torch.Generator(results[0].device).manual_seed(3)
        # The gradient of a loss is 1, as in training.
        self.weights = [
            torch.randn(x.shape, generator=state, device=x.device).to(x.dtype)
            if x.ndim
            else torch.ones_like(x)
            for x in results
        ]
        arguments += self.weights
        before += [x.clone() for x in self.weights]
        call.backward(results, self.weights)
        del results
        # Some operators modify their arguments: they are restored before each call.
        self._overwritten = [
            (x, was)
            for x, was in zip(arguments, before, strict=True)
            if not torch.equal(x.detach(), was)
        ]
        self._sample()
        self._restore()
        clock.wait()
        start = perf_counter()
        call.backward(self._forward(), self.weights)
        clock.expect(perf_counter() - start)
        clock.wait()
        start = perf_counter()
        self._sample()
        clock.wait()
        self.seconds = perf_counter() - start

    def samples(self, seconds: float) -> Times:
        """Microseconds of each part: 3 to 25 samples within about `seconds`."""
        count = min(25, max(3, round(seconds / self.seconds)))
        self._sample()
        found = [self._sample() for _ in range(count)]
        self.clock.wait()
        return {part: [sample[part]() for sample in found] for part in PARTS}

    def _sample(self) -> dict[str, Measured]:
        self._restore()
        results, forward = self.clock.timed(self._forward)
        _, backward = self.clock.timed(partial(self.call.backward, results, self.weights))
        del results
        self._restore()
        _, both = self.clock.timed(lambda: self.call.backward(self._forward(), self.weights))
        return {"forward": forward, "backward": backward, "both": both}

    def _forward(self) -> list[torch.Tensor]:
        return self.call.forward(self.count)

    def _restore(self) -> None:
        with torch.no_grad():
            for x, was in self._overwritten:
                x.copy_(was)

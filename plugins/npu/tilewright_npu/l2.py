"""The second level of memory, which the cores of a cluster share."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright_npu.machine import (
    DMA_BYTES,
    DMA_LATENCY,
    DMA_OVERHEAD,
    L2_BURSTS,
    L2_BYTES,
    L2_LATENCY,
    L2_LINE,
)

Array = np.ndarray[Any, Any]


class L2:
    """The lines that cores of the cluster have read, the oldest first."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[int, int]] = {}  # when each is requested and when it arrives

    def read(self, addresses: Array, start: int) -> tuple[int, int]:
        """Read elements; a line that is not there, or has not been requested yet, is requested.

        Args:
            addresses: of the elements.
            start: the time.

        Returns:
            the cycles of the copy, and the time when it is complete.
        """
        bursts = np.unique(addresses // DMA_BYTES)
        lines, counts = np.unique(bursts * DMA_BYTES // L2_LINE, return_counts=True)
        there, absent, arrival, missed = 0, 0, 0, list[int]()
        for line, count in zip(lines.tolist(), counts.tolist(), strict=True):
            requested, arrives = self._lines.get(line, (start + 1, 0))
            if requested <= start:
                there += count
                arrival = max(arrival, arrives)
            else:
                absent += count
                missed.append(line)
        cycles = absent + -(-there // L2_BURSTS) + DMA_OVERHEAD
        done = start + cycles + (DMA_LATENCY if absent else L2_LATENCY)
        for line in missed:
            self._lines[line] = start, done
        while len(self._lines) * L2_LINE > L2_BYTES:
            del self._lines[next(iter(self._lines))]
        return cycles, max(done, arrival)

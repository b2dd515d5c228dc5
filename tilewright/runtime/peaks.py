"""The peak performance of a kind of device, which need not be present."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """The peak performance of a kind of device.

    Attributes:
        device: its name.
        gbps: memory bandwidth in GB/s.
        tflops: throughput in TFLOP/s for an element type in short form, with matrix units if the
            flag is set, otherwise without; a multiply-add counts as two operations. Raises
            ValueError if not applicable.
    """

    device: str
    gbps: float
    tflops: Callable[[str, bool], float]

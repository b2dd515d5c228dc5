"""What a kind of device can do at most, whether or not there is one here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """The limits of a kind of device.

    Attributes:
        device: its name.
        gbps: gigabytes a second that its memory moves.
        tflops: tera-operations a second on elements of a type, in its short form, of matrix units
            (if the flag is set) or others; a multiply-add counts as two. ValueError where there
            are none.
    """

    device: str
    gbps: float
    tflops: Callable[[str, bool], float]

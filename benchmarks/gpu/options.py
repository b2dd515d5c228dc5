"""What a worker is told, and what its exit status tells. Nothing large is imported here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

DEVICE_LOST = 3
"""Exit status after a failure that left the device unusable; the row is kept."""

CASE_SECONDS = 90
"""A case that takes longer ends the worker."""


@dataclass(frozen=True)
class Options:
    """What to do.

    Attributes:
        path: the results' file.
        only: parts of the names of families, with commas between; "" for all.
        modules: what the kernels are loaded for.
        device: "cuda" or "cpu".
        scale: one of `case.SCALES`.
        timed: whether times are taken, or results only checked.
        until: no case is begun after this time, in seconds as `time.time` counts them; None for
            no limit.
    """

    path: str
    only: str
    modules: tuple[str, ...]
    device: str
    scale: str
    timed: bool
    until: float | None = None

    def text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: str) -> Options:
        found: dict[str, Any] = json.loads(text)
        found["modules"] = tuple(found["modules"])
        return Options(**found)

"""The options and exit statuses of a worker process. This module imports nothing large."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

DEVICE_LOST = 3
"""Exit status after a failure that left the device unusable; the row has been saved."""

CASE_SECONDS = 90
"""Limit for a case, after which the worker is killed."""


@dataclass(frozen=True)
class Options:
    """The options of a worker.

    Attributes:
        path: the file of results.
        only: substrings of the names of families, separated by commas; "" for all.
        modules: compilers to measure.
        device: "cuda" or "cpu".
        scale: one of `case.SCALES`.
        timed: whether to measure times; otherwise results are only checked.
        until: no case is started after this `time.time`; None for no limit.
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

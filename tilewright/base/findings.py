"""The results of the installation checks of `tools/doctor.py`."""

from __future__ import annotations

from dataclasses import dataclass

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        level: ``ok``; ``note`` if something optional is absent or unusual; ``problem`` if
            something fails.
        what: the subject, one or two words.
        summary: the result.
        advice: how to fix it; "" if nothing is needed.
    """

    level: str
    what: str
    summary: str
    advice: str = ""

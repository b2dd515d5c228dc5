"""What an examination of this installation finds (`tools/doctor.py`)."""

from __future__ import annotations

from dataclasses import dataclass

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was found.

    Attributes:
        level: ``ok``, ``note`` for what is absent or odd, ``problem`` for what fails.
        what: a word or two.
        says: what it is like.
        advice: what to do about it, "" for nothing.
    """

    level: str
    what: str
    says: str
    advice: str = ""

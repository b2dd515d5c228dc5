"""Human-readable numbers."""

from __future__ import annotations

from typing import Any


def number(value: float) -> str:
    """A number with thousands separators; integers without a decimal point.

    >>> number(1234567.0), number(0.25)
    ('1 234 567', '0.25')
    """
    if value == int(value):
        return f"{int(value):,}".replace(",", "\u202f")
    return f"{value:.3g}" if abs(value) < 1000 else number(round(value))


def scaled(value: float, unit: str, step: float = 1000) -> str:
    """A number with a prefix of its unit: ``3.2 GB``, or with a step of 1024, ``16 KiB``.

    >>> scaled(3.2e9, "B"), scaled(16384, "B", 1024), scaled(12, "FLOP")
    ('3.2 GB', '16 KiB', '12 FLOP')
    """
    prefixes = ("", "k", "M", "G", "T", "P") if step == 1000 else ("", "Ki", "Mi", "Gi", "Ti")
    index = 0
    while abs(value) >= step and index < len(prefixes) - 1:
        value, index = value / step, index + 1
    digits = f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{digits} {prefixes[index]}{unit}".rstrip()


def duration(seconds: float) -> str:
    """A time in the largest unit in which it is at least 1.

    >>> duration(1.25e-5)
    '12.5 µs'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def amount(value: float, unit: str) -> str:
    """An amount of a resource."""
    if unit == "bytes":
        return scaled(value, "B", 1024)
    return f"{number(value)}{' ' if unit not in ('', '%') else ''}{unit}"


def plural(count: int, what: str) -> str:
    """``1 line``, ``2 lines``."""
    return f"{count} {what}{'s' * (count != 1)}"


MOST_CHARACTERS = 60


def short(value: Any) -> str:
    """The text of a value, truncated to `MOST_CHARACTERS`."""
    text = str(value)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"

"""Numbers as people read them."""

from __future__ import annotations

from typing import Any


def number(value: float) -> str:
    """With thousands apart; whole numbers without a point.

    >>> number(1234567.0), number(0.25)
    ('1 234 567', '0.25')
    """
    if value == int(value):
        return f"{int(value):,}".replace(",", "\u202f")
    return f"{value:.3g}" if abs(value) < 1000 else number(round(value))


def scaled(value: float, unit: str, step: float = 1000) -> str:
    """With a prefix: ``3.2 GB``; by 1024, ``16 KiB``.

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
    """In the unit that fits.

    >>> duration(1.25e-5)
    '12.5 µs'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def amount(value: float, unit: str) -> str:
    """A number of something that a kernel takes."""
    if unit == "bytes":
        return scaled(value, "B", 1024)
    return f"{number(value)}{' ' if unit not in ('', '%') else ''}{unit}"


def plural(count: int, what: str) -> str:
    """``1 line``, ``2 lines``."""
    return f"{count} {what}{'s' * (count != 1)}"


def short(value: Any, limit: int = 60) -> str:
    """Any value's text, cut if it is long."""
    text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"

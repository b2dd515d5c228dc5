"""Writes docs/compile-time.md and its figure from the results of `compile_scaling.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import ROOT
from benchmarks.compile_forms import FORMS, PARTS

PAGE = ROOT / "docs" / "compile-time.md"
PICTURE = ROOT / "docs" / "compile-time.svg"

TARGETS = {"cpu": "CPU", "cuda:90": "sm_90"}

LIMIT_SECONDS = 5.0
"""The limit for the kernels `compile_scaling.BARS`, in seconds of wall-clock time."""

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#7f5539")

Row = dict[str, Any]

INTRODUCTION = """\
# Compile time

Written by `python -m benchmarks.compile_scaling --write-docs`; run it again rather than change
numbers here. How long small kernels take is in [the benchmarks](benchmarks.md#first-compile).

- Each measurement is a process of its own in which nothing was compiled before. It ends at object
  code for the CPU, and at a cubin for sm_90; the disk cache is not used. The bytecode of Python
  modules is cached, as that of installed packages is.
- Times are seconds of processor time, of child processes too. Where ptxas runs twice at once, both
  count. *wall* is by the clock.
- The ops of a kernel are counted in its source, with loops unrolled. Tiles have 128 elements, those
  of the kernels with a limit 1,024 (128 in *chain*, *Newton* and *SHA-256*).
- An **exponent** p says that time grew as n^p from the second longest kernel that was measured to
  the longest. That of n log n is 1.1 there. *> 30 s*: stopped after so many seconds by the clock.
- **of n log n**: by what factor the time grew from the shortest kernel to the longest, over the
  factor by which n log n grew. At most 1: no faster than n log n over the whole range.
"""


def exponent(rows: Iterable[Row], part: str = "total") -> float | None:
    """The exponent p of a power law, time ~ ops^p, between the two largest kernels; None if there
    are fewer than two."""
    points = sorted((row["ops"], row["seconds"].get(part, 0.0)) for row in rows if "seconds" in row)
    if len(points) < 2 or not points[-2][1] or not points[-1][1]:
        return None
    (n, few), (m, many) = points[-2:]
    return math.log(many / few) / math.log(m / n)


def growth(rows: Iterable[Row]) -> float | None:
    """The factor by which the time grew from the smallest kernel to the largest, over that by which
    n log n grew; None if there are fewer than two."""
    points = sorted((row["ops"], row["seconds"]["total"]) for row in rows if "seconds" in row)
    if len(points) < 2:
        return None
    (n, few), (m, many) = points[0], points[-1]
    return many / few / (m * math.log(m) / (n * math.log(n)))


def write(results: dict[str, Any]) -> None:
    """Write the page and the picture.

    Args:
        results: ``rows`` and ``bars`` of `compile_scaling.py`, the ``machine``, and the ``load``
            before and after.
    """
    PICTURE.write_text(picture(results["rows"]), "utf-8")
    PAGE.write_text("\n".join(page(results)) + "\n", "utf-8")


def page(results: dict[str, Any]) -> Iterable[str]:
    """The lines of the page."""
    rows, (before, after) = results["rows"], results["load"]
    yield INTRODUCTION
    yield from (f"- {what}: {text}" for what, text in results["machine"].items())
    yield (
        f"- other work: the load average was {before} before and {after} after; what is above 1 is "
        "other work on a busy machine, which makes *wall* longer"
    )
    yield ""
    yield f"![Seconds over the number of ops, both on logarithmic scales]({PICTURE.name})"
    yield from tables(rows)
    if results["bars"]:
        yield from ("", f"## Kernels with a limit of {LIMIT_SECONDS:.0f} s", "")
        yield from bars_table(results["bars"])


def tables(rows: Sequence[Row]) -> Iterable[str]:
    """The tables of all targets, each with a heading."""
    for target, title in TARGETS.items():
        of_target = [row for row in rows if row["target"] == target]
        if of_target:
            yield from ("", f"## {title}", "", *table(of_target))


def table(rows: Sequence[Row]) -> Iterable[str]:
    """For one target: the totals by size with the exponents, then the parts of the longest."""
    sizes = sorted({row["size"] for row in rows})
    forms = list(dict.fromkeys(row["form"] for row in rows))
    parts = [p for p in PARTS if any(p in row.get("seconds", {}) for row in rows)]
    yield f"| form | {' | '.join(f'{n:,} ops' for n in sizes)} | exponent | of n log n |"
    yield "|---|" + "---:|" * (len(sizes) + 2)
    for form in forms:
        found = [row for row in rows if row["form"] == form]
        by_size = {row["size"]: _total(row) for row in found}
        totals = " | ".join(by_size.get(n, "") for n in sizes)
        grew = _number(growth(found))
        yield f"| {FORMS[form].title} | {totals} | **{_power(found)}** | **{grew}** |"
    yield from ("", "Parts of the longest kernel of each form, with the exponent of each part:", "")
    yield f"| form | ops | {' | '.join(parts)} | wall |"
    yield "|---|" + "---:|" * (len(parts) + 2)
    for form in forms:
        found = [row for row in rows if row["form"] == form]
        measured = [row for row in found if "seconds" in row]
        if measured:
            last = max(measured, key=lambda row: row["ops"])
            cells = [f"{_seconds(last['seconds'][p])} ({_power(found, p)})" for p in parts]
            wall = _seconds(last["seconds"]["wall"])
            yield f"| {FORMS[form].title} | {last['ops']:,} | {' | '.join(cells)} | {wall} |"


def bars_table(rows: Sequence[Row]) -> Iterable[str]:
    """Wall-clock seconds of the kernels with a limit, for each target."""
    yield f"| kernel | steps | ops | {' | '.join(f'{t}, wall' for t in TARGETS.values())} |"
    yield "|---|---:|---:|" + "---:|" * len(TARGETS)
    for form in dict.fromkeys(row["form"] for row in rows):
        found = {row["target"]: row for row in rows if row["form"] == form}
        first = next(iter(found.values()))
        cells = " | ".join(_within_limit(found[t]) if t in found else "" for t in TARGETS)
        yield f"| {FORMS[form].title} | {first['steps']:,} | {first['ops']:,} | {cells} |"


def _within_limit(row: Row) -> str:
    if "missing" in row:
        return f"{row['missing']}, **too long**"
    wall = row["seconds"]["wall"]
    return _seconds(wall) if wall < LIMIT_SECONDS else f"{_seconds(wall)}, **too long**"


def _total(row: Row) -> str:
    return row["missing"] if "missing" in row else _seconds(row["seconds"]["total"])


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.2f}"


def _power(rows: Sequence[Row], part: str = "total") -> str:
    return _number(exponent(rows, part))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


# -- picture --------------------------------------------------------------------------------------

PANEL, TOP, LEFT, GAP = 300, 40, 60, 60
OPS, SECONDS = (100, 10_000), (0.03, 100)
"""The ranges of the axes; both are logarithmic."""


def picture(rows: Sequence[Row]) -> str:
    """The totals over the ops as SVG: a panel for each target, with dashed lines for n log n."""
    forms = list(dict.fromkeys(row["form"] for row in rows))
    colours = dict(zip(forms, COLOURS, strict=False))
    width, height = LEFT + 2 * PANEL + GAP + 20, TOP + PANEL + 50 + 18 * math.ceil(len(forms) / 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for k, (target, title) in enumerate(TARGETS.items()):
        left = LEFT + k * (PANEL + GAP)
        parts += [*_axes(left, title)]
        for form in forms:
            found = [r for r in rows if (r["form"], r["target"]) == (form, target)]
            points = [(r["ops"], r["seconds"]["total"]) for r in found if "seconds" in r]
            parts.append(_line(left, points, f'stroke="{colours[form]}" stroke-width="1.8"'))
    for k, form in enumerate(forms):
        x, y = LEFT + 225 * (k % 3), TOP + PANEL + 52 + 18 * (k // 3)
        parts.append(f'<rect x="{x}" y="{y - 9}" width="14" height="9" fill="{colours[form]}"/>')
        parts.append(f'<text x="{x + 20}" y="{y}">{FORMS[form].title}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axes(left: float, title: str) -> Iterable[str]:
    yield (
        f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{PANEL}" fill="none" stroke="#888"/>'
        f'<text x="{left + PANEL / 2}" y="{TOP - 12}" text-anchor="middle">{title}: seconds of '
        f"processor time</text>"
        f'<text x="{left + PANEL / 2}" y="{TOP + PANEL + 32}" text-anchor="middle">ops; dashed: '
        f"n log n</text>"
    )
    for n in (100, 1000, 10_000):
        x, _ = _place(left, n, 1)
        yield f'<text x="{x}" y="{TOP + PANEL + 16}" text-anchor="middle">{n:,}</text>'
    for seconds in (0.1, 1, 10, 100):
        _, y = _place(left, 100, seconds)
        yield f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{seconds:g}</text>'
        yield f'<path d="M{left},{y}h{PANEL}" stroke="#ddd"/>'
    for start in (0.03, 0.1, 0.3):
        growth = [(n, start * n * math.log(n) / (100 * math.log(100))) for n in (100, 1000, 10_000)]
        yield _line(left, growth, 'stroke="#999" stroke-dasharray="4 4"')


def _line(left: float, points: Sequence[tuple[float, float]], style: str) -> str:
    places = " ".join("{:.1f},{:.1f}".format(*_place(left, *point)) for point in points)
    return f'<polyline points="{places}" fill="none" {style}/>'


def _place(left: float, ops: float, seconds: float) -> tuple[float, float]:
    across, up = _part(ops, OPS), _part(seconds, SECONDS)
    return left + PANEL * across, TOP + PANEL * (1 - up)


def _part(value: float, ends: tuple[float, float]) -> float:
    """Position on a logarithmic axis, from 0 to 1."""
    low, high = ends
    return min(1.0, max(0.0, math.log(max(value, low) / low) / math.log(high / low)))

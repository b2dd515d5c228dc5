"""Render the report as text for a terminal, without listings and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import basename

from tilewright.tools.explain.formatting import amount, duration, plural, scaled
from tilewright.tools.explain.report import LocatedRemark, Report
from tilewright.tools.explain.roofline import MEMORY

MAX_COSTS = 12


def as_text(report: Report) -> str:
    """The whole report."""
    parts = [
        _head(report),
        _section("Resources", _resources(report)),
        _section("Cost of a launch", _cost(report)),
        _section("Missed optimisations", _remarks(report, missed=True)),
        _section("Applied optimisations", _remarks(report, missed=False)),
        _section("Blocks of memory", _accesses(report)),
        _section("Layouts", _layouts(report)),
        _section("Passes", _passes(report)),
        _section("Code", _code(report)),
    ]
    return "\n".join(part for part in parts if part)


def _section(title: str, lines: Iterator[str]) -> str:
    found = list(lines)
    return "\n".join(["", title, "─" * len(title), *found]) if found else ""


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        yield "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()


def _head(report: Report) -> str:
    arguments = ", ".join(f"{name}: {type}" for name, type in report.arguments.items())
    options = " ".join(f"{name}={value}" for name, value in report.options.items())
    lines = [
        f"{report.kernel} for {report.target}  ({report.place})",
        f"  ({arguments})",
        *([f"  {options}"] if options else []),
        f"  {report.origin}",
    ]
    return "\n".join(lines)


def _resources(report: Report) -> Iterator[str]:
    rows = [
        (
            "!" if use.missed else " ",
            use.name,
            amount(use.used, use.unit),
            f"of {amount(use.limit, use.unit)}" if use.limit is not None else "",
            use.note,
        )
        for use in report.resources
    ]
    yield from _table(rows)


def _cost(report: Report) -> Iterator[str]:
    cost, roofline = report.cost, report.roofline
    if cost is None:
        yield report.cost_note
        return
    total = cost.total
    yield f"grid {' × '.join(map(str, cost.grid))}"
    yield (
        f"programs load {scaled(total.loaded, 'B')} and store {scaled(total.stored, 'B')}; memory "
        f"moves at least {scaled(cost.least, 'B')}"
    )
    yield (
        f"{scaled(total.operations, 'FLOP')} of arithmetic, {scaled(total.products, 'FLOP')} of "
        f"matrix products"
    )
    if roofline is not None:
        least = duration(roofline.seconds)
        yield f"on {roofline.device}: at least {least}, bound by {roofline.bound}"
        for limit in roofline.limits:
            what = limit.what if limit.what == MEMORY else f"{limit.what} in {limit.element}"
            unit = "B/s" if limit.what == MEMORY else "FLOP/s"
            yield f"  {what}: {duration(limit.seconds)} at {scaled(limit.rate, unit)}"
    for note in cost.notes:
        yield f"  assumed: {note}"
    yield ""
    rows: list[Sequence[str]] = [("line", "loads", "stores", "arithmetic", "products", "")]
    for line in cost.lines[:MAX_COSTS]:
        tally = line.tally
        amounts = (tally.loaded, tally.stored, tally.operations, tally.products)
        units = ("B", "B", "FLOP", "FLOP")
        cells = [scaled(a, u) if a else "" for a, u in zip(amounts, units, strict=True)]
        rows.append((_place(report, line.lines), *cells, _source(report, line.lines)))
    yield from _table(rows)


def _place(report: Report, lines: Sequence[int]) -> str:
    block = next(b for b in reversed(report.sources) if b.number <= lines[0])
    return f"{basename(block.file)}:{block.first + lines[0] - block.number}"


def _source(report: Report, lines: Sequence[int]) -> str:
    block = next(b for b in reversed(report.sources) if b.number <= lines[0])
    return block.lines[lines[0] - block.number].strip()[:60]


def _remarks(report: Report, *, missed: bool) -> Iterator[str]:
    for remark in report.remarks:
        if remark.missed == missed:
            yield from _remark(report, remark)


def _remark(report: Report, remark: LocatedRemark) -> Iterator[str]:
    where = _place(report, remark.lines) if remark.lines else "the kernel"
    yield f"{where}  {_source(report, remark.lines) if remark.lines else ''}".rstrip()
    yield f"    {remark.text}  [{remark.by}]"


def _accesses(report: Report) -> Iterator[str]:
    for touched in report.accesses:
        where = _place(report, touched.lines) if touched.lines else "the kernel"
        yield f"{where}  {touched.text}"
        yield from (f"    {line}" for line in touched.axes)


def _layouts(report: Report) -> Iterator[str]:
    for use in report.layouts:
        yield f"{use.name or '–':4} {plural(use.values, 'value')}: {use.words}"
        yield f"     {use.text}"


def _passes(report: Report) -> Iterator[str]:
    for done in report.passes:
        what = ", ".join(f"{count} {name}" for name, count in sorted(done.counts.items()))
        state = f"skipped: {done.skipped}" if done.skipped else what
        yield f"{'*' if done.changed else ' '} {done.name:22} {state}".rstrip()


def _code(report: Report) -> Iterator[str]:
    rows = [
        (listing.title, plural(len(listing.lines) + listing.left_out, "line"), f"({listing.key})")
        for listing in report.listings
    ]
    yield from _table(rows)
    if report.assembler:
        yield f"assembled by {report.assembler}"

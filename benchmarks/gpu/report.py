"""Results as text: a line per case during the run, and a table of ratios at the end."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.gpu.results import OURS, TORCH, TRITON, Outcome, Results, Row, failed, misses


def line(row: Row, copy_gb_s: float | None) -> str:
    """One line for a case, and further lines for failures."""
    lines = [f"{row.family:<36} {row.case:<34} " + "  ".join(_contestants(row))]
    if missed := misses(row, copy_gb_s):
        lines[0] += f"  MISSED: {', '.join(missed)}"
    for name, outcome in row.outcomes.items():
        for config, reason in outcome.failures.items():
            lines.append(f"    {name}, {config}:" if config else f"    {name}:")
            lines += [f"        {text}" for text in reason.splitlines()]
    return "\n".join(lines)


def _contestants(row: Row) -> Iterator[str]:
    for name, outcome in row.outcomes.items():
        if failed(outcome):
            yield f"{name} FAILED"
        elif outcome.us is not None:
            yield f"{name} {_number(outcome.us)} us{_rate(row, name)} ({outcome.config})"
        elif outcome.error is not None:
            yield f"{name} ok, error {outcome.error:.1e}"


def _rate(row: Row, contestant: str) -> str:
    rate = row.rate(contestant)
    return "" if rate is None else f" {_number(rate)} {row.unit}"


def _number(value: float) -> str:
    """At least three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(results: Results) -> str:
    """The ratios of all cases, missed targets marked, and the cases skipped for lack of time."""
    copy_gb_s = results.machine.get("copy_gb_s")
    lines = [
        "The rival's time over ours; followed by the bar, if there is one.",
        f"{'':<36} {'':<34} {'triton':>14} {'torch':>14}",
    ]
    for row in results.rows:
        missed = misses(row, copy_gb_s)
        cells = " ".join(
            f"{_ratio(row, rival, bar):>14}"
            for rival, bar in ((TRITON, row.bars.triton), (TORCH, row.bars.torch))
        )
        mark = f"  MISSED: {', '.join(missed)}" if missed else ""
        lines.append(f"{row.family:<36} {row.case:<34} {cells}{mark}")
    missed_rows = sum(bool(misses(row, copy_gb_s)) for row in results.rows)
    lines.append(f"{len(results.rows)} cases, {missed_rows} with a miss or a failure")
    if copy_gb_s:
        lines.append(f"copy of device memory: {copy_gb_s:.0f} GB/s")
    if results.left_out:
        lines.append(f"not measured, for lack of time: {'; '.join(results.left_out)}")
    return "\n".join(lines)


def _ratio(row: Row, rival: str, bar: float | None) -> str:
    ratio = row.ratio(rival)
    aim = "" if bar is None else f" ({bar:g})"
    return "-" if ratio is None else f"{ratio:.2f}{aim}"


def any_failure(results: Results) -> bool:
    """Whether any configuration of ours, or a case as a whole, failed."""
    return any(
        outcome.failures
        for row in results.rows
        for name, outcome in row.outcomes.items()
        if name not in (TRITON, TORCH)
    )


def describe(outcome: Outcome | None, row: Row, name: str) -> str:
    """Time and rate for a table cell; "failed", or "" if it was not measured."""
    if outcome is None:
        return ""
    if outcome.us is None:
        return "failed" if failed(outcome) else ""
    return f"{_number(outcome.us)} µs{_rate(row, name)}"


def best_config(row: Row) -> str:
    """The fastest configurations with tilewright and Triton."""
    found = {
        name: outcome.config
        for name in (OURS, TRITON)
        if (outcome := row.outcomes.get(name)) is not None and outcome.config
    }
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{name}: {config}" for name, config in found.items())

"""Writes docs/benchmarks-gpu.md from what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import ROOT
from benchmarks.gpu.report import best_config, describe
from benchmarks.gpu.results import OURS, TORCH, TRITON, Bars, Results, Row, misses

DOCS = ROOT / "docs" / "benchmarks-gpu.md"

INTRODUCTION = """\
# Benchmarks on the GPU

Written by `python -m benchmarks.gpu --write-docs`; run it again rather than change numbers here.

- tilewright and Triton run the same source, `benchmarks/gpu/kernels/`, in the same process, with
  the same list of configurations; of each the fastest counts. torch is what its library does for
  the same work, the fastest of several ways where there are several.
- A **ratio** is the rival's time over tilewright's: above 1, tilewright is faster. *aim* is what
  the project wants; what stays below it is marked with ✗.
- Results are compared with arithmetic of higher precision before anything is timed. Inputs are
  random normal numbers.
- A time is the median of calls between two events of the GPU, in turns of some 10 ms for each
  contestant. Where the data would fit into four times the L2 cache, a fill of a buffer of that
  size goes before each call. Launches are timed on the host, 200 in a row.
- Why a case stays below its aim is told in [benchmarks-gpu-misses.md](benchmarks-gpu-misses.md).
"""


def write(results: Results, path: Path = DOCS) -> None:
    """Write the page."""
    lines = [INTRODUCTION]
    machine = dict(results.machine)
    copy_gb_s = machine.pop("copy_gb_s", None)
    lines += [f"- {what}: {text}" for what, text in machine.items()]
    if copy_gb_s:
        lines.append(f"- copy of device memory: {copy_gb_s:.0f} GB/s, read and written")
    for family in dict.fromkeys(row.family for row in results.rows):
        rows = [row for row in results.rows if row.family == family]
        lines += ["", f"## {family}", "", *_table(rows, copy_gb_s)]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _table(rows: list[Row], copy_gb_s: float | None) -> Iterator[str]:
    yield "| case | tilewright | Triton | torch | to Triton | to torch | aim | configuration |"
    yield "|---|---:|---:|---:|---:|---:|---|---|"
    for row in rows:
        cells = [describe(row.outcomes.get(name), row, name) for name in (OURS, TRITON, TORCH)]
        cells += [_ratio(row, rival) for rival in (TRITON, TORCH)]
        mark = " ✗" if misses(row, copy_gb_s) else ""
        yield f"| {row.case} | {' | '.join(cells)} | {_aim(row.bars)}{mark} | {best_config(row)} |"


def _ratio(row: Row, rival: str) -> str:
    ratio = row.ratio(rival)
    return "" if ratio is None else f"**{ratio:.2f}**"


def _aim(bars: Bars) -> str:
    """The bars in words.

    >>> _aim(Bars(triton=1.0, copy=0.85))
    'Triton 1, copy 0.85'
    """
    found = (("Triton", bars.triton), ("torch", bars.torch), ("copy", bars.copy))
    words = [f"{name} {bar:g}" for name, bar in found if bar is not None]
    return ", ".join([*words, f"{bars.us:g} µs"] if bars.us is not None else words)

"""Writes docs/benchmarks.md, and the few numbers in the README, from what was measured."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import torch

from benchmarks import ROOT
from tilewright import __version__

DOCS = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"

MARK = re.compile(r"(<!-- benchmarks -->\n).*?(<!-- end -->)", re.DOTALL)

INTRODUCTION = """\
# Benchmarks

Written by `python -m benchmarks.cpu --write-docs`; run it again rather than change numbers here.

- A **ratio** is torch's time over tilewright's in the same run: above 1, tilewright is faster.
  *aim* is what the project wants of every line.
- Both run in turn, in blocks of some 10 ms; a time is the median of all calls in all blocks. Inputs
  are random and the caches are warm, as far as they hold what a call touches.
- Both write into outputs made beforehand. torch's layer norm cannot: the form that takes an output
  copies into it, so the faster of both forms counts, with an allocator that keeps freed memory.
- The launch is counted on both sides. Before a case is timed, the results of both are compared.
- How compile time grows with the length of a kernel is on [a page of its own](compile-time.md).
"""


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = re.findall(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        if names:
            return names[0]
    return platform.processor() or platform.machine()


def machine() -> dict[str, str]:
    """What the numbers depend on, besides the code."""
    from tilewright.base.llvm_version import llvm_version
    from tilewright.targets.cpu.host import host_machine

    return {
        "processor": f"{processor()} ({host_machine().cpu}), {os.cpu_count()} cores",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "versions": f"tilewright {__version__}, torch {torch.__version__}, "
        f"NumPy {np.__version__}, LLVM {llvm_version()}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def write(results: dict[str, Any]) -> None:
    """Write docs/benchmarks.md and, where it has the marks, the table in the README."""
    rows: list[dict[str, Any]] = results["results"]
    lines = [INTRODUCTION]
    lines += [f"- {what}: {text}" for what, text in results["machine"].items()]
    for family in dict.fromkeys(row["family"] for row in rows):
        lines += ["", f"## {family}", "", *_table([r for r in rows if r["family"] == family])]
    DOCS.write_text("\n".join(lines) + "\n", "utf-8")
    if README.exists():
        summary = "\n".join(_summary(rows))
        text = README.read_text("utf-8")
        README.write_text(MARK.sub(lambda m: f"{m[1]}{summary}\n{m[2]}", text), "utf-8")


def _table(rows: list[dict[str, Any]]) -> Iterable[str]:
    if "parts_ms" in rows[0]:
        return _compile_table(rows)
    if "ratio" not in rows[0]:
        return _launch_table(rows)
    return _ratio_table(rows)


def _ratio_table(rows: list[dict[str, Any]]) -> Iterable[str]:
    """A line for each size; three columns for each number of threads."""
    counts = sorted({row["threads"] for row in rows})
    heads = [
        f"{head}{n} thread{'s' * (n > 1)}"
        for n in counts
        for head in ("tilewright, ", "torch, ", "ratio, ")
    ]
    yield "| size | " + " | ".join(heads) + " | aim |"
    yield "|---|" + "---:|" * len(heads) + "---:|"
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["threads"]: row for row in rows if row["case"] == case}
        cells: list[str] = []
        for n in counts:
            row = found[n]
            cells += [_time(row["ours_us"]), _time(row["rival_us"]), f"**{row['ratio']:.2f}**"]
        aim = next(iter(found.values()))["aim"]
        yield f"| {case} | " + " | ".join(cells) + f" | {'' if aim is None else aim} |"


def _launch_table(rows: list[dict[str, Any]]) -> Iterable[str]:
    yield f"| arguments | launch | {rows[0]['rival']} | limit |"
    yield "|---|---:|---:|---:|"
    for row in rows:
        times = " | ".join(_time(row[key]) for key in ("ours_us", "rival_us", "limit_us"))
        yield f"| three {row['case']}, two ints | {times} |"


def _compile_table(rows: list[dict[str, Any]]) -> Iterable[str]:
    yield (
        "In a fresh process without a disk cache. *LLVM loaded*: from there to object code, the "
        "sum of the four parts before it. *process*: from the start of Python to the end of the "
        "first launch."
    )
    yield ""
    parts = list(rows[0]["parts_ms"])
    yield "| kernel | " + " | ".join(parts) + " | limit, LLVM loaded |"
    yield "|---|" + "---:|" * (len(parts) + 1)
    for row in rows:
        times = " | ".join(_time(ms * 1e3) for ms in row["parts_ms"].values())
        yield f"| {row['case']} | {times} | {_time(row['limit_us'])} |"


def _time(us: float) -> str:
    """Three digits and a unit."""
    if us < 1e3:
        return f"{us:.3g} µs"
    ms = us / 1e3
    return f"{ms:.3g} ms" if ms < 100 else f"{ms:.0f} ms"


def _summary(rows: list[dict[str, Any]]) -> Iterable[str]:
    """The README's table: the range of the ratios of each kind of work."""
    yield "| workload | speedup over torch: min, **mean**, max |"
    yield "|---|---|"
    ratios = [row for row in rows if "ratio" in row]
    for family in dict.fromkeys(row["family"] for row in ratios):
        for n in sorted({r["threads"] for r in ratios if r["family"] == family}):
            found = [r["ratio"] for r in ratios if r["family"] == family and r["threads"] == n]
            low, mean, high = min(found), geometric_mean(found), max(found)
            several = f"{low:.2f}, **{mean:.2f}**, {high:.2f}"
            ratio = several if len(found) > 1 else f"**{mean:.2f}**"
            yield f"| {family}, {n} thread{'s' * (n > 1)} | {ratio} |"

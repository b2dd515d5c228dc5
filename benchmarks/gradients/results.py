"""Results of the gradients' benchmark, their file, and the table in docs/derivatives.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.gradients.rivals import RIVAL

DOCS = ROOT / "docs" / "derivatives.md"
MARK = re.compile(r"(<!-- speeds: begin -->\n).*?(<!-- speeds: end -->)", re.DOTALL)


@dataclass(frozen=True)
class Result:
    """Times of one case.

    Attributes:
        derived_us, written_us: medians in microseconds; None if no configuration runs.
        derived, written: the configurations that were timed.
        error: the largest error of a derived gradient, relative to its largest element.
        bar, work, bytes, flops: see `Comparison`.
        host_us: microseconds for which the host is busy with one derived call.
    """

    derived_us: float
    derived: str
    written_us: float | None
    written: str
    error: float
    bar: float
    work: float
    bytes: int
    flops: int
    host_us: float

    @property
    def ratio(self) -> float | None:
        """The time of the hand-written gradient over that of the derived one."""
        return None if self.written_us is None else self.written_us * self.work / self.derived_us

    @property
    def rate(self) -> str:
        if self.flops:
            return f"{self.flops / self.derived_us / 1e6:.0f} TFLOP/s"
        return f"{self.bytes / self.derived_us / 1e3:.0f} GB/s"

    def text(self) -> str:
        parts = [f"derived {self.derived_us:.1f} us [{self.derived}]"]
        if self.ratio is not None:
            parts.append(f"hand-written {self.written_us:.1f} us [{self.written}]")
            parts.append(f"ratio {self.ratio:.3f} (bar {self.bar})")
        return ", ".join([*parts, self.rate, f"host {self.host_us:.1f} us"])


def write_results(path: Path, machine: Mapping[str, str], found: Mapping[str, Result]) -> None:
    """Write results to a file."""
    rows = {name: asdict(result) for name, result in found.items()}
    path.write_text(json.dumps({"machine": dict(machine), "results": rows}, indent=1), "utf-8")


def write_table(paths: Sequence[Path], docs: Path = DOCS) -> None:
    """Write the table of files with results into the page on derivatives."""
    read: list[dict[str, Any]] = [json.loads(path.read_text("utf-8")) for path in paths]
    machine = "; ".join(f"{what} {text}" for what, text in read[0]["machine"].items())
    lines = [
        f"{machine}.", "", "| kernel | hand-written, µs | derived, µs | ratio | bar | |",
        "|---|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    for results in read:
        lines += [_line(name, Result(**row)) for name, row in results["results"].items()]
    table = "\n".join(lines)
    text = docs.read_text("utf-8")
    docs.write_text(MARK.sub(lambda m: f"{m[1]}{table}\n{m[2]}", text), "utf-8")


def _line(name: str, row: Result) -> str:
    written = "" if row.written_us is None else f"{row.written_us:.1f}"
    if row.written == RIVAL:
        written += f" ({RIVAL})"
    mark = "" if row.ratio is None or row.ratio >= row.bar else " ✗"
    ratio = "" if row.ratio is None else f"**{row.ratio:.3f}**{mark}"
    return f"| {name} | {written} | {row.derived_us:.1f} | {ratio} | {row.bar} | {row.rate} |"

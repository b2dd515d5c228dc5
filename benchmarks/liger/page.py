"""What was found, as text: a line for each step, and docs/liger.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import ROOT
from benchmarks.liger.clock import PARTS
from benchmarks.liger.operators import OPERATORS, Operator
from benchmarks.liger.results import LARGE, OURS, TRITON, Outcome, Results, Row, geometric_mean
from benchmarks.liger.steps import Step

DOCS = ROOT / "docs" / "liger.md"

INTRODUCTION = """\
# The operators of liger-kernel

Written by `python -m benchmarks.liger --write-docs`; run it again rather than change numbers here.

The operators of [liger-kernel](https://pypi.org/project/liger-kernel/) are written for Triton.
Here they run unchanged [through `tilewright.install_as_triton()`](existing-code.md), forward and
backward, on the CPU and on the GPU.

- An **error** is the largest difference from torch in fp32, of a result or a gradient, as a part
  of the largest number in it. The inputs are random, rounded to the type first; sizes are small
  and odd but for the last two columns, which are those of the timed sizes, in bf16, beside what
  Triton's own error is there.
- A **ratio** is Triton's time over tilewright's on the GPU: above 1, tilewright is faster. Inputs
  are bf16, of the sizes of a model of eight billion parameters. Two processes have turns in the
  same run, one with Triton and one with tilewright. A time is the median of calls between two
  events of the GPU; before each call a buffer larger than the L2 cache is written.
- Operators that tune themselves choose from five of their configurations, the same for both.
- "torch alone" is an operator that launches no kernel here: it works in torch then.
"""

CHECKS = {
    "cpu float32": "CPU, fp32",
    "cpu bfloat16": "CPU, bf16",
    "cpu float16": "CPU, fp16",
    "cuda float32": "GPU, fp32",
}
BIG = f"cuda bfloat16 {LARGE}"


def line(operator: Operator, step: Step, row: Row) -> str:
    """A step in a line."""
    found = [
        f"{name} {_number(outcome)}" if outcome.error is not None else f"{name} FAILED"
        for name, outcome in row.checks[step.name].items()
    ]
    if step.timed:
        found += [f"{part} {_times(row, part)}" for part in PARTS]
    text = f"{step.name:<20} {operator.label:<64} " + "  ".join(found)
    failures = [
        f"\n    {name}: {outcome.failure}"
        for name, outcome in row.checks[step.name].items()
        if outcome.failure
    ]
    return text + "".join(failures)


def _times(row: Row, part: str) -> str:
    ours, theirs = (row.times.get(name, {}).get(part) for name in (OURS, TRITON))
    ratio = row.ratio(part)
    shown = "/".join("-" if us is None else f"{us:.0f}" for us in (theirs, ours))
    return f"{shown} us" + ("" if ratio is None else f" = {ratio:.2f}")


def _number(outcome: Outcome) -> str:
    return "" if outcome.error is None else f"{outcome.error:.1e}"


def summary(results: Results) -> Iterator[str]:
    """The means of the ratios, the lowest, and what fails."""
    for part in PARTS:
        found = {k: r for k, row in results.rows.items() if (r := row.ratio(part)) is not None}
        if found:
            low = min(found, key=lambda label: found[label])
            below = sum(ratio < 0.95 for ratio in found.values())
            yield (
                f"{part}: {len(found)} operators, geometric mean "
                f"{geometric_mean(found.values()):.3f}, lowest {found[low]:.2f} ({low}), "
                f"{below} below 0.95"
            )
    for label, row in results.rows.items():
        for wrong in row.wrong():
            yield f"{label}: {wrong}"


def write(results: Results, path: Path = DOCS) -> None:
    """Write the page."""
    lines = [INTRODUCTION]
    lines += [f"- {what}: {text}" for what, text in results.machine.items()]
    lines += ["", *_table(results), ""]
    if means := _means(results):
        lines += [means, ""]
    failures = [f"- {label}, {what}" for label, row in results.rows.items() for what in row.wrong()]
    asks = [f"- {x.label}, on the CPU: {x.needs_cuda}" for x in OPERATORS if x.needs_cuda]
    lines += ["## What is different", "", *asks, *failures, "", NOTES]
    path.write_text("\n".join(lines), "utf-8")


NOTES = """\
`attn_res` rounds the keys to its own type twice before it scores them: with the same rounding in
torch, the error in bf16 is 4e-3.

The backward of `dyt` asks CUDA, XPU or NPU for a number of processors, and knows none on other
devices; on the CPU its module is told that it is on an NPU, whose number it takes from Triton's
driver. `tiled_mlp` is not in the table, as it has no kernel.
"""


def _table(results: Results) -> Iterator[str]:
    heads = [*CHECKS.values(), *PARTS, "large, bf16", "Triton's"]
    yield f"| operator | {' | '.join(heads)} |"
    yield "|---|" + "---:|" * len(heads)
    for operator in OPERATORS:
        row = results.rows.get(operator.label)
        if row is None:
            continue
        cells = [_error(row, what, OURS) for what in CHECKS]
        cells += [_ratio(row, part) for part in PARTS]
        cells += [_error(row, BIG, name) for name in (OURS, TRITON)]
        yield f"| {operator.label} | {' | '.join(cells)} |"


def _error(row: Row, what: str, contestant: str) -> str:
    outcome = row.checks.get(what, {}).get(contestant)
    if outcome is None:
        return ""
    if outcome.error is None:
        return "fails"
    return _number(outcome) + ("" if outcome.launches != 0 else ", torch alone")


def _ratio(row: Row, part: str) -> str:
    ratio = row.ratio(part)
    return "" if ratio is None else f"**{ratio:.2f}**"


def _means(results: Results) -> str:
    """The geometric mean of each part, in a sentence."""
    rows = list(results.rows.values())
    means: list[str] = []
    for part in PARTS:
        found = [ratio for row in rows if (ratio := row.ratio(part)) is not None]
        if found:
            means.append(f"{part} **{geometric_mean(found):.2f}**")
    return f"Geometric mean of the ratios: {', '.join(means)}." if means else ""

"""Profiles as text: a tree with the metrics of each frame, those of the frames below included.

print(render(read("step.hatchet"), ["time/ms", "gbyte/s"]))
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tilewright.profiler.data import COUNT, CPU_TIME, EXCLUSIVE, TIME, Frame

_UNITS = {"s": 1e-9, "ms": 1e-6, "us": 1e-3, "ns": 1.0}
_PREFIXES = {"": 1.0, "g": 1e9, "t": 1e12}
_RATE = re.compile(r"([gt]?)(flop|byte)(8|16|32|64)?/s")
_TIMES = re.compile(r"(avg_)?(cpu_)?time/(s|ms|us|ns)")

Value = Callable[[Frame], float]


def read(path: str | Path) -> Frame:
    """The tree of a file that `finalize` wrote.

    Raises:
        ValueError: it is no such file.
    """
    try:
        root, *_ = json.loads(Path(path).read_text("utf-8"))
        return Frame.from_json(root)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a profile in hatchet's format, as proton.start(data='tree') writes: "
            f"{error!r}"
        ) from error


def total(frame: Frame, metric: str) -> float:
    """A metric of a frame and, unless it is exclusive, of those below."""
    below = () if metric.endswith(EXCLUSIVE) else frame.children.values()
    own = frame.metrics.get(metric, 0)
    return (0 if isinstance(own, str) else own) + sum(total(child, metric) for child in below)


def metrics_of(root: Frame) -> list[str]:
    """The metrics recorded anywhere in the tree."""
    return sorted(
        {name for f in root.walk() for name, v in f.metrics.items() if not isinstance(v, str)}
    )


def metric(name: str, root: Frame) -> Value:
    """The function of a frame that a metric names: ``time/ms``, ``time/%``, ``avg_time/us``,
    ``cpu_time/ms``, ``gbyte/s``, ``tflop16/s``, or one that was recorded, such as ``flops``.

    Raises:
        ValueError: there is no such metric.
    """
    if name == "time/%":
        whole = total(root, TIME)
        return lambda frame: _ratio(100 * total(frame, TIME), whole)
    if found := _TIMES.fullmatch(name):
        average, cpu, unit = found.groups()
        of, factor = CPU_TIME if cpu else TIME, _UNITS[unit]
        if not average:
            return lambda frame: total(frame, of) * factor
        return lambda frame: _ratio(total(frame, of) * factor, total(frame, COUNT))
    if found := _RATE.fullmatch(name):
        prefix, what, width = found.groups()
        counted, factor = f"{what}s{width or ''}", _PREFIXES[prefix]
        return lambda frame: _ratio(total(frame, counted) / factor, total(frame, TIME) * 1e-9)
    for known in metrics_of(root):
        if name.lower() in (known.lower(), known.partition("(")[0].strip().lower()):
            return lambda frame: total(frame, known)
    raise ValueError(
        f"there is no metric {name!r}; those recorded are {', '.join(metrics_of(root))}; derived "
        "are time/ms, time/%, avg_time/us, cpu_time/ms, gbyte/s, tflop/s"
    )


def _ratio(a: float, b: float) -> float:
    return a / b if b else 0.0


def render(
    root: Frame, metrics: Sequence[str], depth: int | None = None, threshold: float = 0.0
) -> str:
    """The tree as text, a line for each frame.

    Args:
        metrics: names as of `metric`; frames are sorted by the first one.
        depth: how many levels below the root to show; None for all.
        threshold: hides frames whose first metric is less than this share of the root's.

    Raises:
        ValueError: there is no such metric.
    """
    values = [metric(name, root) for name in metrics]
    lines: list[tuple[list[str], str]] = [(list(metrics), "")]
    least = threshold * values[0](root)

    def show(frame: Frame, indent: str, branch: str, level: int) -> None:
        lines.append(([f"{value(frame):.3f}" for value in values], indent + branch + frame.name))
        if level == depth:
            return
        below = [child for child in frame.children.values() if values[0](child) >= least]
        below.sort(key=values[0], reverse=True)
        deeper = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        for child in below:
            show(child, deeper, "└─ " if child is below[-1] else "├─ ", level + 1)

    show(root, "", "", 0)
    widths = [max(len(cells[i]) for cells, _ in lines) for i in range(len(metrics))]
    return "\n".join(
        "  ".join([*(cell.rjust(w) for cell, w in zip(cells, widths, strict=True)), name]).rstrip()
        for cells, name in lines
    )

"""The records of a session: a tree of frames with metrics, or a list of events.

Both are written as JSON: the tree as hatchet reads it, the events as Chrome's trace viewer and
Perfetto do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Metric = float | int | str

TIME = "time (ns)"
COUNT = "count"
CPU_TIME = "cpu_time (ns)(exc)"
EXCLUSIVE = "(exc)"
"""Suffix of metrics of which that of a frame does not include those of the frames below."""

ROOT = "ROOT"


class Recorded(NamedTuple):
    """A launch, or a scope.

    Attributes:
        path: names of the frames around it, outermost first; the last one is its own.
        begin: when it began, in ns of `time.perf_counter_ns`.
        duration: in ns.
        metrics: further metrics.
        device: such as ``cuda:0``; "" for a scope.
        stream: the handle of the device's stream, or the thread of a scope.
    """

    path: tuple[str, ...]
    begin: int
    duration: int
    metrics: Mapping[str, Metric] = {}
    device: str = ""
    stream: int = 0


class Frame:
    """A node of the tree.

    Attributes:
        name: a scope, a kernel, or a function of the program.
        metrics: sums over what was recorded here, and texts such as ``device_id``.
        children: by name, in order of their first appearance.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.metrics: dict[str, Metric] = {}
        self.children: dict[str, Frame] = {}

    def at(self, path: tuple[str, ...]) -> Frame:
        """The frame at a path below this one, created if there is none."""
        result = self
        for name in path:
            result = result.children.setdefault(name, Frame(name))
        return result

    def add(self, metrics: Mapping[str, Metric]) -> None:
        """Add numbers to those of the frame; texts replace."""
        for name, value in metrics.items():
            before = self.metrics.get(name, 0)
            if isinstance(value, str) or isinstance(before, str):
                self.metrics[name] = value
            else:
                self.metrics[name] = before + value

    def walk(self) -> Iterator[Frame]:
        """This frame and those below, parents first."""
        yield self
        for child in self.children.values():
            yield from child.walk()

    def to_json(self) -> dict[str, Any]:
        return {
            "frame": {"name": self.name, "type": "function"},
            "metrics": self.metrics,
            "children": [child.to_json() for child in self.children.values()],
        }

    @staticmethod
    def from_json(node: Mapping[str, Any]) -> Frame:
        frame = Frame(node["frame"]["name"])
        frame.metrics = dict(node["metrics"])
        for child in map(Frame.from_json, node["children"]):
            frame.children[child.name] = child
        return frame


class Tree:
    """The tree of a session; recorded metrics are summed up by frame."""

    suffix = "hatchet"

    def __init__(self) -> None:
        self.root = Frame(ROOT)

    def add_launch(self, launch: Recorded) -> None:
        kind, _, index = launch.device.partition(":")
        frame = self.root.at(launch.path)
        frame.add({TIME: launch.duration, COUNT: 1, **launch.metrics})
        frame.add({"device_id": index or "0", "device_type": kind.upper()})

    def add_scope(self, scope: Recorded) -> None:
        """Scopes have no time of their own: theirs is that of the launches below."""
        self.root.at(scope.path).add(scope.metrics)

    def text(self, devices: Mapping[str, Any]) -> str:
        """The profile in hatchet's literal format: the root, then the devices.

        The root has a zero for each metric whose value at a frame includes the frames below.
        """
        inclusive = {
            name: 0
            for frame in self.root.walk()
            for name, value in frame.metrics.items()
            if not isinstance(value, str) and not name.endswith(EXCLUSIVE)
        }
        root = self.root.to_json()
        root["metrics"] = {COUNT: 0, TIME: 0, **inclusive, **self.root.metrics}
        return json.dumps([root, devices])


class Trace:
    """The events of a session."""

    suffix = "chrome_trace"

    def __init__(self) -> None:
        self.events: list[tuple[str, Recorded]] = []

    def add_launch(self, launch: Recorded) -> None:
        self.events.append(("kernel", launch))

    def add_scope(self, scope: Recorded) -> None:
        self.events.append(("scope", scope))

    def text(self, devices: Mapping[str, Any]) -> str:
        """The profile in the trace event format; times are in microseconds from the first event."""
        begin = min((found.begin for _, found in self.events), default=0)
        events = [
            {
                "name": found.path[-1],
                "cat": kind,
                "ph": "X",
                "ts": (found.begin - begin) / 1000,
                "dur": found.duration / 1000,
                "pid": found.device or "program",
                "tid": found.stream,
                "args": {"scopes": list(found.path[:-1]), **found.metrics},
            }
            for kind, found in sorted(self.events, key=lambda event: event[1].begin)
        ]
        shown = {"displayTimeUnit": "us", "traceEvents": events, "otherData": devices}
        return json.dumps(shown)

"""Lifetimes of buffers in the workspace, so that those of dead tiles are reused.

A buffer is allocated by the step that fills it. It is live until the last step of its region that
reads a value bound to it: directly, in a nested region, or by way of lazy values, which are
computed from it where they are used. Buffers that a region's terminator reads, or that are bound to
results of the op that owns the region, die in the region around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from tilewright.ir.core import Region, Value
from tilewright.lowering.emit import V
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.lazy import is_lazy
from tilewright.targets.cpu.plan import Group, Plan
from tilewright.targets.cpu.workspace import Workspace

Binding = V | Buffer


class Held(NamedTuple):
    """A block of the workspace that a buffer occupies, and the text of its address."""

    address: str
    start: int
    size: int


class Dead:
    """Bound to values whose buffer was reused: reading it is a fault of the compiler."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("a buffer is read after the last step that was found to read it")


class Bindings(dict[Value, Binding]):
    """Bindings of IR values: an LLVM value for a scalar, a buffer for a kept tile.

    Attributes:
        of_buffer: by the text of a buffer's address, the values that were bound to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.of_buffer: dict[str, list[Value]] = defaultdict(list)

    def __setitem__(self, value: Value, binding: Binding) -> None:
        super().__setitem__(value, binding)
        if isinstance(binding, Buffer):
            self.of_buffer[binding.ptr.text].append(value)


class LiveBuffers:
    """The buffers in the workspace whose step is being emitted, and those that die in a region
    around it.

    Attributes:
        recent: buffers that no region has found the last reader of.
    """

    def __init__(self, plan: Plan, env: Bindings) -> None:
        self.plan = plan
        self.env = env
        self.workspace = Workspace()
        self.recent: list[Held] = []

    def release(self, held: Held) -> None:
        """Let later buffers reuse the block."""
        self.workspace.give_back(held.start, held.size)
        dead: Any = Dead()
        for value in self.env.of_buffer.pop(held.address, ()):
            dict.__setitem__(self.env, value, dead)


class RegionLifetimes:
    """The ends of the buffers that the steps of a region allocate."""

    def __init__(self, live: LiveBuffers, region: Region) -> None:
        self._live = live
        self._region = region
        self._start = len(live.recent)
        self._last: dict[Value, int] | None = None
        self._due: dict[int, list[Held]] = defaultdict(list)

    def end_step(self, index: int) -> None:
        """Release the buffers that no step after this one reads."""
        recent = self._live.recent
        self._due[index] += recent[self._start :]
        del recent[self._start :]
        for held in self._due.pop(index):
            last = self._last_reader(held)
            if last > index:
                self._due[last].append(held)
            else:
                self._live.release(held)

    def end(self) -> None:
        """Leave the other buffers to the region around this one."""
        for held in self._due.values():
            self._live.recent += held

    def _last_reader(self, held: Held) -> int:
        if self._last is None:
            self._last = last_readers(self._live.plan, self._region)
        bound = self._live.env.of_buffer.get(held.address, ())
        return max((self._last.get(value, -1) for value in bound), default=-1)


def last_readers(plan: Plan, region: Region) -> dict[Value, int]:
    """For each value, the index of the last step of the region that reads it; the number of steps
    for those that the terminator reads.

    Lazy values that have no buffer are read through: from the last step to the first, so that each
    is visited once.
    """
    steps = plan.steps[region]
    last: dict[Value, int] = {}

    def read(values: Iterable[Value], index: int) -> None:
        stack = list(values)
        while stack:
            value = stack.pop()
            if value in last:
                continue
            last[value] = index
            if value.op is not None and is_lazy(value.op) and value not in plan.kept:
                stack.extend(value.op.operands)

    read(region.terminator.operands, len(steps))
    for index in reversed(range(len(steps))):
        step = steps[index]
        for op in step.ops():
            for nested in op.walk():
                read(nested.operands, index)
        if isinstance(step, Group):
            for value in step.keep:
                if value.op is not None:
                    read(value.op.operands, index)
            prefetches = plan.prefetches.get(step)
            if prefetches is not None:
                read((*prefetches.reads, *prefetches.writes), index)
    return last

"""Arrays and numbers of a derived kernel's launch, besides the arguments of the call.

Sizes depend on the plan and on the layouts of the gradients that workers add up. They are computed
once for all launches with these layouts, of which each only allocates.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tilewright.runtime.derived_launch import Arrays, Made, Plan, Step, size_of
from tilewright.runtime.grid import Grid
from tilewright.runtime.partial_sums import (
    Floats,
    Sums,
    add_up,
    floats_like,
    layout_of,
    sums_of,
    workers_of,
)


class BufferSizes:
    """The buffers of launches of a plan, whose gradients have some layouts.

    Args:
        plan: the plan.
        of_wrt: by input the array for its gradient.

    Attributes:
        layouts: those of the gradients that workers add up.
        workers: how many there are; 0 if the plan has none.
    """

    def __init__(self, plan: Plan, of_wrt: Arrays) -> None:
        self.layouts = layouts_of(plan, of_wrt)
        self.workers = 0
        like = next(iter(of_wrt.values()), None)
        self._known: dict[Made, Any] = dict(plan.numbers)
        self._floats: dict[Made, Floats] = {}
        self._sums: dict[str, Sums] = {}
        for step in plan.steps:
            if step.axes:
                programs = prod(step.grid[axis] for axis in step.axes)
                self.workers = workers_of(programs, [of_wrt[name] for name in plan.summed])
                for axis in step.axes:
                    self._known["extent", str(axis)] = step.grid[axis]
        for saved in plan.saved:
            count = saved.lanes * prod(n for (kind, _), n in plan.numbers.items() if kind == "box")
            is_wide = saved.element.primitive_bitwidth == 64
            self._floats["saved", saved.name] = floats_like(like, count, is_wide)
        for name, numbers in plan.places.items():
            self._known[name] = numbers.like(like)
        for step in plan.steps:
            for tape in step.tapes:
                size = prod(self.grid_of(step)) * tape.bytes
                self._floats["tape", tape.name] = floats_like(like, -(-size // 4), is_wide=False)
        for name in plan.summed:
            filled = plan.covered[name] == size_of(of_wrt[name])
            sums = self._sums[name] = sums_of(of_wrt[name], self.workers, filled)
            self._floats["partial", name] = sums.floats
            self._known["span", name] = sums.span

    def grid_of(self, step: Step) -> Grid:
        """The grid of a step."""
        if not step.axes:
            return step.grid
        x, y, z = (
            self.workers if axis == step.axes[0] else 1 if axis in step.axes else n
            for axis, n in enumerate(step.grid)
        )
        return x, y, z

    def allocated(self, of_wrt: Arrays) -> dict[Made, Any]:
        """The arguments that one launch makes."""
        made = dict(self._known)
        if self._floats:
            like = next(iter(of_wrt.values()))
            for name, floats in self._floats.items():
                made[name] = floats.allocated(like)
        return made

    def finish(self, made: Mapping[Made, Any], of_wrt: Arrays, accumulate: bool) -> None:
        """Add up what workers have summed."""
        if self._sums:
            sums = [(s, made["partial", n], of_wrt[n]) for n, s in self._sums.items()]
            add_up(sums, accumulate)


def layouts_of(plan: Plan, of_wrt: Arrays) -> list[Any]:
    """See `BufferSizes`."""
    return [layout_of(of_wrt[name]) for name in plan.summed]

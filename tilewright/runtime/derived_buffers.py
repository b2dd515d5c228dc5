"""Arrays and numbers of a derived kernel's launch, besides the arguments of the call.

Sizes depend on the plan and on the layouts of the gradients that workers accumulate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.runtime.derived_launch import Arrays, Made, Part, Plan, Step, size_of
from tilewright.runtime.grid import Grid
from tilewright.runtime.partial_sums import (
    Addition,
    Floats,
    Sums,
    add_up,
    floats_like,
    sums_of,
    workers_of,
)

ALIGNED = 256  # bytes, as allocators align memory


class Workspace(NamedTuple):
    """All buffers of a launch, in one.

    Attributes:
        allocate: returns a new array of bytes.
        offsets: where in it each buffer begins.
    """

    allocate: Callable[[], Any]
    offsets: Mapping[Made, int]


class BufferSizes:
    """The buffers of launches of a plan, whose gradients have some layouts.

    Args:
        plan: the plan.
        of_wrt: by input the array for its gradient.

    Attributes:
        workers: how many there are; 0 if the plan has none.
        known: the arguments that are the same for all launches: numbers, and arrays of them.
    """

    def __init__(self, plan: Plan, of_wrt: Arrays) -> None:
        self.workers = 0
        like = next(iter(of_wrt.values()), None)
        self.known: dict[Made, Any] = dict(plan.numbers)
        self._floats: dict[Made, Floats] = {}
        self._sums: dict[str, Sums] = {}
        for step in plan.steps:
            if step.axes:
                programs = prod(step.grid[axis] for axis in step.axes)
                self.workers = workers_of(programs, [of_wrt[name] for name in plan.summed])
                for axis in step.axes:
                    self.known["extent", str(axis)] = step.grid[axis]
        for saved in plan.saved:
            count = saved.lanes * prod(n for (kind, _), n in plan.numbers.items() if kind == "box")
            is_wide = saved.element.primitive_bitwidth == 64
            self._floats["saved", saved.name] = floats_like(like, count, is_wide)
        for name, numbers in plan.places.items():
            self.known[name] = numbers.like(like)
        for step in plan.steps:
            for tape in step.tapes:
                size = prod(self.grid_of(step)) * tape.bytes
                self._floats["tape", tape.name] = floats_like(like, -(-size // 4), is_wide=False)
        self._rows = plan.summed
        for name in plan.summed:
            filled = plan.covered[name] == size_of(of_wrt[name])
            sums = self._sums[name] = sums_of(
                of_wrt[name], self.rows_of(name), filled, name in plan.wide
            )
            self._floats["partial", name] = sums.floats
            self.known["span", name] = sums.span

    def rows_of(self, name: str) -> int:
        """How many rows of partial sums an array has."""
        return self._rows[name] or self.workers

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
        """The arguments that one launch creates."""
        result = dict(self.known)
        if self._floats:
            like = next(iter(of_wrt.values()))
            for name, floats in self._floats.items():
                result[name] = floats.allocated(like)
        return result

    def workspace(self, of_wrt: Arrays) -> Workspace | None:
        """The memory of `allocated`, as one array; None if it allocates nothing."""
        if not self._floats:
            return None
        offsets: dict[Made, int] = {}
        size = 0
        for name, floats in self._floats.items():
            offsets[name] = size
            size += -(-floats.bytes // ALIGNED) * ALIGNED
        like = next(iter(of_wrt.values()))
        zeros = any(floats.zeros for floats in self._floats.values())
        if isinstance(like, np.ndarray):
            return Workspace(partial(np.zeros if zeros else np.empty, size, np.uint8), offsets)
        nothing = like.new_empty(0).byte()  # does not keep the memory of an array alive
        make = nothing.new_zeros if zeros else nothing.new_empty
        return Workspace(partial(make, size), offsets)

    @property
    def adds_up_views(self) -> bool:
        """Whether `finish` adds up more than it returns launches of."""
        return not all(sums.is_dense for sums in self._sums.values())

    def finish(self, made: Mapping[Made, Any], of_wrt: Arrays, accumulate: bool) -> list[Part]:
        """Reduce the partial sums of workers. Returns the launches that do so."""
        if not self._sums:
            return []
        rows = {name: made["partial", name] for name in self._sums}
        return [_part(one) for one in add_up(self._sums, rows, of_wrt, accumulate)]


def _part(addition: Addition) -> Part:
    """The launch of `add_rows`."""
    kernel, grid, (first, last), numbers = addition
    arguments = (
        ("partial", first), ("gradient", first), *numbers[:2],
        ("partial", last), ("gradient", last), *numbers[2:],
    )  # fmt: skip
    return Part(kernel, grid, arguments)

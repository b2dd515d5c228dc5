"""The schedule of gradients on a separate grid; see `regrid.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import NamedTuple

from tilewright.autodiff.coordinates import Coordinates
from tilewright.autodiff.distinct import Verdict
from tilewright.autodiff.points import Array as Numbers
from tilewright.base.record import field, record, replace
from tilewright.ir.core import Region, Value
from tilewright.ops.control import For
from tilewright.ops.memory import Load


@record
class Part:
    """The contribution of one loop of the kernel to the tiles of a schedule.

    Attributes:
        loop: the loop.
        loads: by array, the load whose gradient is added up.
        begins: whether the loop begins with the first iteration of the schedule in each program.
        uniform: whether each program has all iterations of the schedule.
        positions: the positions, among kept coordinates and iterations, at which it has programs.
        bounds: where the programs of one position are consecutive in their loop: for each program
            of the new grid where they begin, then for each where they end. None where some are
            not, and if all positions have all programs.
    """

    loop: For
    loads: dict[str, Load]
    begins: bool
    uniform: bool
    positions: Numbers
    bounds: Numbers | None

    @property
    def is_exact(self) -> bool:
        """Whether the loop over programs has those with the iteration only."""
        return self.uniform or self.bounds is not None


class Added(NamedTuple):
    """An input whose gradient is added atomically.

    Attributes:
        loads: all its loads.
        entries: the values that iterations of the schedule's loops use.
    """

    loads: tuple[Load, ...]
    entries: frozenset[Value]


@record
class Regrid:
    """The schedule of loads in one loop, or in several that load the same tiles.

    Attributes:
        parts: the loops, the one with the most tiles first.
        coordinates: those of programs.
        kept: the coordinates that are axes of the new grid, too; the others become a loop.
        first, step, trips: the numbers of the iterations.
        places: the positions, among kept coordinates and iterations, of the programs of the new
            grid; None for all positions.
        verdicts: by array, that of the new grid's stores.
        number: that of the schedule among those of a kernel.
        added: the inputs whose gradients its kernel adds atomically, see `added_inputs.py`: their
            loads, and the values by which these enter the loops.
    """

    parts: tuple[Part, ...]
    coordinates: Coordinates
    kept: tuple[int, ...]
    first: int
    step: int
    trips: int
    places: Numbers | None
    verdicts: dict[str, Verdict]
    number: int = 0
    added: Mapping[str, Added] = field(default_factory=dict[str, "Added"])

    @property
    def names(self) -> set[str]:
        """The arrays whose gradients its kernel computes, or adds to."""
        return {*self.loads, *self.added}

    @property
    def loads(self) -> dict[str, Load]:
        """By array, the load in the first of the loops."""
        return self.parts[0].loads

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple(part.loop for part in self.parts)

    @property
    def key(self) -> str:
        """The name of its arguments. Several schedules may be of one array, in different loops."""
        return f"{self.number}.{','.join(self.loads)}"

    def bounds_key(self, part: Part) -> str:
        """The name of the bounds of one of its loops."""
        return f"{self.parts.index(part)}.{self.key}"

    @property
    def nest(self) -> tuple[Region, ...]:
        """The regions around the loops, outermost first, without the function's body."""
        return nest_of(self.parts[0].loop)

    @property
    def reduced(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.coordinates.extents)) if i not in self.kept)

    def without(self, names: Collection[str]) -> Regrid:
        """The schedule of the other arrays only."""
        parts = [
            replace(part, loads={n: op for n, op in part.loads.items() if n not in names})
            for part in self.parts
        ]
        verdicts = {n: v for n, v in self.verdicts.items() if n not in names}
        return replace(self, parts=tuple(parts), verdicts=verdicts)

    @property
    def programs(self) -> int:
        """The number of programs in the new grid."""
        if self.places is not None:
            return len(self.places)
        return self.trips * prod(self.coordinates.extents[i] for i in self.kept)


def nest_of(loop: For) -> tuple[Region, ...]:
    """The regions around a loop, outermost first, without the function's body."""
    return tuple(reversed([region for _, region in loop.enclosing()]))

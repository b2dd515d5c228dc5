"""The order of axes in which the warps of a program are distributed over accessed tiles.

By default along the slowest axis first, so that each row is within one warp, and a reduction of
rows needs no shared memory. But a tile may also be reduced along its slow axis, such as the values
of a few rows that are weighted and summed after their weights have been computed from them: each
warp then has a part of each of many sums, in as many registers, and all of them are exchanged
through shared memory. With the warps along the rows instead, a thread has all rows of its columns,
and warps exchange only one number for each row.

The order with the lower estimated cost of reductions is chosen for each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tilewright.ir.core import Function
from tilewright.ir.types import shape_of
from tilewright.layout.linear import WARP, LinearLayout
from tilewright.ops.reduce import Reduce
from tilewright.passes.defer_reductions import MOST_REGISTERS, accumulated, partial_results
from tilewright.passes.layout_sides import TRIPS, assumed_trips

EXCHANGE = 8
"""The cost of any exchange between warps, of its barriers and latencies, in elements that each
thread stores."""


class WarpOrders:
    """The orders for the tiles of a function.

    Attributes:
        threads: of a program.
        reductions: by the shape of their operands.
        accumulated: those that are completed after the loop, if partial results are few.
    """

    def __init__(self, fn: Function, threads: int) -> None:
        self.threads = threads
        self.reductions: dict[tuple[int, ...], list[Reduce]] = {}
        for op in fn.walk():
            if isinstance(op, Reduce):
                self.reductions.setdefault(shape_of(op.srcs[0].type), []).append(op)
        self.accumulated = accumulated(fn)

    def best(
        self, order: Sequence[int], layout_for: Callable[[Sequence[int]], LinearLayout]
    ) -> LinearLayout:
        """The layout of the better order of axes for warps.

        Args:
            order: the axes of the tile from the fastest one.
            layout_for: the layout for an order of axes for warps.
        """
        slowest_first = layout_for(order[::-1])
        reductions = self.reductions.get(tuple(slowest_first.shape), ())
        if not any(_warps_along(slowest_first, op.axis) > 1 for op in reductions):
            return slowest_first
        fastest_first = layout_for(order)
        before, after = (
            sum(self._cost(op, layout) for op in reductions)
            for layout in (slowest_first, fastest_first)
        )
        return fastest_first if after < before else slowest_first

    def _cost(self, reduce: Reduce, layout: LinearLayout) -> int:
        """The cost of a reduction across warps, in exchanged elements."""
        warps = _warps_along(layout, reduce.axis)
        if warps == 1:
            return 0
        trips = assumed_trips(reduce.results[0])
        if reduce in self.accumulated and partial_results(layout, reduce.axis) <= MOST_REGISTERS:
            trips //= TRIPS
        results = prod(layout.shape) // layout.shape[reduce.axis]
        return trips * len(reduce.srcs) * (EXCHANGE * self.threads + warps * results)


def _warps_along(layout: LinearLayout, axis: int) -> int:
    """The number of warps that share the elements along an axis."""
    return 1 << sum(bool(layout.coordinates(column)[axis]) for column in layout.bases(WARP))

"""The order of axes in which the warps of a program are distributed over accessed tiles.

By default along the slowest axis first, so that each row is within one warp, and a reduction of
rows needs no shared memory. But a tile may also be reduced along its slow axis, such as the values
of a few rows that are weighted and summed after their weights have been computed from them: each
warp then has a part of each of many sums, in as many registers, and all of them are exchanged
through shared memory. With the warps along the rows instead, a thread has all rows of its columns,
and warps exchange only one number for each row.

Likewise, a thread that accesses elements one by one computes whether each of its rows and each of
its columns is in bounds. In tiles of a few columns, it has one of many columns' elements with the
warps along the columns, of which often not all exist: a classification's loss is computed by tiles
of 512 classes and 4 places, of which a text has one. With the warps along the classes, a thread has
all places of a few classes, and code for those that never exist is removed.

The order with the lower estimated cost of reductions and masks is chosen for each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tilewright.ir.core import Function, Value
from tilewright.ir.types import shape_of
from tilewright.layout.linear import REGISTER, WARP, LinearLayout
from tilewright.ops.memory import Load, Store
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
        masks: of accesses, by their shape.
    """

    def __init__(self, fn: Function, threads: int) -> None:
        self.threads = threads
        self.reductions: dict[tuple[int, ...], list[Reduce]] = {}
        self.masks: dict[tuple[int, ...], dict[Value, None]] = {}
        for op in fn.walk():
            if isinstance(op, Reduce):
                self.reductions.setdefault(shape_of(op.srcs[0].type), []).append(op)
            elif isinstance(op, Load | Store) and op.mask is not None:
                self.masks.setdefault(shape_of(op.mask.type), {})[op.mask] = None
        self.accumulated = accumulated(fn)

    def best(
        self, order: Sequence[int], vector: int, layout_for: Callable[[Sequence[int]], LinearLayout]
    ) -> LinearLayout:
        """The layout of the better order of axes for warps.

        Args:
            order: the axes of the tile from the fastest one.
            vector: the number of elements of an access.
            layout_for: the layout for an order of axes for warps.
        """
        slowest_first = layout_for(order[::-1])
        shape = tuple(slowest_first.shape)
        reductions = self.reductions.get(shape, ())
        masks = self.masks.get(shape, ()) if vector == 1 else ()
        if not masks and not any(_warps_along(slowest_first, op.axis) > 1 for op in reductions):
            return slowest_first
        fastest_first = layout_for(order)
        before, after = (
            sum(self._cost(op, layout) for op in reductions)
            + sum(self._cost_of_mask(mask, layout) for mask in masks)
            for layout in (slowest_first, fastest_first)
        )
        return fastest_first if after < before else slowest_first

    def _cost_of_mask(self, mask: Value, layout: LinearLayout) -> int:
        """The comparisons of all threads with the bounds of each axis."""
        rank = len(layout.shape)
        return (
            assumed_trips(mask)
            * self.threads
            * sum(_registers_along(layout, d) for d in range(rank))
        )

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


def _registers_along(layout: LinearLayout, axis: int) -> int:
    """The number of places along an axis of the elements of a thread."""
    return 1 << sum(bool(layout.coordinates(column)[axis]) for column in layout.bases(REGISTER))

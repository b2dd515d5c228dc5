"""Scans (prefix combinations) along an axis.

The axis is distributed as `AxisBits` describes: successive elements over *near* registers, then
lanes, then warps, and the rest over *far* registers. Each level scans the totals of the level
below; finally each element is combined with the total of everything before its near registers, or,
if there is one near register, before its lanes:

    near registers   inclusive scan, sequential
    lanes            scan of their totals by shuffles, log2(lanes) steps (Hillis and Steele)
    warps            totals through shared memory; each thread reads those of all warps
    far registers    sequential scan of the totals of all warps, the same in every thread

The combination has no identity element, and nothing precedes the first element of a level, so an
exclusive prefix is a pair of a value and a predicate (`Before`). With `reverse`, all indices along
the axis are mirrored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.layout.linear import LANE, REGISTER, LinearLayout
from tilewright.lowering.emit import I1, V, const
from tilewright.lowering.simt.combine import (
    Element,
    compressed,
    exchanged,
    inline,
    partial_bytes,
    share_partials,
)
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.shared_memory import scratch
from tilewright.ops.reduce import Scan
from tilewright.passes.layout_rules import AxisBits, axis_order, reduced_layout

ALWAYS = const(I1, 1)


class Before(NamedTuple):
    """The combination of all elements before a run; there are none if `holds` is false."""

    element: Element
    holds: V


def _layout(op: Scan) -> tuple[LinearLayout, AxisBits]:
    layout = op.srcs[0].layout
    assert layout is not None
    order = axis_order(layout, op.axis)
    assert order is not None, "layouts were assigned so that the axis can be scanned"
    return layout, order


@scratch(Scan)
def scan_scratch(op: Scan) -> int:
    layout, order = _layout(op)
    return sum(partial_bytes(op, layout, 1 << len(order.far))) if order.warps else 0


@emits(Scan)
def emit_scan(kernel: Kernel, op: Scan) -> None:
    kernel.bind(op, *_Scan(kernel, op).run())


def _bit_sum(bits: Sequence[int]) -> int:
    return sum(1 << bit for bit in bits)


def _scattered(number: int, bits: Sequence[int]) -> int:
    """The number whose bit `bits[i]` is bit i of `number` (as the x86 instruction pdep)."""
    return sum(1 << bit for i, bit in enumerate(bits) if number >> i & 1)


class _Scan:
    """One scan while it is emitted.

    Elements are listed by row, then by far register: a row is a register of the reduced tile.

    Attributes:
        lanes: the bits of a lane along the axis.
        place: this lane with these bits in the order of the scan.
    """

    def __init__(self, kernel: Kernel, op: Scan) -> None:
        self.kernel = kernel
        self.op = op
        self.layout, self.order = _layout(op)
        self.near = self._walk(self.order.near)
        self.far = self._walk(self.order.far)
        moving = _bit_sum((*self.order.near, *self.order.far))
        self.copies = self.layout.free_variables(REGISTER)
        count = self.layout.in_size(REGISTER)
        self.rows = [r for r in range(count) if not r & (moving | self.copies)]
        self.lanes = _bit_sum(self.order.lanes)
        flips = op.reverse and self.lanes
        self.place = kernel.b.xor(kernel.lane, self.lanes) if flips else kernel.lane

    def _walk(self, bits: Sequence[int]) -> list[int]:
        """The register numbers of these bits, in the order of the scan."""
        found = [_scattered(i, bits) for i in range(1 << len(bits))]
        return found[::-1] if self.op.reverse else found

    def _combined(self, left: Element, right: Element) -> Element:
        return inline(self.kernel, self.op.combine, [*left, *right])

    def _select(self, condition: V, left: Element, right: Element) -> Element:
        pairs = zip(left, right, strict=True)
        return tuple(self.kernel.b.select(condition, x, y) for x, y in pairs)

    def run(self) -> list[list[V]]:
        """The registers of each result."""
        runs = [self._near(row | far) for row in self.rows for far in self.far]
        before: list[Before | None] = [None] * len(runs)
        totals = [run[-1] for run in runs]
        if self.order.lanes and len(self.near) == 1:
            inclusive = self._inclusive(totals)
            runs, totals = [[element] for element in inclusive], self._of_all_lanes(inclusive)
        elif self.order.lanes:
            before, totals = self._lanes(totals)
        if self.order.warps:
            before, totals = self._warps(before, totals)
        before = self._far(before, totals)
        found: dict[int, Element] = {}
        starts = [row | far for row in self.rows for far in self.far]
        for start, run, prefix in zip(starts, runs, before, strict=True):
            for near, element in zip(self.near, run, strict=True):
                found[start | near] = self._after(prefix, element)
        registers = range(self.layout.in_size(REGISTER))
        elements = [found[r & ~self.copies] for r in registers]
        return [list(values) for values in zip(*elements, strict=True)]

    def _after(self, before: Before | None, element: Element) -> Element:
        if before is None:
            return element
        combined = self._combined(before.element, element)
        return self._select(before.holds, combined, element)

    def _near(self, first: int) -> list[Element]:
        """The inclusive scan of the near registers, from register `first`."""
        sources = [self.kernel.env[s] for s in self.op.srcs]
        result: list[Element] = []
        for near in self.near:
            element = tuple(source[first | near] for source in sources)
            result.append(self._combined(result[-1], element) if result else element)
        return result

    # -- lanes ----------------------------------------------------------------------------------

    def _lanes(self, totals: Sequence[Element]) -> tuple[list[Before | None], list[Element]]:
        """The prefix of all lower lanes, and the totals of all lanes."""
        b, mask, place = self.kernel.b, self.lanes, self.place
        elements = self._inclusive(totals)
        # Decrement the bits of `mask` only: the others are 0 in `own`, so that the borrow passes
        # through them, and are restored afterwards.
        own = b.and_(place, mask)
        previous = b.or_(b.and_(b.sub(own, 1), mask), b.and_(place, ~mask))
        holds = b.icmp("ne", own, 0)
        lower = [Before(e, holds) for e in self._from(elements, previous)]
        return list(lower), self._of_all_lanes(elements)

    def _inclusive(self, totals: Sequence[Element]) -> list[Element]:
        """The combination of the totals of all lower lanes and of this one."""
        b, place = self.kernel.b, self.place
        elements = list(totals)
        for i, bit in enumerate(self.order.lanes):
            # The last lane of the lower half of each group of 2**(i + 1).
            below = _bit_sum(self.order.lanes[:i])
            source = b.or_(b.and_(place, ~(1 << bit)), below)
            upper = b.icmp("ne", b.and_(place, 1 << bit), 0)
            others = self._from(elements, source)
            elements = [
                self._select(upper, self._combined(other, e), e)
                for other, e in zip(others, elements, strict=True)
            ]
        return elements

    def _of_all_lanes(self, inclusive: list[Element]) -> list[Element]:
        """The totals of all lanes, valid in the last lane along the axis; in all lanes, if far
        registers need them there."""
        if not self.order.far or self.order.warps:
            return inclusive
        return self._from(inclusive, self.kernel.b.or_(self.place, self.lanes))

    def _from(self, elements: Sequence[Element], place: V) -> list[Element]:
        """The elements of the lane at a position in the order of the scan."""
        b = self.kernel.b
        lane = b.xor(place, self.lanes) if self.op.reverse else place

        def move(word: V) -> V:
            return self.kernel.hw.shuffle(b, word, lane)

        return [tuple(exchanged(b, v, move) for v in element) for element in elements]

    # -- warps ----------------------------------------------------------------------------------

    def _warps(
        self, before: Sequence[Before | None], totals: Sequence[Element]
    ) -> tuple[list[Before | None], list[Element]]:
        """The prefix of all lower warps and lanes, and the totals of all warps."""
        b = self.kernel.b
        writes = self._is_last_lane()
        partials = share_partials(self.kernel, self.op, self.layout, totals, writes)
        index = compressed(self.kernel, self.kernel.warp, self.order.warps)
        if self.op.reverse:
            index = b.xor(index, (1 << len(self.order.warps)) - 1)
        found: list[Before | None] = []
        sums: list[Element] = []
        for i, inner in enumerate(before):
            part = partials.of(i)
            prefixes = [part[-1] if self.op.reverse else part[0]]
            for element in part[-2::-1] if self.op.reverse else part[1:]:
                prefixes.append(self._combined(prefixes[-1], element))
            lower = prefixes[0]
            for warp, prefix in enumerate(prefixes[1:-1], 2):
                lower = self._select(b.icmp("uge", index, warp), prefix, lower)
            found.append(self._both(Before(lower, b.icmp("ne", index, 0)), inner))
            sums.append(prefixes[-1])
        return found, sums

    def _is_last_lane(self) -> V:
        """Predicate: this lane holds the total of its warp, and no lower lane a copy of it."""
        b = self.kernel.b
        mask = self.lanes
        copies = reduced_layout(self.layout, self.op.axis).free_variables(LANE) & ~mask
        return b.icmp("eq", b.and_(self.kernel.lane, mask | copies), 0 if self.op.reverse else mask)

    # -- far registers --------------------------------------------------------------------------

    def _far(
        self, before: Sequence[Before | None], totals: Sequence[Element]
    ) -> list[Before | None]:
        """The prefixes extended by the totals of all lower far registers."""
        count = len(self.far)
        result: list[Before | None] = []
        for start in range(0, len(before), count):
            running: Element | None = None
            for i in range(start, start + count):
                outer = Before(running, ALWAYS) if running is not None else None
                result.append(self._both(outer, before[i]))
                if i + 1 < start + count:
                    running = self._combined(running, totals[i]) if running else totals[i]
        return result

    def _both(self, outer: Before | None, inner: Before | None) -> Before | None:
        """The combination of two prefixes, where `outer` precedes `inner`."""
        if outer is None or inner is None:
            return outer or inner
        b = self.kernel.b
        combined = self._combined(outer.element, inner.element)
        element = self._select(inner.holds, combined, outer.element)
        if outer.holds is ALWAYS:
            return Before(element, ALWAYS)
        element = self._select(outer.holds, element, inner.element)
        return Before(element, b.or_(outer.holds, inner.holds))

"""`tile.scan`: inclusive prefix combinations along an axis.

If the tile has another axis for the lanes, the scan is a loop that carries vectors: one combination
for each vector. Otherwise W elements are scanned at a time: log2(W) steps within the vector, each
combining every lane with one at a power-of-two distance (Hillis and Steele), and then with the
running total of the preceding vectors.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.lowering.emit import I1 as BIT
from tilewright.lowering.emit import I64, V, const, const_vector
from tilewright.ops import reduce
from tilewright.targets.cpu import access
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.combine import combine_lanes
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import ZERO, Lanes, index, neighbours, sub
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.loops import loop, over_axes, straight


def emit_scan(kernel: Kernel, level: Level, op: reduce.Scan) -> None:
    buffers = [kernel.buffer(r) for r in op.results]
    scan = _Scan(kernel, op, buffers)
    body = scan.lanes if scan.lane is not None else scan.within
    over_axes(level, scan.shape, scan.outer_axes, body)
    for result, buffer in zip(op.results, buffers, strict=True):
        kernel.env[result] = buffer


class _Scan:
    def __init__(self, kernel: Kernel, op: reduce.Scan, buffers: list[Buffer]) -> None:
        self.kernel = kernel
        self.op = op
        self.buffers = buffers
        self.shape = ir.shape_of(op.srcs[0].type)
        others = [a for a in range(len(self.shape)) if a != op.axis and self.shape[a] > 1]
        self.lane = others[-1] if others else None
        self.outer_axes = [a for a in range(len(self.shape)) if a not in (op.axis, self.lane)]

    def coords(self, level: Level, at: dict[int, Lanes], step: Lanes) -> Coords:
        """The point at a position in the order of the scan."""
        if self.op.reverse:
            step = sub(level.b, index(self.shape[self.op.axis] - 1), step, level.width)
        found = {**at, self.op.axis: step}
        return tuple(found[a] for a in range(len(self.shape)))

    def read(self, level: Level, coords: Coords) -> list[V]:
        return [level.vector(evaluate(level, s, coords)) for s in self.op.srcs]

    def write(self, level: Level, coords: Coords, values: list[V]) -> None:
        for buffer, v in zip(self.buffers, values, strict=True):
            held = Lanes(v, None if v.type.lanes else 0, level.depth)
            access.write_buffer(level, buffer, coords, held)

    # -- lanes on another axis ------------------------------------------------------------------

    def lanes(self, level: Level, at: dict[int, Lanes]) -> None:
        assert self.lane is not None
        size = self.shape[self.lane]
        width = min(self.kernel.lanes, size)
        whole = size // width * width
        stop = const(I64, whole)
        with loop(level, const(I64, 0), stop, width, width=width) as opened:
            lane = neighbours(opened.index, width, opened.level.depth)
            self.column(opened.level, {**at, self.lane: lane})
        if whole < size:
            with straight(level, size - whole) as child:
                lane = neighbours(const(I64, whole), size - whole, child.depth)
                self.column(child, {**at, self.lane: lane})

    def column(self, level: Level, at: dict[int, Lanes]) -> None:
        first = self.coords(level, at, ZERO)
        state = self.read(level, first)
        self.write(level, first, state)
        stop = const(I64, self.shape[self.op.axis])
        with loop(level, const(I64, 1), stop, 1, state) as opened:
            here = Lanes(opened.index, 0, opened.level.depth)
            coords = self.coords(opened.level, at, here)
            args = [*opened.carried, *self.read(opened.level, coords)]
            state = combine_lanes(opened.level, self.op.combine_region, args)
            self.write(opened.level, coords, state)
            opened.next = state

    # -- within vectors -------------------------------------------------------------------------

    def within(self, level: Level, at: dict[int, Lanes]) -> None:
        size = self.shape[self.op.axis]
        width = min(self.kernel.lanes, size)
        with straight(level, width) as child:
            total = self.block(child, at, const(I64, 0), None)
        whole = size // width * width
        stop = const(I64, whole)
        if whole > width:
            with loop(level, const(I64, width), stop, width, total, width=width) as opened:
                opened.next = self.block(opened.level, at, opened.index, opened.carried)
            total = opened.results
        if whole < size:
            with straight(level, size - whole) as child:
                self.block(child, at, stop, total)

    def block(
        self, level: Level, at: dict[int, Lanes], start: V, before: list[V] | None
    ) -> list[V]:
        """Scan one vector, continuing from the running total `before`; returns the new total."""
        b, width = level.b, level.width
        step = neighbours(start, width, level.depth)
        coords = self.coords(level, at, step)
        values = self.read(level, coords)
        distance = 1
        while distance < width:
            values = self.combine_shifted(level, values, distance, width)
            distance *= 2
        if before is not None:
            spread = [b.splat(v, width) if width > 1 else v for v in before]
            values = combine_lanes(level, self.op.combine_region, [*spread, *values])
        self.write(level, coords, values)
        return [b.extract(v, width - 1) if width > 1 else v for v in values]

    def combine_shifted(self, level: Level, values: list[V], distance: int, width: int) -> list[V]:
        b = level.b
        picked = [max(0, k - distance) for k in range(width)]
        shifted = [b.shuffle(v, None, picked) for v in values]
        has_left = const_vector(BIT, [int(k >= distance) for k in range(width)])
        combined = combine_lanes(level, self.op.combine_region, [*shifted, *values], has_left)
        return [b.select(has_left, c, v) for c, v in zip(combined, values, strict=True)]

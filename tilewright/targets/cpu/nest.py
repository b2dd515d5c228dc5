"""Loop nests over tiles: the loops of a group.

Input: an iteration space and the sinks to execute at each of its points. Output: loops over all
axes, of which the lane axis is vectorised. The lane loop is split at the bounds of the masks
(`masks`): a part without masks, unrolled; a masked part; and a part where all masks are false, of
which only one point is evaluated. The remainder that is narrower than a vector is emitted as a
narrower vector. At a point, all sinks are evaluated before any of them writes memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Value
from tilewright.lowering.emit import I64, Builder, V, const
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import ZERO, Lanes, neighbours
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.loops import either, loop, over_axes, straight
from tilewright.targets.cpu.masks import Bounds, MaskUses, UniformWhereFalse, find_bounds
from tilewright.targets.cpu.plan import lane_axis
from tilewright.targets.cpu.sinks import Copy, Sink
from tilewright.targets.cpu.streaming import aligned_streams, streamed_by

NONE: frozenset[Value] = frozenset()
STREAM_COST = 12  # the cost, with addresses and masks, up to which a loop is bound by memory


def run_sinks(
    kernel: Kernel,
    level: Level,
    shape: tuple[int, ...],
    sinks: list[Sink],
    reduce_axis: int | None = None,
) -> None:
    """Emit one loop nest that executes sinks at all points of a shape, and bind their results."""
    with kernel.line_of(sinks[0].op if sinks else None):
        nest = Nest(kernel, shape, sinks, reduce_axis)
        over_axes(level, shape, nest.outer_axes, nest.lanes)
    for sink in sinks:
        sink.bind()


def copy_tiles(kernel: Kernel, level: Level, pairs: list[tuple[Value, Buffer]]) -> None:
    """Evaluate tile values into buffers, in one loop nest for each shape."""
    by_shape: dict[tuple[int, ...], list[Sink]] = {}
    for value, buffer in pairs:
        bound = kernel.env.get(value)
        if isinstance(bound, Buffer) and bound.ptr is buffer.ptr:
            continue
        by_shape.setdefault(buffer.type.shape, []).append(Copy(kernel, value, buffer))
    for shape, sinks in by_shape.items():
        kernel.b.at(level.block)
        run_sinks(kernel, level, shape, sinks)


def lane_of(kernel: Kernel, shape: tuple[int, ...], sinks: list[Sink]) -> int:
    """The lane axis of a loop nest over sinks."""
    if any(sink.row_major for sink in sinks):
        return len(shape) - 1
    pointers = [p for sink in sinks for p in sink.pointers()]
    written = [p for sink in sinks for p in sink.written]
    return lane_axis(kernel.plan, shape, pointers, written)


class Nest:
    """One loop nest.

    The lane axis is inside the other axes. A reduced axis that is not the lane axis is innermost,
    with its accumulators in vector registers.

    Args:
        lane: the lane axis; None for the one along which most accesses are contiguous.
        moving_lanes: the number of lanes if the loop only moves data; None for the default.
    """

    def __init__(
        self,
        kernel: Kernel,
        shape: tuple[int, ...],
        sinks: list[Sink],
        reduce_axis: int | None = None,
        *,
        lane: int | None = None,
        moving_lanes: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.shape = shape
        self.sinks = sinks
        self.moving_lanes = moving_lanes
        self.lane = lane_of(kernel, shape, sinks) if lane is None else lane
        self.size = self.shape[self.lane]
        self.width = min(self._lanes(), self.size)
        self.inner = reduce_axis if reduce_axis not in (None, self.lane) else None
        rank = len(self.shape)
        self.outer_axes = [a for a in range(rank) if a not in (self.lane, self.inner)]
        identity = tuple(range(rank))
        roots = [(v, identity) for sink in sinks for v in sink.operands]
        self.uses = MaskUses(roots, kernel.env)
        for sink in self.sinks:
            if sink.mask is not None:
                self.uses.add_mask(sink.mask)
        self.unroll = self._unroll()

    def _lanes(self) -> int:
        """The number of lanes.

        Loops that only move data use half the width of AVX-512: two accesses of 256 bits are faster
        than one of 512 bits (addition of 2^22 elements: 1.19 ms and 1.55 ms on a Zen 4), while
        arithmetic gains from the full width.
        """
        kernel = self.kernel
        if any(s.row_major for s in self.sinks):
            return min(s.lanes(self.lane) for s in self.sinks)
        moves = not any(s.accumulators for s in self.sinks) and all(
            kernel.cost(v) <= STREAM_COST for s in self.sinks for v in s.operands
        )
        if moves and self.moving_lanes is not None:
            return self.moving_lanes
        return kernel.lanes // 2 if moves and kernel.machine.vector_bytes == 64 else kernel.lanes

    def _unroll(self) -> int:
        """Vectors per iteration: several for reductions, so that several independent accumulators
        hide the latency of the combination; fewer if the body is expensive."""
        accumulates = any(s.accumulators for s in self.sinks)
        cost = max([self.kernel.cost(v) for s in self.sinks for v in s.operands], default=0)
        count = 1
        if accumulates:
            count = 4 if cost <= 8 else 2
        while count > 1 and self.size < 2 * count * self.width:
            count //= 2
        return count

    def coords(self, at: dict[int, Lanes], lane: Lanes, inner: Lanes | None = None) -> Coords:
        found = {**at, self.lane: lane}
        if self.inner is not None:
            found[self.inner] = inner if inner is not None else ZERO
        return tuple(found[a] for a in range(len(self.shape)))

    # -- the lane axis --------------------------------------------------------------------------

    def lanes(self, level: Level, at: dict[int, Lanes]) -> None:
        """Emit the lane axis, and combine the accumulators of its parts."""
        state = [a.start(self.width) for s in self.sinks for a in s.accumulators]
        whole = self.size // self.width * self.width
        if whole == self.width and not self.uses.masks:
            state = self.one_point(level, at, 0, self.width, state)
        else:
            state = self.segments(level, at, whole, state)
        scalars = self.finish(level, state)
        if whole < self.size:
            scalars = self.remainder(level, at, whole, scalars)
        if self.inner is None:
            self.store_scalars(level, at, scalars)

    def segments(
        self, level: Level, at: dict[int, Lanes], whole: int, state: list[list[V]]
    ) -> list[list[V]]:
        """Split the lane axis into a part without masks, a masked part and an empty part."""
        b = level.b
        open_axes = {self.inner} if self.inner is not None else set[int]()
        bounds = None
        if self.uses.masks:
            # At full width, so that values which differ between lanes are recognised as such; and
            # forms must be valid along the whole axis, not only for the first vector.
            with straight(level, self.width) as child:
                child.span = self.size
                probe = self.coords(at, neighbours(const(I64, 0), self.width, child.depth))
                bounds = find_bounds(child, self.uses, probe, self.lane, open_axes, self.size)
        end = const(I64, whole)
        if bounds is None:
            return self.large(level, at, end, state, None)
        assumed = dict.fromkeys(bounds.true, True)
        full = b.intrinsic("llvm.smin", I64, [bounds.full, end], overloads=[I64])
        full = self.whole_vectors(b, full)
        state = self.large(level, at, full, state, assumed)
        empty = self.empty_from(level, bounds, whole)
        if empty is None:
            return self.vectors(level, at, full, end, 1, state, None)
        if bounds.sharp:
            empty = full
        else:
            state = self.vectors(level, at, full, empty, 1, state, None)
        if all(s.mask is not None for s in self.sinks):
            return state

        def rest(child: Level) -> list[list[V]]:
            return self.one_value(child, at, empty, whole, bounds, state)

        return either(level, b.icmp("slt", empty, end), [rest, lambda _: state])

    def whole_vectors(self, b: Builder, count: V) -> V:
        """The count rounded down to whole vectors; the width need not be a power of two."""
        return b.sub(count, b.urem(count, const(I64, self.width)))

    def large(
        self,
        level: Level,
        at: dict[int, Lanes],
        stop: V,
        state: list[list[V]],
        assumed: dict[Value, bool] | None,
    ) -> list[list[V]]:
        """The part without masks. If it has streamed stores, there is a second version of the loop,
        with non-temporal stores, selected at run time."""
        start = const(I64, 0)
        whole = [s for s in self.sinks if s.mask is None or (assumed or {}).get(s.mask)]
        streamed = streamed_by(self.kernel, whole, self.lane)
        if not streamed or self.width & (self.width - 1):  # other widths can't be aligned
            return self.run(level, at, start, stop, state, assumed)
        with straight(level, self.width) as child:
            coords = self.coords(at, neighbours(start, self.width, child.depth))
            streamed, condition = aligned_streams(child, coords, streamed)

        def run(child: Level, streamed: frozenset[Value]) -> list[list[V]]:
            child.streamed = streamed
            return self.run(child, at, start, stop, state, assumed)

        return either(
            level, condition, [lambda child: run(child, streamed), lambda child: run(child, NONE)]
        )

    def run(
        self,
        level: Level,
        at: dict[int, Lanes],
        start: V,
        stop: V,
        state: list[list[V]],
        assumed: dict[Value, bool] | None,
    ) -> list[list[V]]:
        """A loop of `unroll` vectors per iteration, then one of single vectors."""
        if self.unroll == 1 or self.inner is not None:
            return self.vectors(level, at, start, stop, 1, state, assumed)
        b = level.b
        chunk = self.unroll * self.width
        length = b.sub(stop, start)
        many = b.add(start, b.sub(length, b.urem(length, const(I64, chunk))))
        copies = [[*s] for s in state for _ in range(self.unroll)]
        accumulators = [a for s in self.sinks for a in s.accumulators]
        for i, a in enumerate(accumulators):
            for k in range(1, self.unroll):
                copies[i * self.unroll + k] = a.start(self.width)
        copies = self.vectors(level, at, start, many, self.unroll, copies, assumed)
        merged: list[list[V]] = []
        for i, a in enumerate(accumulators):
            mine = copies[i * self.unroll : (i + 1) * self.unroll]
            while len(mine) > 1:  # pairwise, for a shorter dependence chain
                mine = [a.combine(level, *mine[k : k + 2]) for k in range(0, len(mine), 2)]
            merged += mine
        return self.vectors(level, at, many, stop, 1, merged, assumed)

    def vectors(
        self,
        level: Level,
        at: dict[int, Lanes],
        start: V,
        stop: V,
        points: int,
        state: list[list[V]],
        assumed: dict[Value, bool] | None,
    ) -> list[list[V]]:
        """A loop over whole vectors, `points` of them per iteration."""
        if start.number is not None and start.number == stop.number:
            return state
        flat = [v for s in state for v in s]
        step = points * self.width
        with loop(level, start, stop, step, flat, self.width, assumed) as opened:
            current = _regroup(opened.carried, state)
            for k in range(points):
                index = opened.level.b.add(opened.index, const(I64, k * self.width))
                lane = neighbours(index, self.width, opened.level.depth)
                mine = current[k::points] if points > 1 else current
                mine = self.point(opened.level, at, lane, mine)
                if points > 1:
                    current[k::points] = mine
                else:
                    current = mine
            opened.next = [v for s in current for v in s]
        return _regroup(opened.results, state)

    def one_point(
        self,
        level: Level,
        at: dict[int, Lanes],
        start: int,
        width: int,
        state: list[list[V]],
    ) -> list[list[V]]:
        with straight(level, width) as child:
            lane = neighbours(const(I64, start), width, child.depth)
            return self.point(child, at, lane, state)

    def remainder(
        self, level: Level, at: dict[int, Lanes], start: int, scalars: list[list[V]]
    ) -> list[list[V]]:
        """The last lanes, fewer than a vector, as one narrower vector."""
        width = self.size - start
        accumulators = [a for s in self.sinks for a in s.accumulators]
        fresh = [a.start(width) for a in accumulators]
        state = self.one_point(level, at, start, width, fresh)
        if self.inner is not None:
            return scalars
        return [
            a.combine(level, whole, a.across(level, part))
            for a, whole, part in zip(accumulators, scalars, state, strict=True)
        ]

    # -- one point ------------------------------------------------------------------------------

    def point(
        self, level: Level, at: dict[int, Lanes], lane: Lanes, state: list[list[V]]
    ) -> list[list[V]]:
        """Execute all sinks at one vector of lanes; returns the updated accumulators."""
        if self.inner is not None:
            return self.reduce_inside(level, at, lane, state)
        coords = self.coords(at, lane)
        return self.visit(level, coords, state)

    def visit(self, level: Level, coords: Coords, state: list[list[V]]) -> list[list[V]]:
        """Execute all sinks at a point: evaluate all before any writes memory."""
        for sink in self.sinks:
            sink.evaluate(level, coords)
        remaining = iter(state)
        result: list[list[V]] = []
        for sink in self.sinks:
            for a in sink.accumulators:
                with self.kernel.line_of(sink.op):
                    result.append(a.add(level, coords, next(remaining)))
        for sink in self.sinks:
            with self.kernel.line_of(sink.op):
                sink.commit(level, coords)
        return result

    def reduce_inside(
        self, level: Level, at: dict[int, Lanes], lane: Lanes, state: list[list[V]]
    ) -> list[list[V]]:
        """A loop over the reduced axis, and the writes of its results at these lanes."""
        assert self.inner is not None
        accumulators = [a for s in self.sinks for a in s.accumulators]
        fresh = [a.start(level.width) for a in accumulators]
        flat = [v for s in fresh for v in s]
        stop = const(I64, self.shape[self.inner])
        with loop(level, const(I64, 0), stop, 1, flat) as opened:
            inner = Lanes(opened.index, 0, opened.level.depth)
            coords = self.coords(at, lane, inner)
            current = self.visit(opened.level, coords, _regroup(opened.carried, fresh))
            opened.next = [v for s in current for v in s]
        totals = _regroup(opened.results, fresh)
        remaining = iter(totals)
        coords = self.coords(at, lane)
        for sink in self.sinks:
            for a in sink.accumulators:
                a.write(level, coords, next(remaining))
        return state

    # -- the ends -------------------------------------------------------------------------------

    def finish(self, level: Level, state: list[list[V]]) -> list[list[V]]:
        """Combine the lanes of each accumulator."""
        if self.inner is not None:
            return state
        accumulators = [a for s in self.sinks for a in s.accumulators]
        return [a.across(level, s) for a, s in zip(accumulators, state, strict=True)]

    def store_scalars(self, level: Level, at: dict[int, Lanes], scalars: list[list[V]]) -> None:
        remaining = iter(scalars)
        coords = self.coords(at, ZERO)
        for sink in self.sinks:
            for a in sink.accumulators:
                a.write(level, coords, next(remaining))

    def empty_from(self, level: Level, bounds: Bounds, whole: int) -> V | None:
        """The start of the part in which all masks are false, rounded up to a vector.

        None if there is no bound, or if a sink can't skip this part: what it evaluates must be
        uniform there.
        """
        if bounds.empty is None or self.inner is not None:
            return None
        uniform = UniformWhereFalse(self.lane, set(bounds.false), self.kernel.env)
        identity = tuple(range(len(self.shape)))
        for sink in self.sinks:
            if not sink.may_skip:
                return None
            if sink.mask is not None:
                continue
            if not all(uniform.same_along(v, identity) for v in sink.operands):
                return None
        b = level.b
        up = b.add(bounds.empty, const(I64, self.width - 1))
        up = self.whole_vectors(b, up)
        return b.intrinsic("llvm.smin", I64, [up, const(I64, whole)], overloads=[I64])

    def one_value(
        self,
        level: Level,
        at: dict[int, Lanes],
        start: V,
        whole: int,
        bounds: Bounds,
        state: list[list[V]],
    ) -> list[list[V]]:
        """The part from `start` on in which all masks are false; it must not be empty. Each sink
        evaluates its value once, and fills its buffer with it, or combines copies of it."""
        sinks = [s for s in self.sinks if s.mask is None]
        count = level.b.sub(const(I64, whole), start)
        assumed = dict.fromkeys(bounds.false, False)
        accumulators = [a for s in sinks for a in s.accumulators]
        with straight(level, 1, assumed) as child:
            # A point at which the masks are false, since buffers of earlier groups are read there.
            # Its depth is that of this level, so that evaluation is subject to the assumptions.
            coords = self.coords(at, Lanes(const(I64, max(0, whole - 1)), 0, child.depth))
            for sink in sinks:
                sink.evaluate(child, coords)
            state = [
                a.add_repeated(child, coords, s, count, self.width)
                for a, s in zip(accumulators, state, strict=True)
            ]
            values = [s.value for s in sinks if s.fills]
            fills = [s for s in sinks if s.fills]
        if fills:
            with loop(level, start, const(I64, whole), self.width, width=self.width) as opened:
                lane = neighbours(opened.index, self.width, opened.level.depth)
                for sink, value in zip(fills, values, strict=True):
                    sink.fill(opened.level, self.coords(at, lane), value)
        return state


def _regroup(flat: Sequence[V], like: Sequence[Sequence[V]]) -> list[list[V]]:
    remaining = iter(flat)
    return [[next(remaining) for _ in group] for group in like]

"""Loop nests over tiles: the loops of a group, their lane loop split where masks are known."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Value
from tilewright.lowering.emit import I64, Builder, V, const
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import ZERO, Lanes, neighbours
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.loops import either, loop, over_axes, straight
from tilewright.targets.cpu.masks import Alike, Bounds, MaskUses, find_bounds
from tilewright.targets.cpu.plan import Group
from tilewright.targets.cpu.prefetch import prefetch_sinks
from tilewright.targets.cpu.sinks import Copy, Sink, sinks_of
from tilewright.targets.cpu.streaming import aligned_streams, streamed_by

NONE: frozenset[Value] = frozenset()
STREAM_COST = 12  # up to this a loop waits for memory, addresses and masks included


def emit_group(kernel: Kernel, level: Level, group: Group) -> None:
    """Emit the loops of a group and bind what it makes."""
    sinks = [*sinks_of(kernel, group), *prefetch_sinks(kernel, group)]
    run_sinks(kernel, level, group.shape, sinks, group.reduce_axis)


def run_sinks(
    kernel: Kernel,
    level: Level,
    shape: tuple[int, ...],
    sinks: list[Sink],
    reduce_axis: int | None = None,
) -> None:
    """Run sinks over all points of a shape, in one loop nest, and bind what they make."""
    with kernel.line_of(sinks[0].op if sinks else None):
        nest = Nest(kernel, shape, sinks, reduce_axis)
        over_axes(level, shape, nest.outer_axes, nest.lanes)
    for sink in sinks:
        sink.bind()


def copy_tiles(kernel: Kernel, level: Level, pairs: list[tuple[Value, Buffer]]) -> None:
    """Evaluate tile values into buffers, those of one shape in one nest."""
    by_shape: dict[tuple[int, ...], list[Sink]] = {}
    for value, buffer in pairs:
        bound = kernel.env.get(value)
        if isinstance(bound, Buffer) and bound.ptr is buffer.ptr:
            continue
        by_shape.setdefault(buffer.type.shape, []).append(Copy(kernel, value, buffer))
    for shape, sinks in by_shape.items():
        kernel.b.at(level.block)
        run_sinks(kernel, level, shape, sinks)


def lane_axis(kernel: Kernel, shape: tuple[int, ...], sinks: list[Sink]) -> int:
    """The axis along which most loads and stores are contiguous; the last where none is."""
    votes = [0] * len(shape)
    for sink in sinks:
        for pointer in sink.pointers():
            strides = kernel.plan.forms.constant_strides(pointer)
            for axis, stride in enumerate(strides):
                if len(strides) == len(shape) and stride == 1 and shape[axis] > 1:
                    votes[axis] += 1
    last = len(shape) - 1
    best = max(range(len(shape)), key=lambda a: (votes[a], shape[a] > 1, a))
    return best if votes[best] or shape[last] == 1 else last


class Nest:
    """One loop nest.

    Order: the other axes, then the lane axis; an axis that is reduced, but is not the lane axis,
    comes innermost, with the accumulators in vector registers.

    Args:
        lane: the lane axis; None for the one along which most accesses are contiguous.
        moving_lanes: lanes of loops that only move data, where it is not left to `_lanes`.
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
        self.lane = lane_axis(kernel, shape, sinks) if lane is None else lane
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
        """Half-width vectors for loops that only move data: two 256-bit accesses go through the
        load and store units faster than one of 512 bits (measured: add at 2^22 elements 1.19 ms
        against 1.55 ms on a Zen 4), while arithmetic gains from the full width."""
        kernel = self.kernel
        moves = not any(s.accumulators for s in self.sinks) and all(
            kernel.cost(v) <= STREAM_COST for s in self.sinks for v in s.operands
        )
        if moves and self.moving_lanes is not None:
            return self.moving_lanes
        return kernel.lanes // 2 if moves and kernel.machine.vector_bytes == 64 else kernel.lanes

    def _unroll(self) -> int:
        """Vectors per iteration: several where the body is light and a chain of sums would
        otherwise wait for itself."""
        accumulates = any(s.accumulators for s in self.sinks)
        cost = max([self.kernel.cost(v) for s in self.sinks for v in s.operands], default=0)
        wanted = 1
        if accumulates:
            wanted = 4 if cost <= 8 else 2
        while wanted > 1 and self.size < 2 * wanted * self.width:
            wanted //= 2
        return wanted

    def coords(self, at: dict[int, Lanes], lane: Lanes, inner: Lanes | None = None) -> Coords:
        found = {**at, self.lane: lane}
        if self.inner is not None:
            found[self.inner] = inner if inner is not None else ZERO
        return tuple(found[a] for a in range(len(self.shape)))

    # -- the lane axis --------------------------------------------------------------------------

    def lanes(self, level: Level, at: dict[int, Lanes]) -> None:
        """Split the lane axis into a part without masks, a masked part and an empty part."""
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
        b = level.b
        open_axes = {self.inner} if self.inner is not None else set[int]()
        bounds = None
        if self.uses.masks:
            # with all lanes, so that what differs between them is seen to differ
            with straight(level, self.width) as child:
                child.span = self.size  # bounds hold for the axis, not for the first vector alone
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
        """The count rounded down to vectors, whose width need not be a power of two."""
        return b.sub(count, b.urem(count, const(I64, self.width)))

    def large(
        self,
        level: Level,
        at: dict[int, Lanes],
        stop: V,
        state: list[list[V]],
        assumed: dict[Value, bool] | None,
    ) -> list[list[V]]:
        """The part without masks: twice, where its stores may go past the caches."""
        start = const(I64, 0)
        whole = [s for s in self.sinks if s.mask is None or (assumed or {}).get(s.mask)]
        streamed = streamed_by(self.kernel, whole, self.lane)
        if not streamed or self.width & (self.width - 1):  # only such vectors can be aligned
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
        """Several vectors an iteration as long as there are, then one."""
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
            while len(mine) > 1:  # neighbours, so that no sum waits for all others
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
        """A loop over whole vectors, `points` of them an iteration."""
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
        """The last lanes, fewer than a vector."""
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
        """All sinks at one vector of lanes; returns the accumulators after it."""
        if self.inner is not None:
            return self.reduce_inside(level, at, lane, state)
        coords = self.coords(at, lane)
        return self.visit(level, coords, state)

    def visit(self, level: Level, coords: Coords, state: list[list[V]]) -> list[list[V]]:
        """Everything is evaluated before anything is stored."""
        for sink in self.sinks:
            sink.evaluate(level, coords)
        remaining = iter(state)
        found: list[list[V]] = []
        for sink in self.sinks:
            for a in sink.accumulators:
                with self.kernel.line_of(sink.op):
                    found.append(a.add(level, coords, next(remaining)))
        for sink in self.sinks:
            with self.kernel.line_of(sink.op):
                sink.commit(level, coords)
        return found

    def reduce_inside(
        self, level: Level, at: dict[int, Lanes], lane: Lanes, state: list[list[V]]
    ) -> list[list[V]]:
        """The reduced axis as the innermost loop, then its results at these lanes."""
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
        """Across the lanes of each accumulator."""
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
        """Where the part begins in which all masks fail, rounded up to a vector; None if there
        is none that can be skipped."""
        if bounds.empty is None or self.inner is not None:
            return None
        alike = Alike(self.lane, set(bounds.false), self.kernel.env)
        identity = tuple(range(len(self.shape)))
        for sink in self.sinks:
            if not sink.may_skip:
                return None
            if sink.mask is not None:
                continue
            if not all(alike.same_along(v, identity) for v in sink.operands):
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
        """Past the last mask, at all points from `start` on, of which there are some: fill what is
        kept with its one value, reduce it at once."""
        sinks = [s for s in self.sinks if s.mask is None]
        count = level.b.sub(const(I64, whole), start)
        assumed = dict.fromkeys(bounds.false, False)
        accumulators = [a for s in sinks for a in s.accumulators]
        with straight(level, 1, assumed) as child:
            # One in which the masks fail, as what earlier groups kept is read there; and it must
            # belong to this level for the assumptions to hold.
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

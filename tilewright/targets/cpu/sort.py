"""`tile.sort`: each row is sorted in memory, by the exchanges of the network in `ops/sort.py`.

A row consists of vectors of W elements, padded with elements that sort to the end. Successive
exchanges within vectors are shuffles in a single pass over the row; an exchange between vectors is
a loop over pairs of vectors. The network has O(log^2 N) exchanges of N / 2 pairs.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import types as ir
from tilewright.lowering.emit import I1, I64, V, const, const_vector, vector
from tilewright.lowering.types import memory_type
from tilewright.ops.sort import Exchange, Sort, network
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes, neighbours
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.loops import loop, over_axes, straight


def emit_sort(kernel: Kernel, level: Level, op: Sort) -> None:
    sort = _Sort(kernel, op)
    over_axes(level, sort.shape, list(range(len(sort.shape) - 1)), sort.row)
    kernel.env[op.result] = sort.buffer


class _Sort:
    """The emission of one sort.

    Attributes:
        width: elements of a vector, a power of two.
        length: elements of a row, padding included.
    """

    def __init__(self, kernel: Kernel, op: Sort) -> None:
        self.kernel = kernel
        self.op = op
        self.b = kernel.b
        self.buffer = kernel.buffer(op.result)
        self.shape = ir.shape_of(op.src.type)
        self.extent = self.shape[-1]
        self.width = min(kernel.lanes, 1 << (self.extent - 1).bit_length())
        self.length = -(-self.extent // self.width) * self.width
        self.element = memory_type(op.src.type)
        filled = self.length > self.extent
        self.space = kernel.allocate(self.element, self.length) if filled else None

    def row(self, level: Level, at: dict[int, Lanes]) -> None:
        position = const(I64, 0)
        for axis, extent in enumerate(self.shape[:-1]):
            self.b.at(level.block)
            position = self.b.add(self.b.mul(position, extent), at[axis].base)
        self.b.at(level.block)
        start = self.b.mul(position, self.extent)
        result = self.b.gep(self.element, self.buffer.ptr, start)
        row = self.space or result
        level.block = self.b.current
        self.read(level, tuple(at[a] for a in range(len(self.shape) - 1)), row)
        passes: list[list[Exchange]] = []
        for exchange in network(self.length, self.op.merge):
            within = 2 * exchange.top <= self.width
            if within and passes and 2 * passes[-1][0].top <= self.width:
                passes[-1].append(exchange)
            else:
                passes.append([exchange])
        for steps in passes:
            if 2 * steps[0].top <= self.width:
                self.within(level, row, steps)
            else:
                self.between(level, row, steps[0])
        if self.space is not None:
            self.each_vector(
                level, self.extent, lambda inner, i, n: self.move(inner, row, result, i, n)
            )

    def each_vector(self, level: Level, count: int, body: Callable[[Level, V, int], None]) -> None:
        """Visit `count` elements: a loop over whole vectors, then a shorter vector for the rest."""
        whole = count // self.width * self.width
        with loop(level, const(I64, 0), const(I64, whole), self.width, width=self.width) as opened:
            body(opened.level, opened.index, self.width)
            opened.level.block = self.b.current
        if whole < count:
            with straight(level, count - whole) as child:
                body(child, const(I64, whole), count - whole)
                child.block = self.b.current

    def move(self, level: Level, source: V, target: V, start: V, count: int) -> None:
        b = self.b
        b.at(level.block)
        kind = vector(self.element, count) if count > 1 else self.element
        value = b.load(kind, b.gep(self.element, source, start))
        b.store(value, b.gep(self.element, target, start))

    def read(self, level: Level, outer: Coords, row: V) -> None:
        """Write a row of the source to memory, and pad it."""

        def put(inner: Level, start: V, count: int) -> None:
            place = neighbours(start, count, inner.depth)
            value = inner.vector(evaluate(inner, self.op.src, (*outer, place)))
            self.b.at(inner.block)
            self.b.store(value, self.b.gep(self.element, row, start))

        self.each_vector(level, self.extent, put)
        element = ir.dtype_of(self.op.src.type)
        least, most = element.get_int_min_value(), element.get_int_max_value()
        last = const(self.element, least if self.op.descending else most)
        self.b.at(level.block)
        for i in range(self.extent, self.length):
            self.b.store(last, self.b.gep(self.element, row, i))

    # -- exchanges ------------------------------------------------------------------------------

    def ordered(self, x: V, y: V) -> tuple[V, V]:
        """The elements for the lower and for the upper position."""
        sign = "s" if ir.dtype_of(self.op.src.type).is_int_signed() else "u"
        names = [f"llvm.{sign}{which}" for which in ("min", "max")]
        low, high = (self.b.intrinsic(n, x.type, [x, y], overloads=[x.type]) for n in names)
        return (high, low) if self.op.descending else (low, high)

    def within(self, level: Level, row: V, steps: list[Exchange]) -> None:
        """Several exchanges within vectors, in one pass over the row."""
        if self.width == 1:
            return
        b, kind = self.b, vector(self.element, self.width)
        stop = const(I64, self.length)
        with loop(level, const(I64, 0), stop, self.width, width=1) as opened:
            place = b.gep(self.element, row, opened.index)
            value = b.load(kind, place)
            for mask, top in steps:
                lanes = range(self.width)
                down, up = self.ordered(value, b.shuffle(value, None, [i ^ mask for i in lanes]))
                value = b.select(const_vector(I1, [int(i & top != 0) for i in lanes]), up, down)
            b.store(value, place)

    def between(self, level: Level, row: V, exchange: Exchange) -> None:
        """One exchange between the vectors of each lower half of a block and their partners."""
        b, top, width = self.b, exchange.top, self.width
        with loop(level, const(I64, 0), const(I64, self.length), 2 * top, width=1) as block:
            first, stop = self.partnered(block.index, exchange)
            with loop(block.level, first, stop, width, width=1) as opened:
                lower = b.add(block.index, opened.index)
                upper = self.partner(block.index, opened.index, exchange)
                self.exchange(row, lower, upper, exchange.mask != top)

    def partnered(self, block: V, exchange: Exchange) -> tuple[V, V]:
        """The range of positions in the lower half of a block whose partners are in the row.

        Missing elements sort to the end, so that exchanges with them have no effect.
        """
        b, top = self.b, exchange.top
        if self.length % (2 * top) == 0:
            return const(I64, 0), const(I64, top)
        left = b.sub(const(I64, self.length), block)  # of this block
        if exchange.mask == top:
            stop = b.intrinsic(
                "llvm.smin", I64, [const(I64, top), b.sub(left, top)], overloads=[I64]
            )
            return const(I64, 0), stop
        missing = b.sub(const(I64, 2 * top), left)
        first = b.intrinsic("llvm.smax", I64, [const(I64, 0), missing], overloads=[I64])
        return first, const(I64, top)

    def partner(self, block: V, place: V, exchange: Exchange) -> V:
        b = self.b
        if exchange.mask == exchange.top:
            return b.add(b.add(block, place), exchange.top)
        return b.sub(b.add(block, 2 * exchange.top - self.width), place)

    def exchange(self, row: V, lower: V, upper: V, mirrored: bool) -> None:
        b, kind = self.b, vector(self.element, self.width)
        places = [b.gep(self.element, row, i) for i in (lower, upper)]
        x, y = (b.load(kind, place) for place in places)
        backwards = list(reversed(range(self.width)))
        if mirrored:
            y = b.shuffle(y, None, backwards)
        down, up = self.ordered(x, y)
        if mirrored:
            up = b.shuffle(up, None, backwards)
        b.store(down, places[0])
        b.store(up, places[1])

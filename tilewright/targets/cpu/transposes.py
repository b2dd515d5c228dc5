"""Values that are computed in vectors along one axis, and kept in vectors along another.

Input: a group that transposes its kept values. Output: a loop nest over square blocks. The rows of
a block are evaluated as vectors, transposed in registers, and written to the buffer.
"""

from __future__ import annotations

from math import gcd

from tilewright.ir.core import Value
from tilewright.lowering.emit import I64, Builder, V, const
from tilewright.ops import memory
from tilewright.targets.cpu import access
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes, neighbours
from tilewright.targets.cpu.level import Level
from tilewright.targets.cpu.loops import loop, over_axes
from tilewright.targets.cpu.plan import Group

LARGEST_SIDE = 16
"""A block of 16 x 16 takes half of the 32 vector registers of AVX-512."""


def emit_transposes(kernel: Kernel, level: Level, group: Group) -> None:
    """Emit the loop nests of a group that transposes its kept values, and bind the buffers."""
    for value in group.keep:
        kernel.b.at(level.block)
        with kernel.line_of(value.op):
            _Transpose(kernel, group, value).emit(level)


class _Transpose:
    def __init__(self, kernel: Kernel, group: Group, value: Value) -> None:
        assert group.transposed is not None
        self.kernel = kernel
        self.value = value
        self.shape = group.shape
        self.axis, self.to = group.transposed
        self.buffer = kernel.buffer(value, self.to)
        self.side = self._side()

    def _side(self) -> int:
        """The number of rows and columns of a block: a power of two that divides the extents, and
        the runs of contiguous elements."""
        registers = self.kernel.machine.vector_bytes * 8 // self.buffer.element.bits
        most = min(LARGEST_SIDE, registers)
        assert isinstance(self.value.op, memory.Load)
        run = self.kernel.plan.hinted[self.value.op.ptr].contiguity[self.axis]
        return gcd(gcd(self.shape[self.axis], self.shape[self.to]), gcd(run, most))

    def emit(self, level: Level) -> None:
        axes = [a for a in range(len(self.shape)) if a not in (self.axis, self.to)]
        over_axes(level, self.shape, axes, self.blocks)
        self.kernel.env[self.value] = self.buffer

    def blocks(self, level: Level, at: dict[int, Lanes]) -> None:
        """Loops over the blocks of two axes."""
        start, side = const(I64, 0), self.side
        with loop(level, start, const(I64, self.shape[self.to]), side, width=1) as rows:
            stop = const(I64, self.shape[self.axis])
            with loop(rows.level, start, stop, side, width=side) as columns:
                self.block(columns.level, at, (rows.level, rows.index), columns.index)

    def block(self, level: Level, at: dict[int, Lanes], outer: tuple[Level, V], column: V) -> None:
        """Evaluate one block, and write it."""
        rows: list[V] = []
        around, row = outer
        for k in range(self.side):
            with level.placed(Lanes(row, 0, around.depth)):
                here = Lanes(level.b.add(row, const(I64, k)), 0, around.depth)
            lane = neighbours(column, self.side, level.depth)
            found = evaluate(level, self.value, self.coords(at, {self.to: here, self.axis: lane}))
            rows.append(access.to_memory(level, level.vector(found)))
        for k, vector in enumerate(transposed(level.b, rows)):
            here = Lanes(level.b.add(column, const(I64, k)), 0, level.depth)
            lane = neighbours(row, self.side, level.depth)
            coords = self.coords(at, {self.axis: here, self.to: lane})
            access.write_buffer(level, self.buffer, coords, Lanes(vector, None, level.depth))

    def coords(self, at: dict[int, Lanes], here: dict[int, Lanes]) -> tuple[Lanes, ...]:
        return tuple({**at, **here}[axis] for axis in range(len(self.shape)))


def transposed(b: Builder, rows: list[V]) -> list[V]:
    """The columns of a square block, as vectors. The side is a power of two.

    Blocks of 2 x 2, then of 2 x 2 of these, and so on: their two off-diagonal parts are exchanged.
    Two vectors at a time, since there are instructions for that.
    """
    rows, side, part = list(rows), len(rows), 1
    while part < side:
        # Elements with indices from `side` on are those of the second vector.
        first = [i if i & part == 0 else side + i - part for i in range(side)]
        second = [i + part if i & part == 0 else side + i for i in range(side)]
        for i in range(side):
            if i & part == 0:
                pair = rows[i], rows[i + part]
                rows[i], rows[i + part] = (b.shuffle(*pair, p) for p in (first, second))
        part *= 2
    return rows

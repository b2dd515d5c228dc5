"""`tile.dot`: operands as dense matrices in the cache, then a register-tiled micro-kernel.

Each operand is evaluated once into a row-major buffer of the type that is multiplied in (fp32 for
all narrower floats), unless it is kept in one already. The micro-kernel holds a block of the
result in vector registers, `rows` by `columns` vectors, and walks K: one vector load per column
vector, one broadcast per row, and a fused multiply-add for each pair.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import types as ir
from tilewright.ir.core import Region, Value
from tilewright.lowering.convert import cast
from tilewright.lowering.emit import F32, F64, I32, I64, LType, V, const, vector, zero
from tilewright.ops import arith, dot
from tilewright.targets.cpu import access
from tilewright.targets.cpu.access import Buffer
from tilewright.targets.cpu.evaluate import Coords, Level
from tilewright.targets.cpu.kernel import Kernel, emits
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.loops import run_sinks
from tilewright.targets.cpu.sinks import Keep

_COMPUTE = {ir.FP64: F64, ir.I8: I32, ir.U8: I32}


@dataclass
class _Matrix:
    """One matrix of a batch: the address of its first element, elements between rows."""

    ptr: V
    row: int
    element: LType

    def at(self, kernel: Kernel, i: V, j: V) -> V:
        b = kernel.b
        position = b.add(b.mul(i, const(I64, self.row)), j)
        return b.gep(self.element, self.ptr, position)


@emits(dot.Dot)
def emit_dot(kernel: Kernel, level: Level, op: dot.Dot) -> None:
    compute = _COMPUTE.get(ir.dtype_of(op.lhs.type), F32)
    lhs = _operand(kernel, level, op.lhs, compute)
    rhs = _operand(kernel, level, op.rhs, compute)
    result, start = _accumulator(kernel, level, op, compute)
    b = kernel.b
    b.at(level.block)
    *batch, m, n = ir.shape_of(op.acc.type)
    k = ir.shape_of(op.lhs.type)[-1]
    count = 1
    for extent in batch:
        count *= extent
    if count == 1:
        product = _Product(kernel, m, n, k, compute)
        product.emit(_whole(lhs, k), _whole(rhs, n), _whole(result, n), start)
    else:
        with b.loop(0, count) as loop:
            parts = [
                _Matrix(b.gep(x.element, x.ptr, b.mul(loop.index, size)), row, x.element)
                for x, size, row in ((lhs, m * k, k), (rhs, k * n, n), (result, m * n, n))
            ]
            _Product(kernel, m, n, k, compute).emit(parts[0], parts[1], parts[2], start)
    level.block = b.current
    kernel.env[op.result] = _finish(kernel, level, op, result)


def _whole(buffer: Buffer, row: int) -> _Matrix:
    return _Matrix(buffer.ptr, row, buffer.element)


class _Widened(Keep):
    """Evaluates an operand into a buffer of the type that is multiplied in."""

    def evaluate(self, level: Level, coords: Coords) -> None:
        held = level.eval(self.kept, coords)
        source, to = ir.dtype_of(self.kept.type), ir.dtype_of(self.buffer.type)
        wide = cast(level.b, held.base if held.uniform else level.vector(held), source, to)
        self.value = Lanes(wide, 0 if held.uniform else None, held.depth)

    def bind(self) -> None:
        pass


_ELEMENTS = {F32: ir.FP32, F64: ir.FP64, I32: ir.I32}


def _operand(kernel: Kernel, level: Level, value: Value, compute: LType) -> Buffer:
    """The operand in a buffer of the computing type."""
    bound = kernel.env.get(value)
    if isinstance(bound, Buffer) and bound.element is compute:
        return bound
    shape = ir.shape_of(value.type)
    type = ir.Tile(shape, _ELEMENTS[compute])
    buffer = Buffer(kernel.allocate(compute, type.numel), type)
    kernel.b.at(level.block)
    run_sinks(kernel, level, shape, [_Widened(kernel, value, buffer)])
    return buffer


def _accumulator(kernel: Kernel, level: Level, op: dot.Dot, compute: LType) -> tuple[Buffer, bool]:
    """The buffer to add into, and whether it holds anything yet.

    A carried accumulator that only this product uses is added to in place.
    """
    bound = kernel.env.get(op.acc)
    in_place = isinstance(op.acc.owner, Region) and list(op.acc.users.items()) == [(op, 1)]
    if isinstance(bound, Buffer) and in_place and bound.element is compute:
        return bound, True
    shape = ir.shape_of(op.acc.type)
    type = ir.Tile(shape, _ELEMENTS[compute])
    buffer = Buffer(kernel.allocate(compute, type.numel), type)
    if arith.constant_value(op.acc) == 0 and str(arith.constant_value(op.acc)) != "-0.0":
        return buffer, False
    kernel.b.at(level.block)
    run_sinks(kernel, level, shape, [_Widened(kernel, op.acc, buffer)])
    return buffer, True


def _finish(kernel: Kernel, level: Level, op: dot.Dot, result: Buffer) -> Buffer:
    """The result in its own element type."""
    element = ir.dtype_of(op.acc.type)
    source = ir.dtype_of(result.type)
    if element == source:
        return result
    narrow = kernel.buffer(op.result)
    kernel.env[op.result] = result
    kernel.b.at(level.block)
    run_sinks(kernel, level, result.type.shape, [_Narrowed(kernel, op.result, narrow, source)])
    return narrow


class _Narrowed(Keep):
    """Rounds an fp32 result to the accumulator's type."""

    def __init__(self, kernel: Kernel, value: Value, buffer: Buffer, source: ir.DType) -> None:
        super().__init__(kernel, value, buffer)
        self.source = source

    def evaluate(self, level: Level, coords: Coords) -> None:
        bound = self.kernel.env[self.kept]
        assert isinstance(bound, Buffer)
        held = access.read_buffer(level, bound, coords)
        to = ir.dtype_of(self.buffer.type)
        narrow = cast(level.b, held.base, self.source, to)
        self.value = Lanes(narrow, held.stride, held.depth)

    def bind(self) -> None:
        pass


class _Product:
    """One matrix product of compile-time extents."""

    def __init__(self, kernel: Kernel, m: int, n: int, k: int, compute: LType) -> None:
        self.kernel = kernel
        self.m, self.n, self.k = m, n, k
        self.compute = compute
        self.lanes = kernel.machine.vector_bytes * 8 // compute.bits
        registers = kernel.machine.vector_registers
        # accumulators take at most three quarters of the registers
        self.columns = max(1, min(2, -(-n // self.lanes)))
        self.rows = min(m, max(1, registers * 3 // 4 // self.columns))
        while self.rows > 1 and m % self.rows and m >= 8:
            self.rows -= 1

    def emit(self, a: _Matrix, b: _Matrix, c: _Matrix, start: bool) -> None:
        """c += a @ b, or c = a @ b unless `start`."""
        step = self.columns * self.lanes
        whole = self.n // step * step
        if whole:
            with self.kernel.b.loop(0, whole, step) as loop:
                self.column(a, b, c, start, loop.index, [self.lanes] * self.columns)
        left = self.n - whole
        widths = [self.lanes] * (left // self.lanes)
        if left % self.lanes:
            widths.append(left % self.lanes)
        if widths:
            self.column(a, b, c, start, const(I64, whole), widths)

    def column(
        self, a: _Matrix, b: _Matrix, c: _Matrix, start: bool, j: V, widths: list[int]
    ) -> None:
        whole = self.m // self.rows * self.rows
        with self.kernel.b.loop(0, whole, self.rows) as loop:
            self.block(a, b, c, start, loop.index, j, self.rows, widths)
        if whole < self.m:
            self.block(a, b, c, start, const(I64, whole), j, self.m - whole, widths)

    def block(
        self,
        a: _Matrix,
        b: _Matrix,
        c: _Matrix,
        start: bool,
        i: V,
        j: V,
        rows: int,
        widths: list[int],
    ) -> None:
        """A block of the result in registers, over all of K."""
        bb = self.kernel.b
        types = [vector(self.compute, w) if w > 1 else self.compute for w in widths]
        offsets = [sum(widths[:x]) for x in range(len(widths))]
        places = [
            [c.at(self.kernel, bb.add(i, const(I64, r)), bb.add(j, const(I64, o))) for o in offsets]
            for r in range(rows)
        ]
        if start:
            totals = [[bb.load(t, p) for t, p in zip(types, row, strict=True)] for row in places]
        else:
            totals = [[zero(t) for t in types] for _ in range(rows)]
        flat = [v for row in totals for v in row]
        with bb.loop(0, self.k, carried=flat, unroll=2) as loop:
            columns = [
                bb.load(t, b.at(self.kernel, loop.index, bb.add(j, const(I64, o))))
                for t, o in zip(types, offsets, strict=True)
            ]
            following: list[V] = []
            for r in range(rows):
                at = a.at(self.kernel, bb.add(i, const(I64, r)), loop.index)
                element = bb.load(self.compute, at)
                for x, (w, column) in enumerate(zip(widths, columns, strict=True)):
                    spread = bb.splat(element, w) if w > 1 else element
                    total = loop.carried[r * len(widths) + x]
                    following.append(self.multiply_add(spread, column, total))
            loop.yield_(following)
        remaining = iter(loop.results)
        for row in places:
            for p in row:
                bb.store(next(remaining), p)

    def multiply_add(self, x: V, y: V, z: V) -> V:
        b = self.kernel.b
        return b.add(z, b.mul(x, y)) if self.compute is I32 else b.mul_add(x, y, z)

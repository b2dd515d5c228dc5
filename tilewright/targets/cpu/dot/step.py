"""The emitter of `tile.dot`: packs both operands of each product of the batch, and multiplies."""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.ir.core import Region, Value
from tilewright.lowering.emit import V
from tilewright.lowering.types import memory_type
from tilewright.ops import arith, dot
from tilewright.targets.cpu import access
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.dot.pack import At, Packer, Side, converted, matrix_in, round_up
from tilewright.targets.cpu.dot.product import Product, blocking_of
from tilewright.targets.cpu.dot.schemes import (
    TILE_SIDE,
    Scheme,
    TileScheme,
    VectorScheme,
    scheme_of,
)
from tilewright.targets.cpu.dot.tiles import TileProduct
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.loops import over_axes
from tilewright.targets.cpu.nest import run_sinks
from tilewright.targets.cpu.sinks import Copy


def emit_dot(kernel: Kernel, level: Level, op: dot.Dot) -> None:
    scheme = scheme_of(op, kernel.machine)
    result, start = _accumulator(kernel, level, op, scheme)

    def product(level: Level, at: At) -> None:
        kernel.b.at(level.block)
        sums = matrix_in(level, result, at)
        if isinstance(scheme, TileScheme):
            _on_tiles(kernel, level, at, op, scheme, sums, start)
        else:
            _on_vectors(kernel, level, at, op, scheme, sums, start)
        level.block = kernel.b.current

    shape = ir.shape_of(op.acc.type)
    kernel.b.at(level.block)
    over_axes(level, shape, list(range(len(shape) - 2)), product)
    kernel.b.at(level.block)
    kernel.env[op.result] = _finish(kernel, level, op, result)


def _on_vectors(
    kernel: Kernel, level: Level, at: At, op: dot.Dot, scheme: VectorScheme, sums: V, start: bool
) -> None:
    m, n, k = _extents(op)
    blocking = blocking_of(scheme, m, n, kernel.machine)
    padded = round_up(k, scheme.group)
    lhs, rhs = _sides(op, scheme, padded, blocking.lanes, blocking.columns)
    packer = Packer(kernel, level, at, lhs)
    left = packer.rows_or_panels() if scheme.height == 1 else packer.panels()
    right = Packer(kernel, level, at, rhs).panels()
    extents = m, n, padded // scheme.group
    Product(kernel.b, scheme, blocking, extents, sums, start).emit(left, right)


def _on_tiles(
    kernel: Kernel, level: Level, at: At, op: dot.Dot, scheme: TileScheme, sums: V, start: bool
) -> None:
    m, n, k = _extents(op)
    padded = round_up(k, TILE_SIDE * scheme.group)
    product = TileProduct(scheme, (m, n, padded // scheme.group), start)
    lhs, rhs = _sides(op, scheme, padded, TILE_SIDE, TILE_SIDE * product.tiles[1])
    left = Packer(kernel, level, at, lhs).rows()
    right = Packer(kernel, level, at, rhs).panels()
    product.emit(kernel.b, left, right, sums)


def _extents(op: dot.Dot) -> tuple[int, int, int]:
    """M, N and K."""
    m, k = ir.shape_of(op.lhs.type)[-2:]
    return m, ir.shape_of(op.rhs.type)[-1], k


def _sides(op: dot.Dot, scheme: Scheme, padded_k: int, lanes: int, panel: int) -> tuple[Side, Side]:
    """Both operands and their formats. `panel` is that of the right operand; the left one is a
    single panel."""
    rank = len(ir.shape_of(op.acc.type))
    row, column = rank - 2, rank - 1
    flipped = scheme.sign_flipped
    whole = round_up(ir.shape_of(op.lhs.type)[row], lanes)
    lhs = Side(op.lhs, row, column, scheme, padded_k, lanes, whole, flipped)
    return lhs, Side(op.rhs, column, row, scheme, padded_k, lanes, panel)


# -- the sums --------------------------------------------------------------------------------------


class _Converted(Copy):
    """Evaluates a value into a buffer, converting it to the buffer's type."""

    def evaluate(self, level: Level, coords: Coords) -> None:
        held = evaluate(level, self.kept, coords)
        source, to = ir.dtype_of(self.kept.type), ir.dtype_of(self.buffer.type)
        self.value = converted(level, held, source, to)


def _accumulator(kernel: Kernel, level: Level, op: dot.Dot, scheme: Scheme) -> tuple[Buffer, bool]:
    """The buffer of the sums, and whether it is initialised.

    A carried accumulator that only this product uses is updated in place.
    """
    bound = kernel.env.get(op.acc)
    in_place = isinstance(op.acc.owner, Region) and list(op.acc.users.items()) == [(op, 1)]
    if isinstance(bound, Buffer) and in_place and ir.dtype_of(bound.type) == scheme.total:
        return bound, True
    shape = ir.shape_of(op.acc.type)
    type = ir.Tile(shape, scheme.total)
    buffer = Buffer(kernel.allocate(memory_type(type), type.numel), type)
    if arith.constant_value(op.acc) == 0 and str(arith.constant_value(op.acc)) != "-0.0":
        return buffer, False
    kernel.b.at(level.block)
    run_sinks(kernel, level, shape, [_Converted(kernel, op.acc, buffer)])
    return buffer, True


def _finish(kernel: Kernel, level: Level, op: dot.Dot, result: Buffer) -> Buffer:
    """The result, converted to its element type if the sums have another."""
    if ir.dtype_of(op.acc.type) == ir.dtype_of(result.type):
        return result
    narrow = kernel.buffer(op.result)
    kernel.b.at(level.block)
    run_sinks(kernel, level, result.type.shape, [_Narrowed(kernel, op.result, narrow, result)])
    return narrow


class _Narrowed(Copy):
    """Rounds sums to the type of the result."""

    def __init__(self, kernel: Kernel, value: Value, buffer: Buffer, sums: Buffer) -> None:
        super().__init__(kernel, value, buffer)
        self.sums = sums

    def evaluate(self, level: Level, coords: Coords) -> None:
        held = access.read_buffer(level, self.sums, coords)
        source, to = ir.dtype_of(self.sums.type), ir.dtype_of(self.buffer.type)
        self.value = converted(level, held, source, to)

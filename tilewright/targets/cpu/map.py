"""`tile.map`: a scalar loop that executes the body for each group of `op.pack` elements."""

from __future__ import annotations

from math import prod

from tilewright.ir import types as ir
from tilewright.lowering.emit import I64, const
from tilewright.ops.map import Map
from tilewright.targets.cpu import access
from tilewright.targets.cpu.evaluate import evaluate, scalar
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import ZERO, Lanes, add, divmod_const, index
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.loops import loop
from tilewright.targets.cpu.steps import emit_region


def emit_map(kernel: Kernel, level: Level, op: Map) -> None:
    b = kernel.b
    shape = ir.shape_of(op.srcs[0].type)
    buffers = [kernel.buffer(r) for r in op.results]
    with loop(level, const(I64, 0), const(I64, prod(shape)), op.pack, width=1) as opened:
        inner = opened.level
        first = Lanes(opened.index, 0, inner.depth)
        points = [_point(inner, shape, add(b, first, index(i), 1)) for i in range(op.pack)]
        values = [evaluate(inner, s, point).base for s in op.srcs for point in points]
        for arg, value in zip(op.body.args, values, strict=True):
            kernel.env[arg] = value
        body = Level(kernel, inner.block)
        emit_region(kernel, op.body, body)
        found = [scalar(body, v) for v in op.body.terminator.operands]
        inner.block = b.current
        for i, buffer in enumerate(buffers):
            for k, point in enumerate(points):
                held = Lanes(found[i * op.pack + k], 0, inner.depth)
                access.write_buffer(inner, buffer, point, held)
    for result, buffer in zip(op.results, buffers, strict=True):
        kernel.env[result] = buffer


def _point(level: Level, shape: tuple[int, ...], position: Lanes) -> Coords:
    """The coordinates of a row-major position."""
    found: list[Lanes] = []
    for extent in reversed(shape[1:]):
        position, rest = divmod_const(level.b, position, extent, 1)
        found.append(rest)
    found.append(position if shape[0] > 1 else ZERO)
    return tuple(reversed(found))

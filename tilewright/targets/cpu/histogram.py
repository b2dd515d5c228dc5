"""`tile.histogram`: sequential increments of the bins, in memory."""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.lowering.emit import I32, I64, const
from tilewright.ops.histogram import Histogram
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.level import Level
from tilewright.targets.cpu.loops import loop, over_axes


def emit_histogram(kernel: Kernel, level: Level, op: Histogram) -> None:
    """Elements that are not counted increment an extra bin after the last: no branch is needed."""
    b = kernel.b
    shape = ir.shape_of(op.src.type)
    buffer = kernel.buffer(op.result)
    counters = kernel.allocate(I32, op.bins + 1)
    element = ir.dtype_of(op.src.type)
    with loop(level, const(I64, 0), const(I64, op.bins), 1, width=1) as opened:
        b.store(const(I32, 0), b.gep(I32, counters, opened.index))

    def count(inner: Level, at: dict[int, Lanes]) -> None:
        coords = tuple(at[axis] for axis in range(len(shape)))
        index = inner.extend(evaluate(inner, op.src, coords), element.is_int_signed()).base
        counted = b.icmp("ult", index, const(I64, op.bins))
        if op.mask is not None:
            counted = b.and_(counted, evaluate(inner, op.mask, coords).base)
        place = b.gep(I32, counters, b.select(counted, index, const(I64, op.bins)))
        b.store(b.add(b.load(I32, place), 1), place)

    over_axes(level, shape, list(range(len(shape))), count)
    with loop(level, const(I64, 0), const(I64, op.bins), 1, width=1) as opened:
        value = b.load(I32, b.gep(I32, counters, opened.index))
        b.store(value, b.gep(I32, buffer.ptr, opened.index))
    kernel.env[op.result] = buffer

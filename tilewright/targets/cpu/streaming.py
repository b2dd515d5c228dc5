"""Run-time conditions for non-temporal stores: a large launch and aligned vectors.

See `plan_streams`.
"""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.lowering.emit import I1, I64, Builder, V, const
from tilewright.ops import memory
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.sinks import Sink


def is_large(b: Builder, kernel: Kernel, extents: list[V]) -> V:
    """Predicate: a grid with these extents moves more than three quarters of the last-level cache;
    the rest is reserved for other data."""
    if not kernel.plan.streamed:
        return const(I1, 0)
    least = kernel.machine.cache_bytes * 3 // 4 // max(1, kernel.plan.bytes_moved)
    x, y, z = extents
    return b.icmp("sge", b.mul(b.mul(x, y), z), const(I64, max(1, least)))


def streamed_by(kernel: Kernel, sinks: list[Sink], lane: int) -> tuple[Value, ...]:
    """The streamed pointers among those that sinks write to or prefetch for writing."""
    found = dict.fromkeys(p for sink in sinks for p in sink.written if p in kernel.plan.streamed)
    return tuple(p for p in found if kernel.plan.forms.constant_strides(p)[lane] == 1)


def aligned_streams(
    level: Level, first: Coords, pointers: tuple[Value, ...]
) -> tuple[frozenset[Value], V]:
    """The pointers that are contiguous along the lanes, and the predicate to store through them
    non-temporally: a large launch, and aligned vectors.

    Args:
        first: the coordinates of the first vector of the loop.
    """
    b, condition = level.b, level.kernel.is_large
    found: list[Value] = []
    for pointer in pointers:
        size = memory.pointee_of(pointer.type).nbytes_in_memory
        at = evaluate(level, pointer, first)
        if at.stride == size:
            found.append(pointer)
            over = b.and_(b.ptrtoint(at.base), const(I64, level.width * size - 1))
            condition = b.and_(condition, b.icmp("eq", over, 0))
    return frozenset(found), condition

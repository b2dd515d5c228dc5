"""Emission of prefetches, as selected by `plan_prefetches`.

The next program's addresses are this one's plus their derivative with respect to the program's
index, if that is uniform (`_Change`). Prefetches of unmapped memory have no effect.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Value
from tilewright.ir.types import element_of, shape_of
from tilewright.lowering.emit import I8, I32, I64, PTR, VOID, V, const
from tilewright.ops import arith, control, memory
from tilewright.ops.view import View
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.level import Coords, Level
from tilewright.targets.cpu.plan import Group
from tilewright.targets.cpu.plan_prefetches import roots_of
from tilewright.targets.cpu.sinks import Sink

# Prefetch into the first-level cache if the loop computes long for each line, else into the second
# level, as the loop's own loads would compete for the few fill buffers of the first. Measured on a
# Zen 4, one thread, first against second level: softmax of 4096 columns 1.69 and 1.75 ms, layer
# norm of 2048 columns 1.80 and 1.50 ms (without prefetching 2.75 and 2.02 ms).
FIRST_LEVEL, SECOND_LEVEL = 3, 2
LONG_COST = 20


class PrefetchSink(Sink):
    """Prefetches the memory at a pointer plus a distance in bytes."""

    def __init__(
        self, kernel: Kernel, pointer: Value, distance: V, *, write: bool, locality: int
    ) -> None:
        super().__init__(kernel, [])
        self.pointer = pointer
        self.distance = distance
        self.written = (pointer,) if write else ()
        self.flags = [const(I32, int(write)), const(I32, locality), const(I32, 1)]  # 1: data

    def commit(self, level: Level, coords: Coords) -> None:
        if level.streamed.intersection(self.written):
            return
        at = evaluate(level, self.pointer, coords).base
        b = level.b
        if at.type.lanes:
            return
        at = b.gep(I8, at, self.distance)
        b.intrinsic("llvm.prefetch", VOID, [at, *self.flags], [PTR])


def prefetch_sinks(kernel: Kernel, group: Group) -> list[Sink]:
    """The prefetches of a group, as sinks."""
    planned = kernel.plan.prefetches.get(group)
    if planned is None:
        return []
    cost = max(kernel.cost(v) for v in roots_of(group))
    locality = FIRST_LEVEL if cost > LONG_COST else SECOND_LEVEL
    here = const(I64, 0)
    sinks: list[Sink] = [
        PrefetchSink(kernel, p, here, write=True, locality=locality) for p in planned.writes
    ]
    for pointer in planned.reads:
        change = _Change(kernel).of(pointer)
        if change is not None and change.number != 0:
            sinks.append(PrefetchSink(kernel, pointer, change, write=False, locality=locality))
    return sinks


class _Change:
    """The difference of a value between successive programs along axis 0; for pointers, in bytes.

    None if it is not uniform, or not available before the loop.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.known: dict[Value, V | None] = {}

    def of(self, value: Value) -> V | None:
        if value not in self.known:
            self.known[value] = self._of(value)
        return self.known[value]

    def _of(self, value: Value) -> V | None:
        b, op = self.kernel.b, value.op
        match op:
            case None:
                return const(I64, 0)
            case control.ProgramId(axis):
                return const(I64, int(axis == 0))
            case View(src) if op.aligned:
                return self.of(src)
            case arith.Cast(src):
                return self.of(src)
            case arith.Add(x, y):
                return self._join(x, y, b.add)
            case arith.Sub(x, y):
                return self._join(x, y, b.sub)
            case memory.AddPtr(x, y):
                size = memory.pointee_of(x.type).nbytes_in_memory
                return self._join(x, y, lambda p, q: b.add(p, b.mul(q, const(I64, size))))
            case arith.Mul(x, y):
                return self._product(x, y)
            case _:
                still = op.pure and not op.regions and all(map(self._stays, op.operands))
                return const(I64, 0) if still else None

    def _stays(self, value: Value) -> bool:
        change = self.of(value)
        return change is not None and change.number == 0

    def _join(self, x: Value, y: Value, join: Callable[[V, V], V]) -> V | None:
        p, q = self.of(x), self.of(y)
        return None if p is None or q is None else join(p, q)

    def _product(self, x: Value, y: Value) -> V | None:
        """The product rule for factors of which at most one changes."""
        if self._stays(x):
            x, y = y, x
        change, factor = self.of(x), self._scalar(y)
        if change is None or not self._stays(y):
            return None
        if change.number == 0:
            return change
        return None if factor is None else self.kernel.b.mul(change, factor)

    def _scalar(self, value: Value) -> V | None:
        """A uniform value as a scalar of 64 bits; None if it is not one."""
        while isinstance(value.op, View):
            value = value.op.src
        number = arith.constant_value(value)
        if isinstance(number, int):
            return const(I64, number)
        bound = self.kernel.env.get(value)
        if not isinstance(bound, V) or shape_of(value.type):
            return None
        if bound.type.bits == 64:
            return bound
        signed = element_of(value.type).is_int_signed()
        return self.kernel.b.sext(bound, I64) if signed else self.kernel.b.zext(bound, I64)

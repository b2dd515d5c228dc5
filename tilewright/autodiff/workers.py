"""The loop of a worker over the programs of a kernel; see `coarsen.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.autodiff.emitter import Emitter
from tilewright.ir.builder import Builder
from tilewright.ir.core import Region, Value
from tilewright.ir.types import I32, I64, Type
from tilewright.ops.arith import Add, Cast, IntDiv, Min, Mul, Rem
from tilewright.ops.control import For, NumPrograms, ProgramId, Yield
from tilewright.ops.memory import AddPtr

OneProgram = Callable[[Region, Mapping[int, Value]], "list[Value | None]"]


class WorkerLoop:
    """Emits the loop. A worker has consecutive programs, as many as any other, or one more.

    Args:
        axes: those of the kernel's grid that the loop goes over.
        extent: returns the kernel's extent along an axis.
    """

    def __init__(
        self,
        builder: Builder,
        emit: Emitter,
        axes: Sequence[int],
        extent: Callable[[int], Value],
    ) -> None:
        self._builder = builder
        self._emit = emit
        self._axes = tuple(axes)
        self.extents = {axis: extent(axis) for axis in axes}
        self._worker = builder.value(ProgramId(axes[0]))

    def run(self, types: Sequence[Type], one_program: OneProgram) -> list[Value]:
        """Emit the loop; returns the accumulated contributions of programs, or zeros.

        Args:
            types: of the sums.
            one_program: emits the work of a program in a region, given its index along each axis.
        """
        value, number = self._builder.value, self._emit.integer
        workers = value(NumPrograms(self._axes[0]))
        one = number(1, I32)
        count = one
        for extent in self.extents.values():
            count = value(Mul(count, extent))
        start = self._first(self._worker, count, workers)
        stop = self._first(value(Add(self._worker, one)), count, workers)
        zeros = [self._emit.zeros(type) for type in types]
        body = Region([I32, *types])
        with self._builder.at_end(body):
            terms = one_program(body, self._programs(body.args[0]))
            sums = [
                before if term is None else self._emit.add(before, term)
                for before, term in zip(body.args[1:], terms, strict=True)
            ]
            self._builder.insert(Yield(sums))
        loop = For(start, stop, one, zeros, num_stages=0, unroll=0, hints=(), body=body)
        return self._builder.insert(loop).results

    def _first(self, worker: Value, count: Value, workers: Value) -> Value:
        """The position of a worker's first program: the first workers have one more than others."""
        value = self._builder.value
        each, rest = value(IntDiv(count, workers)), value(Rem(count, workers))
        more = value(Min(worker, rest, propagate_nan=False))
        return value(Add(value(Mul(worker, each)), more))

    def _programs(self, position: Value) -> dict[int, Value]:
        """The index along each axis of a program, from its linear index."""
        value = self._builder.value
        found: dict[int, Value] = {}
        for axis, extent in self.extents.items():
            if axis == self._axes[-1]:
                found[axis] = position
            else:
                found[axis] = value(Rem(position, extent))
                position = value(IntDiv(position, extent))
        return found

    def row(self, base: Value, span: Value) -> Value:
        """The address of this worker's sums."""
        value = self._builder.value
        wide = value(Cast(self._worker, I64, rounding="rtne"))
        return value(AddPtr(base, value(Mul(wide, span))))

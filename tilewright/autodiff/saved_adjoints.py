"""Adjoints that the kernel on the forward grid saves for kernels on other grids; see `regrid.py`.

A kernel on another grid reverses one iteration of a loop, for all programs that run it. It uses the
adjoints of the loop's results, which are computed from the ops after the loop, and the running
maximum. The kernel on the forward grid, which is launched first, has computed them (`reverse.py`):
it saves them, in a row for each program, and the other kernels (`regridded.py`) load them. If the
ops after the loop contain no loop, they are recomputed, and only adjoints that are much cheaper to
load are saved: sums over a tile, such as the row sums of attention's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tilewright.autodiff.coordinates import Coordinates
from tilewright.autodiff.derived import Saved
from tilewright.autodiff.emitter import Emitter
from tilewright.autodiff.replay import Replay
from tilewright.base.record import record
from tilewright.ir.core import Value
from tilewright.ir.types import (
    I32,
    I64,
    DType,
    Pointer,
    Type,
    derivative_type,
    element_of,
    shape_of,
)
from tilewright.ops.arith import Add, Cast, IntDiv, Mul, Rem
from tilewright.ops.control import For
from tilewright.ops.memory import AddPtr, Store
from tilewright.ops.shape import Arange, Reshape, Splat

NewArg = Callable[[str, str, Type], Value]


@record
class SavedAdjoints:
    """The loops at whose ends values are saved, and the coordinates of programs.

    Attributes:
        loops: the loops.
        coordinates: the place of a program in the buffers is that of these in their box.
        only: the results of loops, as (loop, index), whose adjoints are saved; None for all, and
            the maxima.
    """

    loops: tuple[For, ...]
    coordinates: Coordinates
    only: frozenset[tuple[For, int]] | None = None

    def has(self, loop: For, index: int) -> bool:
        """Whether the adjoint of a loop's result is saved."""
        return self.only is None or (loop, index) in self.only


class AdjointBuffers:
    """Emits accesses of the buffers.

    Args:
        new_arg: adds an argument of a kind, with a name and a type, to the derived kernel.

    Attributes:
        which: what is in them.
        numbers: the coordinates of the present program, if these are given; otherwise they are
            computed from its indices.
    """

    def __init__(
        self, which: SavedAdjoints, emit: Emitter, replay: Replay, new_arg: NewArg
    ) -> None:
        self.which = which
        self._emit, self._replay, self._new_arg = emit, replay, new_arg
        self._pointers: dict[str, Value] = {}
        self.numbers: Sequence[Value] | None = None
        extents = range(len(which.coordinates.extents))
        self.extents = [new_arg("box", str(i), I32) for i in extents]
        self.saved: list[Saved] = []

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops at whose ends values are saved."""
        return self.which.loops

    def _name(self, loop: For, what: int | str) -> str:
        return f"{self.which.loops.index(loop)}.{what}"

    def _address(self, name: str, type: Type) -> Value:
        """Of the lanes of the present program."""
        value, element = self._emit.builder.value, element_of(type)
        assert isinstance(element, DType)
        if name not in self._pointers:
            self._pointers[name] = self._new_arg("saved", name, Pointer(element))
            self.saved.append(Saved(name, element, prod(shape_of(type))))
        lanes, shape = prod(shape_of(type)), shape_of(type)
        row = value(Mul(self._program(), self._emit.integer(lanes, I64)))
        address = value(AddPtr(self._pointers[name], row))
        if not shape:
            return address
        offsets = value(Arange(0, lanes))
        if len(shape) > 1:
            offsets = value(Reshape(offsets, shape))
        return value(AddPtr(value(Splat(address, shape)), offsets))

    def _program(self) -> Value:
        """The place of the present program."""
        value = self._emit.builder.value
        place: Value | None = None
        coordinates = self._coordinates()
        for number, extent in zip(reversed(coordinates), reversed(self.extents), strict=True):
            wide = value(Cast(number, I64, rounding="rtne"))
            if place is None:
                place = wide
            else:
                size = value(Cast(extent, I64, rounding="rtne"))
                place = value(Add(value(Mul(place, size)), wide))
        assert place is not None
        return place

    def _coordinates(self) -> Sequence[Value]:
        """The coordinates of the present program."""
        if self.numbers is not None:
            return self.numbers
        value, found = self._emit.builder.value, list[Value]()
        for (origin, below), extent in zip(
            self.which.coordinates.origins, self.extents, strict=True
        ):
            number = value(Cast(self._replay.plain(origin), I32, rounding="rtne"))
            for i in below:
                number = value(IntDiv(number, self.extents[i]))
            found.append(value(Rem(number, extent)))
        return found

    def save(self, loop: For, what: int | str, saved: Value) -> None:
        """Save a value of the present program. Derivatives are zero where they are known to be."""
        kind = derivative_type(saved.type)
        saved = self._emit.guarded(self._emit.cast(saved, element_of(kind)))
        address = self._address(self._name(loop, what), kind)
        self._emit.builder.insert(Store(address, saved, None, cache="", evict=""))

    def load(self, loop: For, what: int | str, type: Type) -> Value:
        """Load a value of the present program, of this type."""
        found = self._emit.load(self._address(self._name(loop, what), derivative_type(type)), None)
        return self._emit.cast(found, element_of(type))

    def load_adjoint(self, loop: For, index: int) -> Value:
        """Load the adjoint of a result of a loop."""
        type = derivative_type(loop.results[index].type)
        return self._emit.zero_with_itself(self.load(loop, index, type))

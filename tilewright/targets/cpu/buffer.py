"""Memory of a materialised tile."""

from __future__ import annotations

from tilewright.base.record import record
from tilewright.ir import types as ir
from tilewright.lowering.emit import LType, V
from tilewright.lowering.types import memory_type


@record(eq=False)
class Buffer:
    """A tile in memory that is private to the thread, in the types of memory.

    Attributes:
        inner: the axis whose elements are adjacent, if it is not the last. The order of the others
            is that of a row-major tile.
    """

    ptr: V
    type: ir.Tile
    inner: int | None = None

    @property
    def axes(self) -> list[int]:
        """The axes, outermost first."""
        axes = list(range(len(self.type.shape)))
        if self.inner is not None:
            axes.append(axes.pop(self.inner))
        return axes

    @property
    def element(self) -> LType:
        return memory_type(self.type)

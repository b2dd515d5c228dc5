"""Memory of a materialised tile."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import types as ir
from tilewright.lowering.emit import LType, V
from tilewright.lowering.types import memory_type


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A tile in memory that is private to the thread, row-major, in the types of memory."""

    ptr: V
    type: ir.Tile

    @property
    def element(self) -> LType:
        return memory_type(self.type)

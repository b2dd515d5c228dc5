"""The base class of ops that only move elements."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.define import Op, operand


class View(Op):
    """Base class of ops whose results consist of elements of `src`.

    `index_maps` specifies which element is at which index, so that analyses can look through such
    ops (`case View(src)`) without a case for each of them.
    """

    src: Value = operand()

    @property
    def aligned(self) -> bool:
        """Whether it only permutes, inserts and broadcasts axes."""
        found = self.index_maps()[0]
        return len(self.results) == 1 and found is not None and found.aligned

    @property
    def moves_all(self) -> bool:
        """Whether it has one result, which contains all elements of `src`, at indices that depend
        only on attributes."""
        return len(self.operands) == len(self.results) == 1


def viewed(value: Value) -> Value:
    """The value of whose elements alone the value consists, before any views."""
    while isinstance(value.op, View) and len(value.op.operands) == 1:
        value = value.op.src
    return value

"""What ops that only move elements have in common."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.define import Op, operand


class View(Op):
    """Base of ops each of whose results holds elements of `src` and nothing else.

    Which ones and where is said by `index_maps`, so that whoever follows values through such ops
    (`case View(src)`) need not know them one by one.
    """

    src: Value = operand()

    @property
    def aligned(self) -> bool:
        """Whether it only reorders, inserts and repeats axes."""
        found = self.index_maps()[0]
        return len(self.results) == 1 and found is not None and found.aligned

    @property
    def moves_all(self) -> bool:
        """Whether its one result has all elements of `src`, and only its attributes say where."""
        return len(self.operands) == len(self.results) == 1

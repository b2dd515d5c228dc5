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

"""What each load and store became, told to who asks how the code came about.

An access may be emitted several times: in a loop without masks, in one with them, in what is left
over. What is told is its best form, and if that is a poor one, why.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import assert_never

from tilewright.analysis.axis_info import AxisMap
from tilewright.ir.core import Function, Op
from tilewright.ir.passes import PassContext
from tilewright.ops import memory
from tilewright.ops.memory import pointee_of
from tilewright.passes.access_reasons import Reasons
from tilewright.targets.cpu.lanes import Lanes

NAME = "vectorise"


class Form(IntEnum):
    """How an access is made, the best first."""

    WHOLE = 0  # one instruction for a vector of neighbours
    MASKED = 1  # the same under a mask
    STRIDED = 2  # every n-th element out of wider loads
    ONE = 3  # one element for all lanes
    EACH = 4  # lane by lane


class AccessReport:
    """Collects the forms of a kernel's accesses; see the module."""

    def __init__(self) -> None:
        self._found: dict[Op, tuple[Form, int, int]] = {}  # form, lanes, lane axis

    def note(self, op: Op, form: Form, width: int, coords: Sequence[Lanes]) -> None:
        """Say that an op was emitted in a form.

        Args:
            width: lanes of the loop.
            coords: the point, from which the axis of the lanes is seen.
        """
        axis = next((i for i, c in enumerate(coords) if not c.uniform), 0)
        known = self._found.get(op)
        # Of the scalar code of what is left over, nothing is told but where there is no other.
        if known is None or (form, -width) < (known[0], -known[1]) or known[1] == 1:
            self._found[op] = form, width, axis

    def tell(self, fn: Function, facts: AxisMap, ctx: PassContext) -> None:
        """Make remarks of what was found."""
        reasons = Reasons(fn, facts)
        for op, (form, width, axis) in self._found.items():
            assert isinstance(op, memory.Load | memory.Store)
            text = self._text(op, form, width, axis, reasons)
            (ctx.missed if form in (Form.MASKED, Form.EACH) else ctx.did)(NAME, text, op.loc)

    @staticmethod
    def _text(
        op: memory.Load | memory.Store, form: Form, width: int, axis: int, reasons: Reasons
    ) -> str:
        verb, kind = ("loads", "gather") if isinstance(op, memory.Load) else ("stores", "scatter")
        size = pointee_of(op.ptr.type).nbytes_in_memory
        many = f"{verb} {width} elements ({width * size} bytes) at a time"
        match form:
            case Form.WHOLE:
                return many
            case Form.MASKED:
                assert op.mask is not None
                return f"{many}, always under a mask: {reasons.endless(op.mask, axis)}"
            case Form.STRIDED:
                why = reasons.apart(op.ptr, axis)
                return f"{verb} {width} elements out of wider vectors: {why}"
            case Form.ONE:
                return f"{verb} one element ({size} byte{'s' * (size > 1)}) at a time"
            case Form.EACH:
                return (
                    f"{verb} element by element (a {kind} of {width}): "
                    f"{reasons.apart(op.ptr, axis)}"
                )
            case _:
                assert_never(form)

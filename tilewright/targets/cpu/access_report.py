"""Remarks on the form of each load and store.

An access may be emitted several times: in a loop without masks, in a masked one, and for the
remainder. The remark reports its best form, and the reason if that is not a whole vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, assert_never

from tilewright.analysis.axis_info import AxisMap
from tilewright.base.lazy_import import lazy_import
from tilewright.ir.core import Function, Op
from tilewright.ir.passes import PassContext
from tilewright.ops import memory
from tilewright.ops.memory import pointee_of
from tilewright.targets.cpu.lanes import Lanes

if TYPE_CHECKING:  # for remarks only
    from tilewright.passes import access_reasons
    from tilewright.passes.access_reasons import Reasons
else:
    access_reasons = lazy_import("tilewright.passes.access_reasons")

NAME = "vectorise"


class Form(IntEnum):
    """The instructions of an access, best first."""

    WHOLE = 0  # one access of a contiguous vector
    MASKED = 1  # one masked access of a contiguous vector
    STRIDED = 2  # every n-th element of a wider vector
    RUNS = 3  # several vectors, each contiguous
    ONE = 4  # one element for all lanes
    EACH = 5  # a gather or scatter


class AccessReport:
    """Collects the forms of a kernel's accesses, and reports them as remarks."""

    def __init__(self) -> None:
        self._found: dict[Op, tuple[Form, int, int]] = {}  # form, lanes, lane axis

    def note(self, op: Op, form: Form, width: int, coords: Sequence[Lanes]) -> None:
        """Record that an op was emitted in a form.

        Args:
            width: the number of lanes of the loop.
            coords: the point; determines the axis of the lanes.
        """
        axis = next((i for i, c in enumerate(coords) if not c.uniform), 0)
        known = self._found.get(op)
        # Scalar code of the remainder counts only if there is no other.
        if known is None or (form, -width) < (known[0], -known[1]) or known[1] == 1:
            self._found[op] = form, width, axis

    def report(self, fn: Function, facts: AxisMap, ctx: PassContext) -> None:
        """Emit the remarks."""
        reasons = access_reasons.Reasons(fn, facts)
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
                return f"{many}, always under a mask: {reasons.why_mask_unbounded(op.mask, axis)}"
            case Form.STRIDED:
                why = reasons.why_not_contiguous(op.ptr, axis)
                return f"{verb} {width} elements out of wider vectors: {why}"
            case Form.RUNS:
                why = reasons.why_not_contiguous(op.ptr, axis)
                return f"{verb} {width} elements as several shorter vectors: {why}"
            case Form.ONE:
                return f"{verb} one element ({size} byte{'s' * (size > 1)}) at a time"
            case Form.EACH:
                return (
                    f"{verb} element by element (a {kind} of {width}): "
                    f"{reasons.why_not_contiguous(op.ptr, axis)}"
                )
            case _:
                assert_never(form)

"""The precision that the uses of a value require."""

from __future__ import annotations

from tilewright.ir.core import Op, Value
from tilewright.ir.types import dtype_of
from tilewright.ops.arith import Cast, Div, Mul, Neg, Select
from tilewright.ops.view import View

SHORT_MANTISSA = 10  # explicit bits, of fp16


def is_rounded_short(value: Value) -> bool:
    """Whether all that becomes of a floating-point value is rounded to fp16 or a format with less
    precision, after steps that preserve its relative error: products, quotients, signs, choices
    and views. A sum is no such step, as its terms may cancel.

        p = exp(x); store((p * y).to(fp16)) is; store(p.to(fp16)); store(sum(p)) is not

    A relative error of 2^-17 makes results that are rounded to fp16 wrong by at most 0.516 units in
    the last place, instead of 0.5; to bf16, by 0.502. A product of a value by itself would have
    twice its error. Visits each use once.
    """
    pending, seen, scaled = [value], {value}, list[Op]()
    while pending:
        found = pending.pop()
        for user in found.users:
            if _rounds(user):
                continue
            if not _scales(user, found):
                return False
            scaled.append(user)
            pending += [result for result in user.results if result not in seen]
            seen.update(user.results)
    return not any(isinstance(op, Mul | Div) and seen.issuperset(op.operands) for op in scaled)


def _rounds(op: Op) -> bool:
    if not isinstance(op, Cast) or op.rounding != "rtne":
        return False
    element = dtype_of(op.result.type)
    return element.is_floating() and element.fp_mantissa_width <= SHORT_MANTISSA


def _scales(op: Op, value: Value) -> bool:
    """Whether the relative error of a result is that of the operand, except for its own
    rounding."""
    if isinstance(op, Select):
        return value is not op.condition
    return isinstance(op, Mul | Div | Neg | View)

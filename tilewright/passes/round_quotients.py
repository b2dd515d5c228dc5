"""Makes quotients that are rounded to integers or compared correctly rounded.

    q = x / scale; store(rint(q).to(int8))    →    q is exact: a tie stays a tie

A target may divide with an error of 2 ulp, which is cheaper if a tile is divided by a scalar.
Continuous functions of the quotient then have a similar error; but if a quotient is rounded to an
integer or compared, an error of one bit may move it to the other side of a tie, and ties are common
for 8-bit values and scales of few digits. One traversal of the ops.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import dtype_of
from tilewright.ops.arith import Abs, Add, Cast, Div, Fma, Max, Min, Mul, Neg, Select, Sub
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.dot import Dot
from tilewright.ops.math import Ceil, Floor, MathFunction, Rint, Trunc
from tilewright.ops.memory import Store
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.ops.shape import Cat, Join
from tilewright.ops.view import View

CONTINUOUS = (
    *(Abs, Add, Div, Fma, Max, Min, Mul, Neg, Select, Sub),
    *(Cat, Dot, Join, MathFunction, View),
)
STEPS = (Ceil, Floor, Rint, Trunc)
STORED = (AtomicRMW, Store)


@compiler_pass("round_quotients")
def round_quotients(fn: Function, ctx: PassContext) -> bool:
    """Make quotients exact, if a rounding error may be amplified; see the module docstring."""
    decisive = set[Value]()
    changed = False
    for op in reversed(list(fn.walk())):  # users before what they use
        if isinstance(op, Div) and not op.correctly_rounded and op.result in decisive:
            op.ieee = changed = True
            ctx.count("rounded")
        if not isinstance(op, STORED) and not _is_continuous(op, decisive):
            decisive.update(op.operands)
    return changed


def _is_continuous(op: Op, decisive: set[Value]) -> bool:
    """Whether the results of an op change little if its operands do, and are not conditions.

    Values that leave a region may decide anything: loops are not followed.
    """
    if not decisive.isdisjoint(op.results):
        return False
    if isinstance(op, Cast):
        element = dtype_of(op.result.type)
        return element.is_floating() and element.primitive_bitwidth >= 16
    if isinstance(op, Reduce):
        return isinstance(simple_combine(op), CONTINUOUS)
    return isinstance(op, CONTINUOUS) and not isinstance(op, STEPS)

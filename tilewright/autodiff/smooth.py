"""Values that may be rounded differently in a gradient kernel than in the kernel.

A value that is loaded in a narrower type, or computed from another loaded value, differs from the
kernel's by a rounding error, which only adds a rounding error to the gradient, unless the value is
used in a condition: with a maximum m that is loaded as 1 / (1 / m), no element of the row may be
equal to m, and x / m may be less than 1 for all of them.
"""

from __future__ import annotations

from tilewright.ir.core import Op, Value
from tilewright.ir.types import element_of, is_float
from tilewright.ops import arith, marks, math
from tilewright.ops.dot import Dot
from tilewright.ops.memory import Store
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.ops.view import View

SMOOTH = (
    arith.Add, arith.Sub, arith.Mul, arith.Div, arith.Neg, arith.Fma, marks.StopGradient, Dot,
    math.Cos, math.Erf, math.Exp, math.Exp2, math.Expm1, math.Log, math.Log10, math.Log1p,
    math.Log2, math.Rsqrt, math.Sin, math.Sqrt, math.Tan, math.Tanh, View, Store,
)  # fmt: skip
HALF = 16  # bits of the narrowest float to which rounding is no quantisation


def is_only_rounded(cast: arith.Cast) -> bool:
    """Whether a cast is to a float that is wide enough for that to be no quantisation."""
    type = cast.result.type
    return is_float(type) and element_of(type).primitive_bitwidth >= HALF


def is_rounded(stored: Value, value: Value) -> bool:
    """Whether the stored value was cast from another one by way of a type that is no wider."""
    own = element_of(value.type)
    while stored is not value and isinstance(stored.op, arith.Cast | marks.Residual):
        element = element_of(stored.type)
        if element != own and element.primitive_bitwidth <= own.primitive_bitwidth:
            return True
        stored = stored.op.src
    return False


def is_used_smoothly(value: Value, but: Op | None = None) -> bool:
    """Whether neither the value nor values computed from it, up to stores, are used in a condition
    or rounded to an integer.

    Args:
        but: an op whose results are known exactly.
    """
    seen: set[Op] = set() if but is None else {but}
    work = [value]
    while work:
        value = work.pop()
        for user in value.users:
            if user not in seen:
                seen.add(user)
                if not _is_smooth(user, value):
                    return False
                work += user.results
    return True


def _is_smooth(op: Op, value: Value) -> bool:
    match op:
        case arith.Cast():
            return is_only_rounded(op)
        case arith.Select():
            return op.condition is not value
        case Reduce():
            return isinstance(simple_combine(op), arith.Add)
        case _:
            return isinstance(op, SMOOTH)

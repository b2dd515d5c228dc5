"""Timeouts of waits for the barriers of copies, in debug builds."""

from __future__ import annotations

from tilewright.ir.core import Function
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.roles import Roles, WaitBarrier

LIMIT_NS = 10_000_000_000
"""Far more than an iteration of a loop takes, also where a tool runs the kernel step by step."""


@compiler_pass("bound_waits", required=True)
def bound_waits(fn: Function, ctx: PassContext) -> bool:
    """With the option `debug`, limit the waits for barriers.

    Needs: the waits.  Leaves: everything else unchanged, but for the registers of roles.

    The error of a wait is reported by calls, which may need more registers than a warp that only
    copies has kept. So no role releases registers.
    """
    if not ctx.options.get("debug", False):
        return False
    waits = [op for op in fn.walk() if isinstance(op, WaitBarrier)]
    for op in waits:
        op.limit = LIMIT_NS
    for op in fn.walk():
        if isinstance(op, Roles):
            op.registers = ()
    return bool(waits)

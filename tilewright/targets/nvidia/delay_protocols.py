"""Inserts random delays around synchronisation, to expose races that the usual timing hides."""

from __future__ import annotations

from tilewright.ir.core import Function, Op
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.gpu import Allocate, Share
from tilewright.ops.nvidia import Delay


@compiler_pass("delay_protocols", required=True)
def delay_protocols(fn: Function, ctx: PassContext) -> bool:
    """With the option `random_delays`, its seed, insert a delay before and after each op that
    synchronises threads, warps, copies or products.

    Needs: the ops of all protocols, which later passes leave in their order.
    Leaves: everything else unchanged.
    """
    seed: int = ctx.options.get("random_delays", 0)
    if not seed:
        return False
    points = [op for op in fn.walk() if _synchronises(op)]
    for number, op in enumerate(points):
        assert op.parent is not None
        for place, insert in enumerate((op.parent.insert_before, op.parent.insert_after)):
            delay = Delay(seed=_mixed(seed, 2 * number + place))
            delay.loc = op.loc
            insert(delay, op)
    return bool(points)


def _synchronises(op: Op) -> bool:
    """Whether an op is part of a protocol: it has effects other than on global memory, or passes a
    tile through shared memory."""
    return (op.local and not isinstance(op, Allocate)) or isinstance(op, Share)


def _mixed(seed: int, point: int) -> int:
    """A seed of 31 bits for one point (a linear congruential generator's constants)."""
    return (seed * 1664525 + point * 1013904223) & 0x7FFFFFFF

"""Sinks computations below an inner loop that does not use them.

    for tile in range(…):                       for tile in range(…):
        at = tile // n * stride                     for k in range(…):
        for k in range(…):               →              acc = …
            acc = …                                 at = tile // n * stride
        store(p + at, acc)                          store(p + at, acc)

In a program that loops over tiles of a product, quotients and remainders of the tile's number would
delay the start of the inner loop, by a large part of its time if it is short. Only computations
from scalars are sunk. Linear in the number of ops and operands.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Region
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Tile
from tilewright.ops.control import For
from tilewright.ops.shape import Arange
from tilewright.ops.view import View


@compiler_pass("sink_past_loops")
def sink_past_loops(fn: Function, ctx: PassContext) -> bool:
    """Sink ops of loops below inner loops; see the module docstring.

    Needs: no dead ops, which would keep others before a loop.
    """
    moved = sum(_sink(op.body) for op in list(fn.walk()) if isinstance(op, For))
    ctx.count("sunk", moved)
    return moved > 0


def _sink(body: Region) -> int:
    """Sink ops of a body; returns their number."""
    ops = list(body)
    loops = [i for i, op in enumerate(ops) if isinstance(op, For)]
    if not loops:
        return 0
    scalar = _from_scalars(body)
    place: dict[Op, float] = {op: i for i, op in enumerate(ops)}
    moved = 0
    for i in reversed(range(loops[-1])):
        op = ops[i]
        users = body.users_of(op)
        if op not in scalar or not users or None in users:
            continue
        first = min(place[user] for user in users if user is not None)
        between = [at for at in loops if i < at < first]
        if between:
            place[op] = between[-1] + 0.5
            op.remove()
            body.insert_after(op, ops[between[-1]])  # before those that were moved earlier
            moved += 1
    return moved


def _from_scalars(body: Region) -> set[Op]:
    """The ops of a region that compute with scalars, and tiles computed from these."""
    result: set[Op] = set()
    for op in body:
        pure = op.elementwise or isinstance(op, View | Arange)
        if pure and all(
            not isinstance(v.type, Tile) or v.region is not body or v.op in result
            for v in op.operands
        ):
            result.add(op)
    return result

"""Sinks conversions through shared memory below independent loads.

    a = load(p)                           a = load(p)
    c = convert_layout(a)           →     b = load(q)
    b = load(q)                           c = convert_layout(a)
    store(r, b * c)                       store(r, b * c)

A conversion waits for its operand, and then for all threads. Neither LLVM nor the assembler moves a
load across that barrier, so the second load would start only after the first one has returned.

Conversions and the elementwise ops that depend on them are sunk below the last load that precedes
their first user. They access no memory of the program. Of the conversions between two loads, either
all are sunk or none: the second load waits for any that remains. None is moved across a loop, a
branch or a reduction, at which threads synchronise as well. Only the function's top-level body is
processed: in loops, loads are issued an iteration ahead.

Input: laid-out IR. Output: the same ops in another order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from tilewright.ir.core import Function, Op, Region
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.lowering.simt.convert import needs_memory
from tilewright.ops.gpu import ConvertLayout
from tilewright.ops.memory import Load
from tilewright.ops.view import View


@compiler_pass("sink_conversions")
def sink_conversions(fn: Function, ctx: PassContext) -> bool:
    """Sink conversions below loads; see the module docstring."""
    body = fn.body
    ops = list(body)
    loads = [i for i, op in enumerate(ops) if isinstance(op, Load)]
    waits = [i for i, op in enumerate(ops) if op.regions or op.terminator]
    place: dict[Op, float] = {op: i for i, op in enumerate(ops)}
    converted = _converted(ops)
    moved = 0
    for i in reversed(range(len(loads) - 1)):
        between = [op for op in ops[loads[i] : loads[i + 1]] if op in converted]
        if not between:
            continue
        end = waits[bisect_left(waits, loads[i])]
        found = _sunk(body, between, place, loads[i + 1 : bisect_left(loads, end)])
        for op, load in reversed(found.items()):
            op.remove()
            body.insert_after(op, ops[load])  # before those that were moved earlier
            place[op] = load + 0.5
        moved += len(found)
    ctx.count("sunk", moved)
    return moved > 0


def _sunk(
    body: Region, ops: Sequence[Op], place: Mapping[Op, float], loads: Sequence[int]
) -> dict[Op, int]:
    """The loads below which ops between two loads are sunk, in the order of the ops; none if a
    conversion cannot be moved.

    Args:
        body: of the function.
        ops: conversions, and what is computed from them.
        place: where each op of the body is.
        loads: where the loads that follow are.
    """
    found: dict[Op, int] = {}
    for op in reversed(ops):
        users = body.users_of(op)
        first = min(
            (found[u] + 0.5 if u in found else place[u] for u in users if u is not None), default=0
        )
        passed = bisect_left(loads, first)
        if passed:
            found[op] = loads[passed - 1]
        elif isinstance(op, ConvertLayout) and needs_memory(op):
            return {}
    return dict(reversed(found.items()))


def _converted(ops: list[Op]) -> set[Op]:
    """The conversions through shared memory, and the elementwise ops that depend on them."""
    result: set[Op] = set()
    for op in ops:
        first = isinstance(op, ConvertLayout) and needs_memory(op)
        derived = op.pure and (op.elementwise or isinstance(op, View))
        if first or (derived and any(v.op in result for v in op.operands)):
            result.add(op)
    return result

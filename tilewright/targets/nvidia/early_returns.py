"""Sinks ops before an early return into the branch of the programs that do not return early.

    i = program.id                              i = program.id
    rows = load(x)                              if i < count:
    if i < count:                    →              rows = load(x)
        for k in …: …                               for k in …: …

Kernels skip tiles of a product above the diagonal, or blocks of experts without tokens, by a
`return` at the beginning. Barriers and roles are then placed in the branch as well, so that a
program that returns early initialises none, and ends as soon as its condition is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir.core import Function, Op, Region
from tilewright.ir.types import shape_of
from tilewright.ops.control import If
from tilewright.ops.gpu import WaitLaunches
from tilewright.ops.memory import Load


def enter_branch(fn: Function, loops: Iterable[Op]) -> Region:
    """The region of a function that does all the work around some loops: the body, or the only
    branch at its end, into which preceding ops are sunk, except for scalars on which its condition
    depends."""
    body = fn.body
    branch = body.terminator.prev
    work = _work_of(branch)
    if branch is None or work is None or not all(branch in loop.ancestors() for loop in loops):
        return body
    needed = _needed(branch)
    if not all(_is_scalar(op) for op in needed):
        return body
    kept = {*needed, branch, body.terminator}
    moved = [op for op in body if op not in kept and not isinstance(op, WaitLaunches)]
    if any(inner.is_write() for op in moved for inner in op.walk()):
        return body
    first = next(iter(work))
    for op in moved:
        op.remove()
        work.insert_before(op, first)
    return work


def _work_of(branch: Op | None) -> Region | None:
    """The only region of a branch without results that has ops; None if there is no such."""
    if not isinstance(branch, If) or branch.results:
        return None
    full = [region for region in branch.regions if not next(iter(region)).terminator]
    return full[0] if len(full) == 1 else None


def _needed(branch: Op) -> set[Op]:
    """The ops that the condition of a branch depends on."""
    found, work = set[Op](), list(branch.operands)
    while work:
        op = work.pop().op
        if op is not None and op not in found:
            found.add(op)
            work += op.operands
    return found


def _is_scalar(op: Op) -> bool:
    """Whether any warp may run an op: it computes or loads scalars, and has no other effect."""
    alone = not op.regions and not any(shape_of(v.type) for v in (*op.operands, *op.results))
    return alone and (op.pure or (isinstance(op, Load) and not op.volatile))

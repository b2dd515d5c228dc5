"""Mutually exclusive accesses: in different branches, or before and after an early return.

An early return within two branches is a flag that they yield; the ops after them are in a branch
that is taken if the flag is not set.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.autodiff.memo import once_for_each_value
from tilewright.ir.core import Op, Region, Value
from tilewright.ops.arith import And, Or, Xor, constant_value
from tilewright.ops.control import If


def exclusive_at(a: Op, b: Op) -> Op | None:
    """An op around or before two others, of which at most one runs each time that this op does;
    None if both may run, or in loops that are not around both."""
    mine, other = _places(a), _places(b)
    region = next((r for r in mine if r in other), None)
    if region is None:
        return None
    if mine[region] is other[region]:
        return mine[region]  # an `if`, with both in branches of their own
    excluded = _excludes(mine, other) or _excludes(other, mine)
    return mine[region] if excluded else None


Places = Mapping[Region, Op]


def _places(op: Op) -> Places:
    """The regions of branches around an op, from the innermost to the outermost, each with the op
    in it that is or contains the op."""
    found: dict[Region, Op] = {}
    at = op
    while at.parent is not None:
        found[at.parent] = at
        at = at.parent_op()
        if not isinstance(at, If):
            break
    return found


def _excludes(places: Places, others: Places) -> bool:
    """Whether accesses at these places are executed only if those at the others are not."""
    taken = {branch.parent: branch for branch in places if isinstance(branch.parent, If)}
    for branch in others:
        if isinstance(branch.parent, If):
            holds = _truth(branch.parent.condition, taken)
            if holds is not None and branch is not branch.parent.regions[0 if holds else 1]:
                return True
    return False


@once_for_each_value
def _truth(value: Value, taken: Mapping[If, Region]) -> bool | None:
    """A condition where these branches are taken, if that decides it."""
    constant = constant_value(value)
    if constant is not None:
        return bool(constant)
    for branch in taken.values():
        assert isinstance(branch.parent, If)
        if branch.parent.condition is value:
            return branch is branch.parent.regions[0]
    op = value.op
    if isinstance(op, If):
        return _truth(taken[op].terminator.operands[value.index], taken) if op in taken else None
    if not isinstance(op, And | Or | Xor):
        return None
    known = [_truth(v, taken) for v in op.operands]
    if isinstance(op, Xor):
        return None if None in known else known[0] != known[1]
    decisive = isinstance(op, Or)
    return decisive if decisive in known else None if None in known else not decisive

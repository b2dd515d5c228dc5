"""Scalars that are launch-invariant: the same in all programs and iterations of a launch."""

from __future__ import annotations

from tilewright.analysis.polynomial import Atom, Iteration, Term
from tilewright.ir.core import Region
from tilewright.ops import control

MAX_DEPTH = 8  # ops to look through to prove that a scalar is launch-invariant


def is_launch_invariant(atom: Atom, depth: int = MAX_DEPTH) -> bool:
    """Whether a scalar is an argument, or computed from arguments."""
    if isinstance(atom, Iteration):
        return False
    op = atom.op
    if op is None:
        return isinstance(atom.owner, Region) and atom.owner.parent is None
    if isinstance(op, control.NumPrograms):
        return True
    if isinstance(op, control.ProgramId) or not op.elementwise or depth == 0:
        return False
    return all(is_launch_invariant(v, depth - 1) for v in op.operands)


def is_invariant_term(term: Term) -> bool:
    """Whether all factors of a product are launch-invariant."""
    return all(is_launch_invariant(f) for f in term.factors)

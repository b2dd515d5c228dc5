"""Which part of an address is the begin of which axis of a block.

The start of an address is one sum, `pid*64*stride + 32*turn + batch*stride_b + 7`. Any way to share
it out over the axes describes the same memory; this one is made for readers who give memory to
hardware as an array with extents:

1. An axis with a bound begins with what its mask adds to the place: of `pid*64 + i < n` it is
   `pid*64`, so that the bound of the index is `n`, the same for all programs.
2. Multiples of a symbolic stride are the begin of that axis, if no mask spoke of it.
3. What is a product of an argument and of what changes in a launch (a program's number, a loop's
   iteration, a loaded number) is an axis of its own, of extent 1: `batch` times `stride_b`.
4. What only numbers multiply is the begin of the axis with the largest stride that divides it.
5. What is the same for the whole launch is the offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from tilewright.analysis.mask_bounds import MaskBounds
from tilewright.analysis.polynomial import ZERO, Atom, Iteration, Polynomial, Term
from tilewright.ir.core import Region
from tilewright.ops import control

MAX_DEPTH = 8  # ops behind a scalar that is the same for the whole launch


@dataclass(slots=True)
class Split:
    """An address's start shared out.

    Attributes:
        begins: by axis of the tile.
        further: stride and begin of axes of extent 1.
        offset: what is left, the same for the whole launch.
    """

    begins: list[Polynomial]
    further: list[tuple[Polynomial, Polynomial]]
    offset: Polynomial


def split_start(
    start: Polynomial,
    strides: Sequence[Polynomial],
    mask: MaskBounds,
    wrapped: Mapping[int, Polynomial],
) -> Split:
    """Share out the start of an address.

    Args:
        start: without what wrapped axes begin with.
        strides: by axis of the tile.
        wrapped: begins of the axes whose index wraps.
    """
    begins = [wrapped.get(axis, ZERO) for axis in range(len(strides))]
    free: list[int] = []
    for axis, stride in enumerate(strides):
        if axis in wrapped or not stride:
            continue
        bounds = mask.upper[axis] or mask.lower[axis]
        if bounds:
            begins[axis], start = _as_masked(start, stride, bounds[0])
        else:
            free.append(axis)
    for axis in free:
        term = strides[axis].alone
        if term is not None and term.factors:
            begins[axis], start = start.divided_by(term)
    numbers = {axis: strides[axis].constant or 0 for axis in free}
    return _share_terms(start, begins, {a: n for a, n in numbers.items() if n})


def _as_masked(
    start: Polynomial, stride: Polynomial, bound: Polynomial
) -> tuple[Polynomial, Polynomial]:
    """What a bound of the place subtracts and the address adds, and the rest of the address."""
    begin = ZERO
    for term in (-bound).terms:
        part = Polynomial([term])
        rest = start - part * stride
        if len(rest) == len(start) - len(stride):
            begin, start = begin + part, rest
    return begin, start


def _share_terms(start: Polynomial, begins: list[Polynomial], numbers: dict[int, int]) -> Split:
    offset = ZERO
    groups: dict[Polynomial, list[Term]] = {}  # by the product of what is fixed
    for term in start.terms:
        fixed = tuple(f for f in term.factors if is_fixed(f))
        moving = tuple(f for f in term.factors if not is_fixed(f))
        axis = None
        if not fixed or not moving:
            fits = [a for a, n in numbers.items() if term.coefficient % n == 0]
            axis = max(fits, key=lambda a: abs(numbers[a]), default=None)
        if axis is not None:
            begins[axis] += Polynomial([Term(term.coefficient // numbers[axis], term.factors)])
        elif moving:
            group = groups.setdefault(Polynomial([Term(1, fixed)]), [])
            group.append(Term(term.coefficient, moving))
        else:
            offset += Polynomial([term])
    further: list[tuple[Polynomial, Polynomial]] = []
    for stride, terms in groups.items():
        common = gcd(*(t.coefficient for t in terms))
        begin = Polynomial([Term(t.coefficient // common, t.factors) for t in terms])
        further.append((stride * common, begin))
    return Split(begins, further, offset)


def is_fixed(atom: Atom, depth: int = MAX_DEPTH) -> bool:
    """Whether a scalar is the same for all programs and iterations of a launch: an argument, or
    computed from such."""
    if isinstance(atom, Iteration):
        return False
    op = atom.op
    if op is None:
        return isinstance(atom.owner, Region) and atom.owner.parent is None
    if isinstance(op, control.NumPrograms):
        return True
    if isinstance(op, control.ProgramId) or not op.elementwise or depth == 0:
        return False
    return all(is_fixed(v, depth - 1) for v in op.operands)

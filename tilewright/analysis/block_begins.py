"""Distribution of the start of an address over the axes of a block.

The start of an address is a sum, such as `pid*64*stride + 32*iteration + batch*stride_b + 7`. Every
distribution of its terms over the begins of axes describes the same memory. This one is chosen for
hardware that takes an array with extents and an index per axis:

1. The begin of an axis with a bound is what its mask adds to the index within the tile: for
   `pid*64 + i < n` it is `pid*64`, so that the bound `n` is the same for all programs.
2. Multiples of a symbolic stride are the begin of that axis, unless it has a bound.
3. A product of a launch-invariant scalar (an argument) and of one that varies within the launch (a
   program id, an iteration number, a loaded value) becomes an additional axis of extent 1: index
   `batch`, stride `stride_b`.
4. A term with a constant stride is assigned to the axis with the largest constant stride that
   divides it; if it exceeds a larger stride, the multiples of that one are assigned to its axis
   first. What remains of a constant is not negative: `(row - 1)*2048 + 64` and `row*2048 - 1984`
   both begin in column 64.
5. The remaining launch-invariant terms are the offset.

Linear in the number of terms times axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from tilewright.analysis.mask_bounds import MaskBounds
from tilewright.analysis.polynomial import ZERO, Atom, Iteration, Polynomial, Term
from tilewright.base.record import record
from tilewright.ir.core import Region
from tilewright.ops import control

MAX_DEPTH = 8  # ops to look through to prove that a scalar is launch-invariant


@record(frozen=False)
class Split:
    """The distributed start of an address.

    Attributes:
        begins: the begin of each axis of the tile.
        further: (stride, begin) of each additional axis of extent 1.
        offset: the launch-invariant rest.
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
    """Distribute the start of an address over axes; see the module docstring.

    Args:
        start: the start, without the begins of wrapped axes.
        strides: the stride of each axis of the tile.
        mask: the bounds of the access.
        wrapped: the begins of axes whose index is taken modulo a number, by axis.
    """
    begins = [wrapped.get(axis, ZERO) for axis in range(len(strides))]
    free: list[int] = []
    for axis, stride in enumerate(strides):
        if axis in wrapped or not stride:
            continue
        bounds = mask.upper[axis] or mask.lower[axis]
        if bounds:
            begins[axis], start = _begin_from_bound(start, stride, bounds[0])
        else:
            free.append(axis)
    for axis in free:
        term = strides[axis].alone
        if term is not None and term.factors:
            begins[axis], start = start.divided_by(term)
    numbers = {axis: strides[axis].constant or 0 for axis in free}
    return _distribute_terms(start, begins, {a: n for a, n in numbers.items() if n})


def _begin_from_bound(
    start: Polynomial, stride: Polynomial, bound: Polynomial
) -> tuple[Polynomial, Polynomial]:
    """The terms that a bound subtracts and the address adds, times the stride, as the begin of an
    axis; and the rest of the address."""
    begin = ZERO
    for term in (-bound).terms:
        part = Polynomial([term])
        rest = start.reduced_by(part * stride)  # a constant is a sum of those of several axes
        if rest is not None:
            begin, start = begin + part, rest
    return begin, start


def _distribute_terms(
    start: Polynomial, begins: list[Polynomial], numbers: dict[int, int]
) -> Split:
    offset = ZERO
    groups: dict[Polynomial, list[Term]] = {}  # by the product of launch-invariant factors
    for term in start.terms:
        fixed = tuple(f for f in term.factors if is_launch_invariant(f))
        varying = tuple(f for f in term.factors if not is_launch_invariant(f))
        parts = {} if fixed and varying else _quotients(term, numbers)
        if parts:
            for axis, number in parts.items():
                begins[axis] += Polynomial([Term(number, term.factors)])
        elif varying:
            group = groups.setdefault(Polynomial([Term(1, fixed)]), [])
            group.append(Term(term.coefficient, varying))
        else:
            offset += Polynomial([term])
    further: list[tuple[Polynomial, Polynomial]] = []
    for stride, terms in groups.items():
        common = gcd(*(t.coefficient for t in terms))
        begin = Polynomial([Term(t.coefficient // common, t.factors) for t in terms])
        further.append((stride * common, begin))
    return Split(begins, further, offset)


def _quotients(term: Term, numbers: dict[int, int]) -> dict[int, int]:
    """What a term adds to the begins of axes with constant strides; nothing if none divides it."""
    coefficient = term.coefficient
    fits = [axis for axis, n in numbers.items() if coefficient % n == 0]
    own = max(fits, key=lambda axis: abs(numbers[axis]), default=None)
    if own is None:
        return {}
    parts: dict[int, int] = {}
    larger = [axis for axis, n in numbers.items() if n > abs(numbers[own])]
    for axis in sorted(larger, key=lambda axis: -numbers[axis]):
        below = not term.factors and coefficient < 0
        if below or abs(coefficient) >= numbers[axis]:
            quotient, rest = divmod(coefficient, numbers[axis])
            if rest % numbers[own] == 0:
                parts[axis], coefficient = quotient, rest
    return {**parts, own: coefficient // numbers[own]}


def is_launch_invariant(atom: Atom, depth: int = MAX_DEPTH) -> bool:
    """Whether a scalar is launch-invariant, the same in all programs and iterations: an argument,
    or computed from arguments."""
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

"""Distribution of the start of an address over the axes of a block.

The start of an address is a sum, such as `pid*64*stride + 32*iteration + batch*stride_b + 7`. Every
distribution of its terms over the begins of axes describes the same memory. This one is chosen for
hardware that takes an array with extents and an index per axis:

1. The begin of an axis with a bound is what its mask adds to the index within the tile: for
   `pid*64 + i < n` it is `pid*64`, so that the bound `n` is the same for all programs.
2. Multiples of a symbolic stride are the begin of that axis, unless it has a bound.
3. A term with a constant stride is assigned to the axis without bounds that has the largest
   constant stride that divides it; if it exceeds a larger stride, the multiples of that one are
   assigned to its axis first. What remains of a constant is not negative: `(row - 1)*2048 + 64` and
   `row*2048 - 1984` both begin in column 64.
4. A scalar that a condition bounds (`batch < batches`) becomes an additional axis of extent 1 with
   these bounds.
5. Another product of a launch-invariant scalar (an argument) and of one that varies within the
   launch (a program id, an iteration number, a loaded value) becomes such an axis, too: index
   `batch`, stride `stride_b`.
6. The remaining launch-invariant terms are the offset.

Linear in the number of terms times axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from tilewright.analysis.launch_invariants import is_invariant_term, is_launch_invariant
from tilewright.analysis.mask_bounds import IndexBounds, MaskBounds
from tilewright.analysis.polynomial import ZERO, Polynomial, Term
from tilewright.base.record import record


@record
class Further:
    """An additional axis of extent 1, with the bounds of its index by conditions."""

    stride: Polynomial
    begin: Polynomial
    bounds: IndexBounds = IndexBounds()


@record(frozen=False)
class Split:
    """The distributed start of an address.

    Attributes:
        begins: the begin of each axis of the tile.
        further: the additional axes.
        offset: the launch-invariant rest.
    """

    begins: list[Polynomial]
    further: list[Further]
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
    return _distribute_terms(start, begins, {a: n for a, n in numbers.items() if n}, mask.scalars)


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
    start: Polynomial,
    begins: list[Polynomial],
    numbers: dict[int, int],
    scalars: Mapping[Polynomial, IndexBounds],
) -> Split:
    offset = varying = ZERO
    for term in start.terms:
        invariant = is_invariant_term(term)
        mixed = not invariant and any(map(is_launch_invariant, term.factors))
        parts = {} if mixed else _quotients(term, numbers)
        for axis, number in parts.items():
            begins[axis] += Polynomial([Term(number, term.factors)])
        if not parts and invariant:
            offset += Polynomial([term])
        elif not parts:
            varying += Polynomial([term])
    further: list[Further] = []
    for index, bounds in scalars.items():
        stride = _stride_of(index, varying)
        if stride:
            further.append(Further(stride, index, bounds))
            varying -= index * stride
    return Split(begins, further + _further(varying), offset)


def _stride_of(index: Polynomial, varying: Polynomial) -> Polynomial:
    """The launch-invariant stride with which an index is in an address; 0 if it is not."""
    quotient, _ = varying.divided_by(index.terms[0])
    stride = Polynomial([t for t in quotient.terms if is_invariant_term(t)])
    return stride if stride and varying.reduced_by(index * stride) is not None else ZERO


def _further(varying: Polynomial) -> list[Further]:
    """An axis for each product of launch-invariant scalars by which others are multiplied."""
    groups: dict[Polynomial, list[Term]] = {}
    for term in varying.terms:
        fixed = tuple(f for f in term.factors if is_launch_invariant(f))
        rest = tuple(f for f in term.factors if not is_launch_invariant(f))
        group = groups.setdefault(Polynomial([Term(1, fixed)]), [])
        group.append(Term(term.coefficient, rest))
    result: list[Further] = []
    for stride, terms in groups.items():
        common = gcd(*(t.coefficient for t in terms))
        begin = Polynomial([Term(t.coefficient // common, t.factors) for t in terms])
        result.append(Further(stride * common, begin))
    return result


def _quotients(term: Term, numbers: dict[int, int]) -> dict[int, int]:
    """The contribution of a term to the begins of axes with constant strides; none if no stride
    divides it."""
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

"""Decomposition of a mask into bounds along its axes, conditions, and a residual.

The mask is split into the conjuncts of `and`. A conjunct is

- a *bound* if it compares integers whose difference varies along one axis, with a constant stride:
  `begin + i < n` is the bound `i < n - begin` of the index `i` along that axis;
- a *condition* if it is uniform; it bounds a scalar index if it compares an integer that varies
  within the launch with one that does not (`batch < batches`);
- *residual* otherwise: a comparison of two axes (causal masks), a loaded mask, `or`.

Tensor descriptors and block pointers check both bounds of an axis with one unsigned comparison,
`x < max(n, 0)`, which is interpreted as `0 <= x < n` with a signed x. Linear in the number of
conjuncts; the IR is not modified.
"""

from __future__ import annotations

from math import gcd

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.affine_form import Affine, Axes, over_axes, sum_of
from tilewright.analysis.launch_invariants import is_invariant_term
from tilewright.analysis.polynomial import Polynomial, Term
from tilewright.analysis.ranges import type_range
from tilewright.base.record import field, record, replace
from tilewright.ir.core import Value
from tilewright.ir.index_map import Along
from tilewright.ir.types import Tile, dtype_of, element_of, is_int, shape_of
from tilewright.ops import arith
from tilewright.ops.view import View

_Comparison = tuple[Value, Value, str]
_INVERSE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


@record
class Conjunct:
    """A conjunct of a mask.

    Attributes:
        value: an i1 scalar or tile.
        axes: for each axis of the tile, the corresponding axis of the mask; None for an axis of
            length 1.
    """

    value: Value
    axes: Axes


@record
class IndexBounds:
    """The bounds of one index.

    Attributes:
        lower, upper: inclusive lower and exclusive upper bounds.
        conditions: of a scalar index, the conditions of the mask that are its bounds.
        assumed, read_signed: as those of the mask.
    """

    lower: tuple[Polynomial, ...] = ()
    upper: tuple[Polynomial, ...] = ()
    conditions: tuple[Value, ...] = ()
    assumed: tuple[Value, ...] = ()
    read_signed: tuple[Value, ...] = ()

    def __add__(self, other: IndexBounds) -> IndexBounds:
        return IndexBounds(
            (*self.lower, *(b for b in other.lower if b not in self.lower)),
            (*self.upper, *(b for b in other.upper if b not in self.upper)),
            (*self.conditions, *other.conditions),
            (*self.assumed, *other.assumed),
            (*self.read_signed, *other.read_signed),
        )


@record(frozen=False)
class MaskBounds:
    """A decomposed mask; see the module docstring.

    Attributes:
        lower, upper: for each axis, the inclusive lower and exclusive upper bounds of the index of
            elements where the mask is true.
        conditions: i1 scalars, or uniform i1 tiles.
        scalars: the conditions that bound scalar indices, by index.
        residual: the conjuncts that are neither bounds nor conditions.
        never: whether the mask is false everywhere.
        assumed: integers that are assumed to be computed without wrapping.
        read_signed: unsigned integers that are assumed to equal signed ones of the same width.
    """

    lower: list[list[Polynomial]]
    upper: list[list[Polynomial]]
    conditions: tuple[Value, ...] = ()
    scalars: dict[Polynomial, IndexBounds] = field(default_factory=dict[Polynomial, IndexBounds])
    residual: tuple[Conjunct, ...] = ()
    never: bool = False
    assumed: tuple[Value, ...] = ()
    read_signed: tuple[Value, ...] = ()

    def add(self, axis: int, bounds: IndexBounds) -> None:
        """Add bounds of an axis."""
        for known, more in ((self.lower, bounds.lower), (self.upper, bounds.upper)):
            known[axis] += [bound for bound in more if bound not in known[axis]]
        self.assumed = tuple(dict.fromkeys(self.assumed + bounds.assumed))
        self.read_signed = tuple(dict.fromkeys(self.read_signed + bounds.read_signed))


def bounds_of(forms: AffineForms, mask: Value | None, rank: int) -> MaskBounds:
    """Decompose a mask of this rank.

    Args:
        forms: the affine forms of its function, with `through_scalars`.
        mask: the mask; None if it is true for all elements.
    """
    result = MaskBounds([[] for _ in range(rank)], [[] for _ in range(rank)])
    work = [Conjunct(mask, tuple(range(rank)))] if mask is not None else []
    seen: set[tuple[Value, Axes]] = set()
    while work:
        conjunct = work.pop()
        if (conjunct.value, conjunct.axes) in seen:
            continue
        seen.add((conjunct.value, conjunct.axes))
        parts = _parts(conjunct)
        if parts is None:
            _add_conjunct(result, forms, conjunct, rank)
        else:
            work += reversed(parts)
    return result


def _parts(conjunct: Conjunct) -> list[Conjunct] | None:
    """The conjuncts of an `and`, or the operand of a view; None for any other op."""
    op, axes = conjunct.value.op, conjunct.axes
    if isinstance(op, arith.And):
        return [Conjunct(op.lhs, axes), Conjunct(op.rhs, axes)]
    if not isinstance(op, View):
        return None
    index = op.index_maps(conjunct.value.index)[0]
    if index is None:
        return None
    own: list[int | None] = []
    for term, extent in zip(index.axes, index.source, strict=True):
        if extent > 1 and not isinstance(term, Along):
            return None
        own.append(axes[term.axis] if isinstance(term, Along) and extent > 1 else None)
    return [Conjunct(op.src, tuple(own))]


def _add_conjunct(found: MaskBounds, forms: AffineForms, conjunct: Conjunct, rank: int) -> None:
    """Add a conjunct that is not decomposed further."""
    value = conjunct.value
    number = arith.constant_value(value)
    if number is not None:
        found.never |= not number
        return
    compared = _comparison(value)
    bounds = None if compared is None else _bounds(forms, compared, _inverse(conjunct.axes, rank))
    if bounds is not None and isinstance(bounds.index, int):
        found.add(bounds.index, bounds.of)
        return
    if isinstance(value.type, Tile) and any(_varying(forms.of(value), conjunct.axes)):
        found.residual += (conjunct,)
        return
    found.conditions += (value,)
    if bounds is not None and isinstance(bounds.index, Polynomial):
        known = found.scalars.get(bounds.index, IndexBounds())
        found.scalars[bounds.index] = known + replace(bounds.of, conditions=(value,))


@record
class _Bounded:
    """An axis, or a scalar, and its bounds."""

    index: int | Polynomial
    of: IndexBounds


def _bounds(forms: AffineForms, compared: _Comparison, axes: Axes) -> _Bounded | None:
    """The bounds that are equivalent to a comparison; None if there are none.

    Args:
        axes: for each axis of the mask, the corresponding axis of the comparison.
    """
    x, y, predicate = compared
    if predicate == "gt" and not _is_signed(x):
        x, y, predicate = y, x, "lt"
    if predicate == "lt" and not _is_signed(x):
        limit = _limit_of_both_ends(forms, y)
        if limit is not None:
            index = forms.of(x)
            least, most = forms.bounds(index, shape_of(x.type))
            found = _bound(over_axes(sum_of(index, limit, -1), axes), "lt")
            low = _bound(over_axes(index, axes), "ge") if least < 0 else None
            if found is None or (least < 0 and (low is None or low.index != found.index)):
                return None
            read = IndexBounds(read_signed=() if _fits_signed(least, most, x) else (x,))
            return _Bounded(found.index, found.of + (low.of if low else IndexBounds()) + read)
    difference = sum_of(forms.exactly(x), forms.exactly(y), -1)
    return _bound(over_axes(difference, axes), predicate)


def _is_signed(value: Value) -> bool:
    return dtype_of(value.type).is_int_signed()


def _limit_of_both_ends(forms: AffineForms, limit: Value) -> Affine | None:
    """The limit n of an unsigned comparison `x < n` that is equivalent to the signed `0 <= x < n`,
    because n is below half of the range of its type; for `max(n, 0)`, n. None otherwise."""
    form = forms.exactly(limit)
    low, high = forms.bounds(form, shape_of(limit.type))
    if low < 0 or high > type_range(limit)[1] // 2:
        return None
    term = form.start.alone
    if form.is_uniform and term is not None and term.coefficient == 1 and len(term.factors) == 1:
        (atom,) = term.factors
        op = atom.op if isinstance(atom, Value) else None
        if isinstance(op, arith.Max) and arith.constant_value(op.rhs) == 0:
            own = forms.exactly(op.lhs)
            return replace(own, strides=form.strides)
    return form


def _fits_signed(low: int, high: int, value: Value) -> bool:
    half = type_range(value)[1] // 2
    return -half - 1 <= low and high <= half


def _inverse(axes: Axes, rank: int) -> Axes:
    """For each axis of the mask, the corresponding axis of the conjunct."""
    return tuple(axes.index(a) if a in axes else None for a in range(rank))


def _varying(form: Affine, axes: Axes) -> list[bool]:
    return [form.varies(own) for own, axis in enumerate(axes) if axis is not None]


def _comparison(value: Value) -> _Comparison | None:
    """The operands and the predicate of an integer comparison, possibly negated; None for other
    values."""
    op, inverted = value.op, False
    while isinstance(op, arith.Xor) and arith.constant_value(op.rhs) is True:
        op, inverted = op.lhs.op, not inverted
    if not isinstance(op, arith.Cmp) or not is_int(op.lhs.type):
        return None
    if element_of(op.lhs.type).is_bool():
        return None
    return op.lhs, op.rhs, _INVERSE[op.predicate] if inverted else op.predicate


def _bound(difference: Affine, predicate: str) -> _Bounded | None:
    """The bounds that are equivalent to `difference <predicate> 0`; None if there are none."""
    varying = [axis for axis in range(len(difference.strides)) if difference.varies(axis)]
    if len(varying) > 1 or difference.pieces or predicate == "ne":
        return None
    if varying:
        index, rest = varying[0], -difference.start
        step = difference.strides[varying[0]].constant
    else:
        index, step, rest = _scalar_index(difference.start)
    if step is None:
        return None
    # step * i <predicate> rest
    below = {"lt": rest, "le": rest + 1, "eq": rest + 1}.get(predicate)
    least = {"ge": rest, "gt": rest + 1, "eq": rest}.get(predicate)
    if step < 0:  # -s*i < u is s*i >= 1 - u, and -s*i >= l is s*i < 1 - l
        step = -step
        below, least = (None if b is None else -b + 1 for b in (least, below))
    lower = () if least is None else (_divided(least, step),)
    upper = () if below is None else (_divided(below, step),)
    if None in lower or None in upper:
        return None
    return _Bounded(
        index,
        IndexBounds(
            tuple(b for b in lower if b is not None),
            tuple(b for b in upper if b is not None),
            assumed=difference.assumed,
        ),
    )


def _scalar_index(difference: Polynomial) -> tuple[Polynomial, int | None, Polynomial]:
    """The index in a comparison of scalars with 0, its coefficient, and the other side: `2*pid + 3
    - n` is 2 times the index `pid`, compared with `n - 3`. The coefficient is None if no term
    varies within the launch."""
    varying = Polynomial([t for t in difference.terms if not is_invariant_term(t)])
    step = gcd(*(t.coefficient for t in varying.terms))
    if not step:
        return varying, None, difference
    if varying.terms[0].coefficient < 0:
        step = -step
    index, _ = varying.divided_by(Term(step, ()))
    return index, step, varying - difference


def _divided(bound: Polynomial, step: int) -> Polynomial | None:
    """The bound of i that is equivalent to `step * i < bound`, or `>= bound`; None if `step` does
    not divide a symbolic bound."""
    if step == 1:
        return bound
    if bound.constant is not None:
        return Polynomial.of(-(-bound.constant // step))
    quotient, rest = bound.divided_by(Term(step, ()))
    return None if rest else quotient

"""Decomposition of a mask into bounds along its axes, conditions, and a residual.

The mask is split into the conjuncts of `and`. A conjunct is

- a *bound* if it compares integers whose difference varies along one axis, with a constant stride:
  `begin + i < n` is the bound `i < n - begin` of the index `i` along that axis;
- a *condition* if it is uniform;
- *residual* otherwise: a comparison of two axes (causal masks), a loaded mask, `or`.

Tensor descriptors and block pointers check both bounds of an axis with one unsigned comparison,
`x < max(n, 0)`, which is interpreted as `0 <= x < n` with a signed x. Linear in the number of
conjuncts; the IR is not modified.
"""

from __future__ import annotations

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.affine_form import Affine, Axes, over_axes, sum_of
from tilewright.analysis.polynomial import Polynomial, Term
from tilewright.analysis.ranges import type_range
from tilewright.base.record import record, replace
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


@record(frozen=False)
class MaskBounds:
    """A decomposed mask; see the module docstring.

    Attributes:
        lower, upper: for each axis, the inclusive lower and exclusive upper bounds of the index of
            elements where the mask is true.
        conditions: i1 scalars, or uniform i1 tiles.
        residual: the conjuncts that are neither bounds nor conditions.
        never: whether the mask is false everywhere.
        assumed: integers that are assumed to be computed without wrapping.
        read_signed: unsigned integers that are assumed to equal signed ones of the same width.
    """

    lower: list[list[Polynomial]]
    upper: list[list[Polynomial]]
    conditions: tuple[Value, ...] = ()
    residual: tuple[Conjunct, ...] = ()
    never: bool = False
    assumed: tuple[Value, ...] = ()
    read_signed: tuple[Value, ...] = ()


def bounds_of(forms: AffineForms, mask: Value | None, rank: int) -> MaskBounds:
    """Decompose a mask of this rank.

    Args:
        forms: the affine forms of its function, with `through_scalars`.
        mask: the mask; None if it is true for all elements.
    """
    found = MaskBounds([[] for _ in range(rank)], [[] for _ in range(rank)])
    work = [Conjunct(mask, tuple(range(rank)))] if mask is not None else []
    seen: set[tuple[Value, Axes]] = set()
    while work:
        conjunct = work.pop()
        if (conjunct.value, conjunct.axes) in seen:
            continue
        seen.add((conjunct.value, conjunct.axes))
        parts = _parts(conjunct)
        if parts is None:
            _add_conjunct(found, forms, conjunct, rank)
        else:
            work += reversed(parts)
    return found


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
    if compared is not None and _compares_axis(found, forms, compared, conjunct.axes, rank):
        return
    if not isinstance(value.type, Tile) or not any(_varying(forms.of(value), conjunct.axes)):
        found.conditions += (value,)
    else:
        found.residual += (conjunct,)


def _compares_axis(
    found: MaskBounds, forms: AffineForms, compared: _Comparison, axes: Axes, rank: int
) -> bool:
    """Add a comparison if it is a bound. Returns whether it is."""
    x, y, predicate = compared
    own_axes = _inverse(axes, rank)
    if predicate == "gt" and not _is_signed(x):
        x, y, predicate = y, x, "lt"
    if predicate == "lt" and not _is_signed(x):
        limit = _limit_of_both_ends(forms, y)
        if limit is not None:
            index = forms.of(x)
            least, most = forms.bounds(index, shape_of(x.type))
            if not _fits_signed(least, most, x):
                found.read_signed = (*found.read_signed, x)
            above = over_axes(index, own_axes)
            below = over_axes(sum_of(index, limit, -1), own_axes)
            return _bound(found, below, "lt") and (least >= 0 or _bound(found, above, "ge"))
    difference = sum_of(forms.exactly(x), forms.exactly(y), -1)
    return _bound(found, over_axes(difference, own_axes), predicate)


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


def _bound(found: MaskBounds, difference: Affine, predicate: str) -> bool:
    """Add `difference <predicate> 0` if it is a bound. Returns whether it is."""
    varying = [axis for axis in range(len(difference.strides)) if difference.varies(axis)]
    if len(varying) != 1 or difference.pieces:
        return False
    (axis,) = varying
    step = difference.strides[axis].constant
    rest = -difference.start  # step * i <predicate> rest
    if step is None or predicate == "ne":
        return False
    below = {"lt": rest, "le": rest + 1, "eq": rest + 1}.get(predicate)
    least = {"ge": rest, "gt": rest + 1, "eq": rest}.get(predicate)
    if step < 0:  # -s*i < u is s*i >= 1 - u, and -s*i >= l is s*i < 1 - l
        step = -step
        below, least = (None if b is None else -b + 1 for b in (least, below))
    divided = [None if b is None else _divided(b, step) for b in (least, below)]
    if any(
        bound is not None and b is None for bound, b in zip((least, below), divided, strict=True)
    ):
        return False
    for known, bound in zip((found.lower[axis], found.upper[axis]), divided, strict=True):
        if bound is not None and bound not in known:
            known.append(bound)
    found.assumed = tuple(dict.fromkeys(found.assumed + difference.assumed))
    return True


def _divided(bound: Polynomial, step: int) -> Polynomial | None:
    """The bound of i that is equivalent to `step * i < bound`, or `>= bound`; None if `step` does
    not divide a symbolic bound."""
    if step == 1:
        return bound
    if bound.constant is not None:
        return Polynomial.of(-(-bound.constant // step))
    quotient, rest = bound.divided_by(Term(step, ()))
    return None if rest else quotient

"""A mask as bounds along its axes, conditions, and what is neither.

A mask is taken apart where `and` joins it. A conjunct is

- a *bound*, where it compares integers of which the difference changes along one axis, by a number:
  `begin + i < n` says `i < n - begin` of the place `i` along that axis;
- a *condition*, where it is the same for all elements;
- *residual* otherwise: a comparison of two axes (causal masks), a loaded mask, `or`.

Descriptors and block pointers check both ends of an axis in one comparison, `x < max(n, 0)` of
unsigned numbers; that is read as `0 <= x < n`, x signed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.affine_form import Affine, Axes, moved, sum_of
from tilewright.analysis.polynomial import Polynomial, Term
from tilewright.analysis.ranges import type_range
from tilewright.ir.core import Value
from tilewright.ir.index_map import Along
from tilewright.ir.types import Tile, dtype_of, element_of, is_int, shape_of
from tilewright.ops import arith
from tilewright.ops.view import View

_Comparison = tuple[Value, Value, str]
_INVERSE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A tile of i1 that is a part of a mask.

    Attributes:
        value: the tile.
        axes: for each of its axes that of the mask which runs along it; None for one of length 1.
    """

    value: Value
    axes: Axes


@dataclass(slots=True)
class MaskBounds:
    """What a mask says; see the module.

    Attributes:
        lower, upper: by axis; the place of an element that is touched is at least, or below, each.
        conditions: scalars of i1, or tiles of it of which all elements are equal.
        residual: the conjuncts that are neither.
        never: whether the mask is false everywhere.
        assumed: integers that bounds take to be what their sums and products give.
        read_signed: the same of unsigned ones, read as signed numbers of their width.
    """

    lower: list[list[Polynomial]]
    upper: list[list[Polynomial]]
    conditions: tuple[Value, ...] = ()
    residual: tuple[Conjunct, ...] = ()
    never: bool = False
    assumed: tuple[Value, ...] = ()
    read_signed: tuple[Value, ...] = ()


def bounds_of(forms: AffineForms, mask: Value | None, rank: int) -> MaskBounds:
    """What a mask of this rank says of the elements where it is true.

    Args:
        forms: those of its function, found through scalars.
        mask: None where all elements are touched.
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
            _take(found, forms, conjunct, rank)
        else:
            work += reversed(parts)
    return found


def _parts(conjunct: Conjunct) -> list[Conjunct] | None:
    """The conjuncts that one consists of; None where it is one itself."""
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


def _take(found: MaskBounds, forms: AffineForms, conjunct: Conjunct, rank: int) -> None:
    """Add a conjunct that is not taken apart."""
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
    """Add a comparison where it is a bound."""
    x, y, predicate = compared
    places = _inverse(axes, rank)
    if predicate == "gt" and not _is_signed(x):
        x, y, predicate = y, x, "lt"
    if predicate == "lt" and not _is_signed(x):
        limit = _limit_of_both_ends(forms, y)
        if limit is not None:
            index = forms.of(x)
            least, most = forms.bounds(index, shape_of(x.type))
            if not _fits_signed(least, most, x):
                found.read_signed = (*found.read_signed, x)
            above = moved(index, places)
            below = moved(sum_of(index, limit, -1), places)
            return _bound(found, below, "lt") and (least >= 0 or _bound(found, above, "ge"))
    difference = sum_of(forms.exactly(x), forms.exactly(y), -1)
    return _bound(found, moved(difference, places), predicate)


def _is_signed(value: Value) -> bool:
    return dtype_of(value.type).is_int_signed()


def _limit_of_both_ends(forms: AffineForms, limit: Value) -> Affine | None:
    """The limit n of an unsigned comparison `x < n` that means `0 <= x < n` of signed numbers, as
    n is below half of what the type holds; of `max(n, 0)`, n."""
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
    """For each axis of the mask that of the conjunct which runs along it."""
    return tuple(axes.index(a) if a in axes else None for a in range(rank))


def _varying(form: Affine, axes: Axes) -> list[bool]:
    return [form.varies(own) for own, axis in enumerate(axes) if axis is not None]


def _comparison(value: Value) -> _Comparison | None:
    """The integers that a conjunct compares, and how; through `not`."""
    op, inverted = value.op, False
    while isinstance(op, arith.Xor) and arith.constant_value(op.rhs) is True:
        op, inverted = op.lhs.op, not inverted
    if not isinstance(op, arith.Cmp) or not is_int(op.lhs.type):
        return None
    if element_of(op.lhs.type).is_bool():
        return None
    return op.lhs, op.rhs, _INVERSE[op.predicate] if inverted else op.predicate


def _bound(found: MaskBounds, difference: Affine, predicate: str) -> bool:
    """Add `difference <predicate> 0` where it is a bound."""
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
        given is not None and b is None for given, b in zip((least, below), divided, strict=True)
    ):
        return False
    for known, bound in zip((found.lower[axis], found.upper[axis]), divided, strict=True):
        if bound is not None and bound not in known:
            known.append(bound)
    found.assumed = tuple(dict.fromkeys(found.assumed + difference.assumed))
    return True


def _divided(bound: Polynomial, step: int) -> Polynomial | None:
    """`step * i < bound`, or `>= bound`, as a bound of i; None where `step` divides it not."""
    if step == 1:
        return bound
    if bound.constant is not None:
        return Polynomial.of(-(-bound.constant // step))
    quotient, rest = bound.divided_by(Term(step, ()))
    return None if rest else quotient

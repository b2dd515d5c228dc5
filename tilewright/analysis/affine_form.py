"""Affine forms of tiles as data: sums, products, and the effect of view ops.

`affine.py` computes the forms of values, and explains them. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tilewright.analysis.polynomial import ZERO, Polynomial
from tilewright.base.record import field, record, replace
from tilewright.ir.core import Value
from tilewright.ir.index_map import Along, Fixed, IndexMap, Part, Reversed, reshape_groups
from tilewright.ops import arith

MAX_TERMS = 16  # the maximum number of terms of a polynomial

Axes = tuple[int | None, ...]


@record
class Piece:
    """A non-affine term of an index: the result of an op.

    Attributes:
        value: the tile whose elements are the values of the term.
        axes: for each axis of `value`, the corresponding axis of the tile that the form describes;
            None if the elements of `value` are equal along it.
        index: if the value is `index % divisor`, `index // divisor` (rounded toward 0, as in C) or
            ``select(index < limit, index, other)`` with uniform `divisor`, `limit` and `other`: the
            exact form of the index, over the axes of `value`, under its `assumed`. Otherwise None.
        divisor, limit, other: likewise.
    """

    value: Value
    axes: Axes
    index: Affine | None = field(default=None, compare=False)
    divisor: Polynomial | None = field(default=None, compare=False)
    limit: Polynomial | None = field(default=None, compare=False)
    other: Polynomial | None = field(default=None, compare=False)

    @property
    def is_remainder(self) -> bool:
        return self.index is not None and isinstance(self.value.op, arith.Rem)


@record
class Affine:
    """An affine form, see `affine.py`.

    Attributes:
        start: the element at index 0 without the pieces; for pointers, in elements from `base`.
        strides: the stride along each axis, without the pieces.
        pieces: the non-affine terms with their coefficients.
        assumed: narrow tiles of integers that are assumed not to wrap.
        base: for pointers, the scalar pointer that they are offsets from; None for tiles of
            pointers of unknown origin, and for integers.
    """

    start: Polynomial
    strides: tuple[Polynomial, ...] = ()
    pieces: tuple[tuple[Polynomial, Piece], ...] = ()
    assumed: tuple[Value, ...] = ()
    base: Value | None = None

    @property
    def is_uniform(self) -> bool:
        """Whether all elements are equal, to `start`."""
        return not self.pieces and not any(self.strides)

    def varies(self, axis: int) -> bool:
        """Whether elements may differ along an axis."""
        return bool(self.strides[axis]) or any(axis in p.axes for _, p in self.pieces)

    def stride(self, axis: int) -> Polynomial | None:
        """The stride along an axis; None if it is not the same for all elements."""
        return None if any(axis in p.axes for _, p in self.pieces) else self.strides[axis]


def sum_of(a: Affine, b: Affine, sign: int = 1) -> Affine:
    """`a + sign * b`."""
    pieces = a.pieces
    if b.pieces:
        total: dict[Piece, Polynomial] = {p: c for c, p in pieces}
        for coefficient, piece in b.pieces:
            total[piece] = total.get(piece, ZERO) + coefficient * sign
        pieces = tuple((c, p) for p, c in total.items() if c)
    return Affine(
        a.start + b.start * sign,
        tuple([x + y * sign for x, y in zip(a.strides, b.strides, strict=True)]),
        pieces,
        _union(a.assumed, b.assumed),
        a.base,
    )


def _union(some: tuple[Value, ...], more: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(dict.fromkeys(some + more)) if some and more else some or more


def product_of(a: Affine, b: Affine) -> Affine | None:
    """`a * b`; None unless one of the two is uniform and the result has at most `MAX_TERMS`
    terms."""
    if not b.is_uniform:
        a, b = b, a
    if not b.is_uniform or len(a.start) * len(b.start) > MAX_TERMS:
        return None
    factor = b.start
    return Affine(
        a.start * factor,
        tuple([s * factor for s in a.strides]),
        tuple([(c * factor, p) for c, p in a.pieces]) if factor else (),
        _union(a.assumed, b.assumed),
    )


def over_axes(form: Affine, axes: Axes) -> Affine:
    """The form over other axes: axis i of the result is axis `axes[i]` of this form; a new axis, or
    one along which elements are equal, if None."""
    position: list[int | None] = [None] * len(form.strides)
    for new, old in enumerate(axes):
        if old is not None:
            position[old] = new
    return replace(
        form,
        strides=tuple(ZERO if old is None else form.strides[old] for old in axes),
        pieces=_pieces_along(form.pieces, position),
    )


def viewed(form: Affine, index: IndexMap) -> Affine | None:
    """The form of the result of a view op with an index map, given that of its operand; None if it
    is not affine."""
    if any(isinstance(term, Part) for term in index.axes):
        return _reshaped(form, index.source, index.target)
    start = form.start
    strides = [ZERO] * len(index.target)
    position: list[int | None] = []
    for own, (term, extent) in enumerate(zip(index.axes, index.source, strict=True)):
        stride = form.strides[own]
        position.append(None)
        if isinstance(term, Along):
            position[own] = term.axis
            strides[term.axis] = stride
        elif extent == 1:
            continue
        elif form.stride(own) is None:
            return None
        elif isinstance(term, Reversed):
            start = start + stride * (extent - 1)
            strides[term.axis] = -stride
        elif isinstance(term, Fixed):
            start = start + stride * term.index
        else:
            return None
    return replace(
        form, start=start, strides=tuple(strides), pieces=_pieces_along(form.pieces, position)
    )


def _pieces_along(
    pieces: Sequence[tuple[Polynomial, Piece]], position: Sequence[int | None]
) -> tuple[tuple[Polynomial, Piece], ...]:
    """The pieces with axis i renamed to `position[i]`."""
    if not pieces:
        return ()
    return tuple(
        (c, replace(p, axes=tuple(None if a is None else position[a] for a in p.axes)))
        for c, p in pieces
    )


def _reshaped(form: Affine, source: Sequence[int], to: Sequence[int]) -> Affine | None:
    """The form of a reshape from `source` to `to`. Axes can be split; they can be merged only if
    their strides are those of one row-major axis."""
    strides = [ZERO] * len(to)
    position: list[int | None] = [None] * len(source)
    for old, new in reshape_groups(tuple(source), tuple(to)):
        if len(old) == len(new) == 1:
            position[old[0]] = new[0]
        elif any(form.stride(axis) is None for axis in old):
            return None
        for outer, inner in pairwise(old):
            if form.strides[outer] != form.strides[inner] * source[inner]:
                return None
        step = form.strides[old[-1]]
        for axis in reversed(new):
            strides[axis] = step
            step = step * to[axis]
    return replace(form, strides=tuple(strides), pieces=_pieces_along(form.pieces, position))

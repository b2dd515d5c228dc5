"""The affine form of a tile as data, its sums and products, and what changes of shape do to it.

See `affine.py`, which finds the forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tilewright.analysis.polynomial import ZERO, Polynomial
from tilewright.ir.core import Value
from tilewright.ir.index_map import Along, Fixed, IndexMap, Part, Reversed, reshape_groups
from tilewright.ops import arith

MAX_TERMS = 16  # of a polynomial

Axes = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an index that is not affine: the result of an op.

    Attributes:
        value: the tile of which it takes the elements.
        axes: for each axis of `value` the axis of the present tile that runs along it; None where
            the elements of `value` are equal along it.
        dividend: where the value is `dividend % divisor` or `dividend // divisor` (C's, which round
            toward 0) with a divisor that is the same for all elements: the form of the dividend,
            over the axes of `value`; it holds as an integer where its `assumed` do.
        divisor: see there.
    """

    value: Value
    axes: Axes
    dividend: Affine | None = field(default=None, compare=False)
    divisor: Polynomial | None = field(default=None, compare=False)

    @property
    def is_remainder(self) -> bool:
        return self.dividend is not None and isinstance(self.value.op, arith.Rem)


@dataclass(frozen=True, slots=True)
class Affine:
    """See the module's documentation.

    Attributes:
        start: the element at the origin, less the pieces; of pointers in elements from `base`.
        strides: by axis, from one element to the next, less the pieces.
        pieces: what is not affine, and its coefficient.
        assumed: narrow tiles of integers whose elements are taken to be what their forms give.
        base: of pointers, the scalar that they are offsets from; None for tiles of pointers of
            which nothing is known, and for integers.
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
        """Whether neighbours along an axis may differ."""
        return bool(self.strides[axis]) or any(axis in p.axes for _, p in self.pieces)

    def stride(self, axis: int) -> Polynomial | None:
        """The difference of neighbours along an axis; None where it is not the same everywhere."""
        return None if any(axis in p.axes for _, p in self.pieces) else self.strides[axis]


def sum_of(a: Affine, b: Affine, sign: int = 1) -> Affine:
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
    """None unless one of the two is the same for all elements, and the sum stays small."""
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


def moved(form: Affine, axes: Axes) -> Affine:
    """The form of a tile whose axis i runs along axis `axes[i]` of this one; None for a new axis,
    or one along which nothing changes."""
    place: list[int | None] = [None] * len(form.strides)
    for new, old in enumerate(axes):
        if old is not None:
            place[old] = new
    return replace(
        form,
        strides=tuple(ZERO if old is None else form.strides[old] for old in axes),
        pieces=_pieces_along(form.pieces, place),
    )


def viewed(form: Affine, index: IndexMap) -> Affine | None:
    """The form of a tile made of the elements of this one at the places of an index map; None where
    it is not affine."""
    if any(isinstance(term, Part) for term in index.axes):
        return _reshaped(form, index.source, index.target)
    start = form.start
    strides = [ZERO] * len(index.target)
    place: list[int | None] = []
    for own, (term, extent) in enumerate(zip(index.axes, index.source, strict=True)):
        stride = form.strides[own]
        place.append(None)
        if isinstance(term, Along):
            place[own] = term.axis
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
        form, start=start, strides=tuple(strides), pieces=_pieces_along(form.pieces, place)
    )


def _pieces_along(
    pieces: Sequence[tuple[Polynomial, Piece]], place: Sequence[int | None]
) -> tuple[tuple[Polynomial, Piece], ...]:
    """The pieces where axis i runs along axis `place[i]` of another tile."""
    if not pieces:
        return ()
    return tuple(
        (c, replace(p, axes=tuple(None if a is None else place[a] for a in p.axes)))
        for c, p in pieces
    )


def _reshaped(form: Affine, source: Sequence[int], to: Sequence[int]) -> Affine | None:
    """The form of a tile of shape `source` as one of shape `to`, in row-major order: an axis is
    split, and axes are merged along which neighbours differ by one and the same number."""
    strides = [ZERO] * len(to)
    place: list[int | None] = [None] * len(source)
    for old, new in reshape_groups(tuple(source), tuple(to)):
        if len(old) == len(new) == 1:
            place[old[0]] = new[0]
        elif any(form.stride(axis) is None for axis in old):
            return None
        for outer, inner in pairwise(old):
            if form.strides[outer] != form.strides[inner] * source[inner]:
                return None
        step = form.strides[old[-1]]
        for axis in reversed(new):
            strides[axis] = step
            step = step * to[axis]
    return replace(form, strides=tuple(strides), pieces=_pieces_along(form.pieces, place))

"""The affine form of a tile as data, its sums and products, and what changes of shape do to it.

See `affine.py`, which finds the forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tilewright.analysis.polynomial import ZERO, Polynomial
from tilewright.ir.core import Value
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
    pieces: dict[Piece, Polynomial] = {p: c for c, p in a.pieces}
    for coefficient, piece in b.pieces:
        pieces[piece] = pieces.get(piece, ZERO) + coefficient * sign
    return Affine(
        a.start + b.start * sign,
        tuple(x + y * sign for x, y in zip(a.strides, b.strides, strict=True)),
        tuple((c, p) for p, c in pieces.items() if c),
        tuple(dict.fromkeys(a.assumed + b.assumed)),
        a.base,
    )


def product_of(a: Affine, b: Affine) -> Affine | None:
    """None unless one of the two is the same for all elements, and the sum stays small."""
    if not b.is_uniform:
        a, b = b, a
    if not b.is_uniform or len(a.start) * len(b.start) > MAX_TERMS:
        return None
    factor = b.start
    return Affine(
        a.start * factor,
        tuple(s * factor for s in a.strides),
        tuple((c * factor, p) for c, p in a.pieces) if factor else (),
        tuple(dict.fromkeys(a.assumed + b.assumed)),
    )


def moved(form: Affine, axes: Axes) -> Affine:
    """The form of a tile whose axis i runs along axis `axes[i]` of this one; None for a new axis,
    or one along which nothing changes."""
    place = {old: new for new, old in enumerate(axes) if old is not None}
    return replace(
        form,
        strides=tuple(ZERO if old is None else form.strides[old] for old in axes),
        pieces=tuple(
            (c, replace(p, axes=tuple(None if a is None else place.get(a) for a in p.axes)))
            for c, p in form.pieces
        ),
    )


def reshaped(form: Affine, source: Sequence[int], to: Sequence[int]) -> Affine | None:
    """The form of a tile of shape `source` as one of shape `to`, in row-major order: an axis is
    split, and axes are merged along which neighbours differ by one and the same number. None
    where that is not so."""
    if not source:
        return replace(form, strides=(ZERO,) * len(to))
    strides: list[Polynomial] = []
    place: dict[int, int] = {}
    for old, new in _factor_groups(source, to):
        longer_old = [a for a in old if source[a] > 1]
        longer_new = [a for a in new if to[a] > 1]
        if len(longer_old) == len(longer_new) == 1:
            place[longer_old[0]] = longer_new[0]
        elif any(form.stride(a) is None for a in longer_old):
            return None
        step = _one_step(form, source, longer_old)
        if step is None:
            return None
        inner: list[Polynomial] = []
        for axis in reversed(new):
            inner.append(step if to[axis] > 1 else ZERO)
            step = step * to[axis]
        strides += reversed(inner)
    pieces = tuple(
        (c, replace(p, axes=tuple(None if a is None else place.get(a) for a in p.axes)))
        for c, p in form.pieces
    )
    return replace(form, strides=tuple(strides), pieces=pieces)


def _one_step(form: Affine, lengths: Sequence[int], axes: Sequence[int]) -> Polynomial | None:
    """By how much neighbours in row-major order differ; None where that is not the same for all."""
    if not axes:
        return ZERO
    for outer, inner in pairwise(axes):
        if form.strides[outer] != form.strides[inner] * lengths[inner]:
            return None
    return form.strides[axes[-1]]


def _factor_groups(source: Sequence[int], to: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The axes of two shapes of one size, in the shortest runs of equal products."""
    groups: list[tuple[list[int], list[int]]] = []
    old = new = 0
    while old < len(source) or new < len(to):
        group: tuple[list[int], list[int]] = ([], [])
        left = right = 1
        while not (group[0] and group[1]) or left != right:
            if (left <= right or new == len(to)) and old < len(source):
                left *= source[old]
                group[0].append(old)
                old += 1
            elif new < len(to):
                right *= to[new]
                group[1].append(new)
                new += 1
            else:
                break
        groups.append(group)
    return groups

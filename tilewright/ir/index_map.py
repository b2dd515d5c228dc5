"""Index maps: the correspondence between the axes of an op's operands and those of its results.

An index map takes the index of an element of a result to the index of the element of one operand
that it depends on, like the indexing maps of MLIR's linalg ops. An op declares its maps once, in
`Op.index_maps`; analyses, layout propagation and code generation use them. For an operand of shape
4x1 that is broadcast to 4x8,

    IndexMap(source=(4, 1), target=(4, 8), axes=(Along(0), Fixed(0)))

maps the element (i, j) of the result to the element (i, 0) of the operand. There is one term for
each axis of the **operand**, in coordinates of the result:

| term | the coordinate along this axis of the operand is |
|---|---|
| `Along(axis)` | the result's coordinate along `axis` |
| `Fixed(index)` | `index` |
| `Reversed(axis)` | the result's coordinate along `axis`, counted from the other end |
| `Shifted(axis, by)` | the result's coordinate along `axis`, plus `by` |
| `Part(axes, divisor, extent)` | `position // divisor % extent`, of the position over `axes` |
| `Picked(operand)` | the element of another operand, an integer, clamped to the axis |
| `Every()` | unknown, or several: as along the axis of a reduction |

Positions are row-major: in a 4x8 tile, the position of (i, j) over the axes (0, 1) is 8 i + j.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, dataclass_transform

from tilewright.base.record import record

Shape = tuple[int, ...]


if TYPE_CHECKING:

    @dataclass_transform(frozen_default=True)
    class _Term:
        """Base class of the terms: immutable, and equal to terms of the same class and fields."""

else:
    # A tuple of the class and the fields. Terms are part of cache keys, and the hash of a tuple
    # takes half the time of a dataclass's. Seven dataclasses would add 2 ms to every import.
    class _Term(tuple):
        __slots__ = ()

        def __init_subclass__(cls) -> None:
            cls.__match_args__ = tuple(cls.__annotations__)
            for place, name in enumerate(cls.__match_args__, 1):
                setattr(cls, name, property(itemgetter(place)))

        def __new__(cls, *fields: object) -> _Term:
            assert len(fields) == len(cls.__match_args__), cls.__name__
            return tuple.__new__(cls, (cls, *fields))

        def __getnewargs__(self) -> tuple[object, ...]:
            return self[1:]

        def __repr__(self) -> str:
            return f"{type(self).__name__}{tuple(self[1:])}".replace(",)", ")")


class Along(_Term):
    axis: int


class Fixed(_Term):
    index: int


class Reversed(_Term):
    axis: int


class Shifted(_Term):
    axis: int
    by: int


class Part(_Term):
    axes: tuple[int, ...]
    divisor: int
    extent: int


class Picked(_Term):
    operand: int


class Every(_Term):
    pass


Term = Along | Fixed | Reversed | Shifted | Part | Picked | Every


@record
class IndexMap:
    """A map from indices of a result to indices of an operand; see the module docstring.

    Attributes:
        source: the shape of the operand.
        target: the shape of the result.
        axes: a term for each axis of the operand.
        domain: for each axis of the result, the indices at which the result depends on this
            operand; None for all. For `join`, the domains of the two operands are disjoint.
    """

    source: Shape
    target: Shape
    axes: tuple[Term, ...]
    domain: tuple[range, ...] | None = None

    @property
    def single(self) -> bool:
        """Whether each element of the result depends on one element of the operand, whose index is
        known at compile time."""
        return not any(isinstance(term, Every | Picked) for term in self.axes)

    @property
    def aligned(self) -> bool:
        """Whether axes are only permuted, inserted and broadcast: each axis of the operand is an
        axis of the result, or has length 1."""
        return self.domain is None and all(
            isinstance(term, Along) or term == Fixed(0) for term in self.axes
        )

    def at(self, index: Sequence[int]) -> tuple[int | None, ...] | None:
        """The index of the operand's element for the element of the result at `index`. An item is
        None along an axis where the coordinate is data-dependent or not unique. Returns None if
        `index` is outside the domain.

            broadcast((4, 1), (4, 8)).at((2, 5))    # (2, 0)
        """
        if self.domain and not all(i in d for i, d in zip(index, self.domain, strict=True)):
            return None
        return tuple(self._coordinate(term, index) for term in self.axes)

    def _coordinate(self, term: Term, index: Sequence[int]) -> int | None:
        match term:
            case Along(axis):
                return index[axis]
            case Fixed(position):
                return position
            case Reversed(axis):
                return self.target[axis] - 1 - index[axis]
            case Shifted(axis, by):
                return index[axis] + by
            case Part(axes, divisor, extent):
                position = 0
                for axis in axes:
                    position = position * self.target[axis] + index[axis]
                return position // divisor % extent
            case Picked() | Every():
                return None

    def moved_by(self, own: int) -> int | None:
        """The axis of the result along which elements that are adjacent along an axis of the
        operand are nearest; None if there is none.

            reshape((4, 8), (2, 16)).moved_by(0)    # 1: rows are halves of a row
        """
        match self.axes[own]:
            case Along(axis) | Reversed(axis) | Shifted(axis, _):
                return axis
            case Part(axes, divisor, _):
                stride = 1
                for axis in reversed(axes):
                    stride *= self.target[axis]
                    if divisor < stride:
                        return axis
                return None
            case _:
                return None

    def inverse(self) -> IndexMap:
        """The map from indices of the operand to indices of the result: one term for each axis of
        the result, in coordinates of the operand. It is `Every` along an axis where an element of
        the operand may have several indices in the result, as along a broadcast axis."""
        return _inverse(self)


@lru_cache(4096)
def _inverse(forward: IndexMap) -> IndexMap:
    if any(isinstance(term, Part) for term in forward.axes):  # only reshapes have such terms
        return reshaped(forward.target, forward.source)
    axes: list[Term] = [Fixed(0) if extent == 1 else Every() for extent in forward.target]
    for axis, indices in enumerate(forward.domain or ()):
        if len(indices) == 1:
            axes[axis] = Fixed(indices[0])
    domain = [range(extent) for extent in forward.source]
    for own, term in enumerate(forward.axes):
        match term:
            case Along(axis):
                axes[axis] = Along(own)
            case Reversed(axis):
                axes[axis] = Reversed(own)
            case Shifted(axis, by):
                axes[axis] = Shifted(own, -by)
            case Fixed(index):
                domain[own] = range(index, index + 1)
            case _:
                pass
    whole = all(len(d) == extent for d, extent in zip(domain, forward.source, strict=True))
    return IndexMap(forward.target, forward.source, tuple(axes), None if whole else tuple(domain))


# -- the maps of common ops -----------------------------------------------------------------------


@lru_cache(4096)
def identity(shape: Shape) -> IndexMap:
    """Each element depends on the one at the same index."""
    return IndexMap(shape, shape, tuple(Along(axis) for axis in range(len(shape))))


@lru_cache(4096)
def replaced(shape: Shape, axis: int, term: Term) -> IndexMap:
    """The identity, except for the term of one axis."""
    axes = identity(shape).axes
    return IndexMap(shape, shape, (*axes[:axis], term, *axes[axis + 1 :]))


@lru_cache(4096)
def with_new_axis(shape: Shape, axis: int, extent: int, index: int | None = None) -> IndexMap:
    """The result has an additional axis of length `extent` at position `axis`. The operand supplies
    its elements at `index` along it; at all indices if None."""
    target = (*shape[:axis], extent, *shape[axis:])
    axes = tuple(Along(own + (own >= axis)) for own in range(len(shape)))
    if index is None:
        return IndexMap(shape, target, axes)
    domain = [range(n) for n in target]
    domain[axis] = range(index, index + 1)
    return IndexMap(shape, target, axes, tuple(domain))


@lru_cache(4096)
def without_axis(shape: Shape, axis: int, term: Term) -> IndexMap:
    """The result lacks the operand's axis `axis`; the operand's coordinate along it is `term`."""
    axes: list[Term] = [Along(own - (own > axis)) for own in range(len(shape))]
    axes[axis] = term
    return IndexMap(shape, (*shape[:axis], *shape[axis + 1 :]), tuple(axes))


@lru_cache(4096)
def broadcast(shape: Shape, to: Shape) -> IndexMap:
    """Axes of length 1 are broadcast; a scalar is broadcast to any shape."""
    if not shape:
        return IndexMap(shape, to, ())
    pairs = enumerate(zip(shape, to, strict=True))
    axes = tuple(Along(axis) if n == m else Fixed(0) for axis, (n, m) in pairs)
    return IndexMap(shape, to, axes)


@lru_cache(4096)
def permuted(shape: Shape, order: tuple[int, ...]) -> IndexMap:
    """Axis i of the result is axis `order[i]` of the operand."""
    axes = tuple(Along(order.index(own)) for own in range(len(shape)))
    return IndexMap(shape, tuple(shape[axis] for axis in order), axes)


@lru_cache(4096)
def concatenated(shape: Shape, axis: int, start: int, length: int) -> IndexMap:
    """The operand of a concatenation that starts at index `start` of the result's axis, whose
    extent is `length`."""
    domain = [range(n) for n in shape]
    domain[axis] = range(start, start + shape[axis])
    target = (*shape[:axis], length, *shape[axis + 1 :])
    axes = replaced(shape, axis, Shifted(axis, -start)).axes if start else identity(shape).axes
    return IndexMap(shape, target, axes, tuple(domain))


@lru_cache(4096)
def reshaped(shape: Shape, to: Shape) -> IndexMap:
    """A reshape, which preserves the row-major order of elements.

    The map is built separately for each of the `reshape_groups`: an axis that is a group of its own
    is `Along`; the terms of others are over as few axes as possible.

        reshaped((4, 8), (32,)).axes        # Part((0,), 8, 4), Part((0,), 1, 8)
        reshaped((32, 3), (4, 8, 3)).axes   # Part((0, 1), 1, 32), Along(2)
    """
    axes: list[Term] = [Fixed(0)] * len(shape)
    for sources, targets in reshape_groups(shape, to):
        inner = prod(shape[axis] for axis in sources)
        for axis in sources:
            inner //= shape[axis]
            axes[axis] = _part(to, targets, inner, shape[axis])
    return IndexMap(shape, to, tuple(axes))


def _part(to: Shape, axes: tuple[int, ...], divisor: int, extent: int) -> Term:
    """The term `position // divisor % extent` over `axes`, reduced to the fewest axes."""
    while divisor % to[axes[-1]] == 0:
        divisor //= to[axes[-1]]
        axes = axes[:-1]
    while prod(to[axis] for axis in axes[1:]) % (divisor * extent) == 0:
        axes = axes[1:]
    if len(axes) == 1 and divisor == 1 and extent == to[axes[0]]:
        return Along(axes[0])
    return Part(axes, divisor, extent)


def reshape_groups(shape: Shape, to: Shape) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The axes of a reshape's operand and result, split into the smallest groups with equal numbers
    of elements, outermost first. Axes of length 1 are in no group.

        list(reshape_groups((4, 8, 3), (32, 1, 3)))     # ((0, 1), (0,)), ((2,), (2,))
    """
    left = [axis for axis, n in enumerate(shape) if n != 1]
    right = [axis for axis, n in enumerate(to) if n != 1]
    while left or right:
        sources, targets = [left.pop(0)], [right.pop(0)]
        one, other = shape[sources[0]], to[targets[0]]
        while one != other:
            if one < other:
                sources.append(left.pop(0))
                one *= shape[sources[-1]]
            else:
                targets.append(right.pop(0))
                other *= to[targets[-1]]
        yield tuple(sources), tuple(targets)


@lru_cache(4096)
def packed(shape: Shape, pack: int) -> IndexMap:
    """Each element depends on the aligned group of `pack` consecutive elements, in row-major order,
    that contains it."""
    if pack == 1:
        return identity(shape)
    if shape and shape[-1] % pack == 0:
        return replaced(shape, len(shape) - 1, Every())
    return mixed(shape, shape)


@lru_cache(4096)
def mixed(shape: Shape, to: Shape) -> IndexMap:
    """Each element may depend on all elements of the operand."""
    return IndexMap(shape, to, (Every(),) * len(shape))

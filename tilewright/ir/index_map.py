"""Which element of an operand an element of a result is made of: how axes pass through an op.

An op declares it once, in `Op.index_maps`; analyses, layouts and code generation all read that. Of
an operand of shape 4x1 that is broadcast to 4x8,

    IndexMap(source=(4, 1), target=(4, 8), axes=(Along(0), Fixed(0)))

says that the element of the result at (i, j) is made of the operand's element at (i, 0). It has one
term for each axis of the **operand**, in coordinates of the result:

| term | the coordinate along this axis of the operand is |
|---|---|
| `Along(axis)` | the result's coordinate along `axis` |
| `Fixed(index)` | `index` |
| `Reversed(axis)` | the result's coordinate along `axis`, counted from the other end |
| `Shifted(axis, by)` | the result's coordinate along `axis`, plus `by` |
| `Part(axes, divisor, extent)` | `position // divisor % extent` of the position along `axes` |
| `Picked(operand)` | the element of another operand, an integer, clamped to the axis |
| `Every()` | any: elements at several indices may take part, as in a reduction |

A position along axes is row-major: of a 4x8 tile, (i, j) is at 8 i + j along (0, 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Along:
    axis: int


@dataclass(frozen=True, slots=True)
class Fixed:
    index: int


@dataclass(frozen=True, slots=True)
class Reversed:
    axis: int


@dataclass(frozen=True, slots=True)
class Shifted:
    axis: int
    by: int


@dataclass(frozen=True, slots=True)
class Part:
    axes: tuple[int, ...]
    divisor: int
    extent: int


@dataclass(frozen=True, slots=True)
class Picked:
    operand: int


@dataclass(frozen=True, slots=True)
class Every:
    pass


Term = Along | Fixed | Reversed | Shifted | Part | Picked | Every


@dataclass(frozen=True, slots=True)
class IndexMap:
    """See the module's documentation.

    Attributes:
        source: the shape of the operand.
        target: the shape of the result.
        axes: a term for each axis of the operand.
        domain: for each axis of the result, the indices at which it is made of this operand; None
            for all. Of two tiles that are joined each has its half.
    """

    source: Shape
    target: Shape
    axes: tuple[Term, ...]
    domain: tuple[range, ...] | None = None

    @property
    def single(self) -> bool:
        """Whether an element of the result is made of one element of the operand, known now."""
        return not any(isinstance(term, Every | Picked) for term in self.axes)

    @property
    def aligned(self) -> bool:
        """Whether axes are only reordered, inserted and repeated: each axis of the operand is one
        of the result, or has length 1."""
        return self.domain is None and all(
            isinstance(term, Along) or term == Fixed(0) for term in self.axes
        )

    def at(self, index: Sequence[int]) -> tuple[int | None, ...] | None:
        """The operand's coordinates for an element of the result; None along an axis where they
        depend on numbers or are several. None if it is not made of this operand.

            broadcast((4, 1), (4, 8)).at((2, 5))    # (2, 0)
        """
        if self.domain and not all(i in d for i, d in zip(index, self.domain, strict=True)):
            return None
        return tuple(self._coordinate(term, index) for term in self.axes)

    def _coordinate(self, term: Term, index: Sequence[int]) -> int | None:
        match term:
            case Along(axis):
                return index[axis]
            case Fixed(place):
                return place
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

    def inverse(self) -> IndexMap:
        """The same from the other side: for each axis of the result, in coordinates of the operand,
        where an element of the operand goes. `Every` stands for an axis along which it may go to
        several places, as it does where it is broadcast."""
        return _inverse(self)


@lru_cache(4096)
def _inverse(given: IndexMap) -> IndexMap:
    if any(isinstance(term, Part) for term in given.axes):
        return reshaped(given.target, given.source)
    axes: list[Term] = [Fixed(0) if extent == 1 else Every() for extent in given.target]
    for axis, indices in enumerate(given.domain or ()):
        if len(indices) == 1:
            axes[axis] = Fixed(indices[0])
    domain = [range(extent) for extent in given.source]
    for own, term in enumerate(given.axes):
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
    whole = all(len(d) == extent for d, extent in zip(domain, given.source, strict=True))
    return IndexMap(given.target, given.source, tuple(axes), None if whole else tuple(domain))


# -- the maps of common ops -----------------------------------------------------------------------


@lru_cache(4096)
def identity(shape: Shape) -> IndexMap:
    """Each element is made of the one at the same place."""
    return IndexMap(shape, shape, tuple(Along(axis) for axis in range(len(shape))))


@lru_cache(4096)
def replaced(shape: Shape, axis: int, term: Term) -> IndexMap:
    """Each element is made of the one at the same place, but for what a term says of one axis."""
    axes = identity(shape).axes
    return IndexMap(shape, shape, (*axes[:axis], term, *axes[axis + 1 :]))


@lru_cache(4096)
def with_new_axis(shape: Shape, axis: int, extent: int, index: int | None = None) -> IndexMap:
    """The result has one more axis, at position `axis`; at one index along it, or at all."""
    target = (*shape[:axis], extent, *shape[axis:])
    axes = tuple(Along(own + (own >= axis)) for own in range(len(shape)))
    if index is None:
        return IndexMap(shape, target, axes)
    domain = [range(n) for n in target]
    domain[axis] = range(index, index + 1)
    return IndexMap(shape, target, axes, tuple(domain))


@lru_cache(4096)
def without_axis(shape: Shape, axis: int, term: Term) -> IndexMap:
    """The result lacks an axis of the operand, of which a term says what takes part."""
    axes: list[Term] = [Along(own - (own > axis)) for own in range(len(shape))]
    axes[axis] = term
    return IndexMap(shape, (*shape[:axis], *shape[axis + 1 :]), tuple(axes))


@lru_cache(4096)
def broadcast(shape: Shape, to: Shape) -> IndexMap:
    """Axes of length 1 are repeated; a scalar is along all axes."""
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
    """The operand is from `start` on along an axis of the result that is `length` long."""
    domain = [range(n) for n in shape]
    domain[axis] = range(start, start + shape[axis])
    target = (*shape[:axis], length, *shape[axis + 1 :])
    axes = replaced(shape, axis, Shifted(axis, -start)).axes if start else identity(shape).axes
    return IndexMap(shape, target, axes, tuple(domain))


@lru_cache(4096)
def reshaped(shape: Shape, to: Shape) -> IndexMap:
    """The same elements in row-major order under another shape.

    Axes that keep their extent between the same neighbours are `Along`; others are parts of
    positions along as few axes as possible: each group of `reshape_groups` is apart.

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
    """`position // divisor % extent` of the position along as few of these axes as will do."""
    while divisor % to[axes[-1]] == 0:
        divisor //= to[axes[-1]]
        axes = axes[:-1]
    while prod(to[axis] for axis in axes[1:]) % (divisor * extent) == 0:
        axes = axes[1:]
    if len(axes) == 1 and divisor == 1 and extent == to[axes[0]]:
        return Along(axes[0])
    return Part(axes, divisor, extent)


def reshape_groups(shape: Shape, to: Shape) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The axes of both sides of a reshape in the smallest groups of equal products, first axes
    first. Axes of length 1 are in none.

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
    """Each element is made of the `pack` around it that follow one another in row-major order."""
    if pack == 1:
        return identity(shape)
    if shape and shape[-1] % pack == 0:
        return replaced(shape, len(shape) - 1, Every())
    return mixed(shape, shape)


@lru_cache(4096)
def mixed(shape: Shape, to: Shape) -> IndexMap:
    """Each element may be made of all."""
    return IndexMap(shape, to, (Every(),) * len(shape))

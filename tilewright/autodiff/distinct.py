"""Whether accesses of one array touch each of its elements at most once in a launch.

This is required for storing a gradient: if two programs, iterations, lanes or loads access the same
element, the later store overwrites the earlier one. Likewise, each element of a result must be
stored once.

The proof is for the integer arguments of one launch. By its block (`analysis/blocks`), an access
has the addresses

    offset + sum of stride[d] * index[d],     low[d] <= index[d] < high[d]

where `low` and `high` depend on the *point*: the program, and the iterations of loops around the
access. They are computed for all points. Then two facts are sufficient, and both are checked:

1. Different indices have different addresses: sorted by stride, each stride is larger than the
   greatest sum of all smaller terms, over the whole launch (a mixed-radix number); if necessary,
   after multiples of a larger stride in the begin of an axis are carried to the axis with that
   stride. An axis with a single index in the whole launch, such as a dimension of length 1, adds
   the same amount to all addresses.
2. The boxes of two points are disjoint: along each axis, the intervals either have the same begin
   or are disjoint, and no two points have the same begin along all axes.

Accesses that differ by a constant distance are considered together: the distance is a further
index. Masks that are bounds shrink the boxes; other masks are ignored, which is conservative.
Other accesses are not proven distinct, with a reason: an index that is loaded or selected, or taken
modulo a number that it reaches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import gcd, prod

import numpy as np

from tilewright.analysis.affine_form import Affine, Piece
from tilewright.analysis.blocks import Access as BlockAccess
from tilewright.analysis.blocks import Block, BlockAxis, BlockFinder, NoBlock
from tilewright.analysis.overlap import Overlap, overlap
from tilewright.analysis.ranges import type_range
from tilewright.autodiff.coordinates import linear
from tilewright.autodiff.exclusive import exclusive_at
from tilewright.autodiff.points import MAX_NUMBER, Array, Points, UnknownNumber, joined
from tilewright.base.located import line_of
from tilewright.base.record import record
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import shape_of
from tilewright.ops.control import For


@record
class Verdict:
    """The answer for one array.

    Attributes:
        distinct: whether it is proven that no element is accessed twice.
        private: whether it is proven that no element is accessed by two programs, nor by two lanes
            of an access. Iterations and accesses of one program may have the same elements.
        shared: whether it is known, but for masks, that several programs access an element.
        reason: why it is not, as a clause; "" if it is.
        at: the access that the reason is about.
        elements: how many elements are accessed, if that is known.
    """

    distinct: bool
    private: bool = False
    shared: bool = False
    reason: str = ""
    at: Op | None = None
    elements: int | None = None


@record(frozen=False)
class _Boxes:
    """The boxes of one access: by stride the low and high end of the index at each point."""

    axes: dict[int, tuple[Array, Array]]
    offset: int
    program: Array  # of each point
    exact: bool  # whether only bounds exclude elements


class NotProven(Exception):
    """Something that is not proven. The argument is the reason."""


class SharedElements(NotProven):
    """Several programs access an element, unless masks that are not bounds prevent it."""


def distinct(
    fn: Function, accesses: Sequence[BlockAccess], points: Points, finder: BlockFinder | None = None
) -> Verdict:
    """Whether the accesses, of one array, touch no element twice in a launch.

    Args:
        fn: the kernel.
        points: the programs of the launch.
        finder: keeps what it finds about `fn` for further calls.
    """
    finder = finder or BlockFinder()
    at: Op | None = None
    try:
        alternatives: list[_Alternatives] = []
        for at in accesses:
            block = _block(at, finder)
            if block is not None and not _joins(fn, block, alternatives, points):
                alternatives.append(_Alternatives([block], block.op))
        found = [_boxes_of(known, points, finder) for known in alternatives]
        return _verdict(found, at)
    except UnknownNumber as error:
        return _unproven(f"an index is not known before the launch: {error}", at)
    except NotProven as error:
        return _unproven(str(error), at, isinstance(error, SharedElements))


def _unproven(reason: str, at: Op | None, shared: bool = False) -> Verdict:
    return Verdict(False, shared=shared, reason=reason, at=at)


def lanes_are_distinct(
    accesses: Sequence[BlockAccess], points: Points, finder: BlockFinder
) -> bool:
    """Whether the lanes of each access have distinct elements, regardless of other accesses and
    other programs."""
    try:
        for op in accesses:
            block = _block(op, finder)
            if block is None:
                continue
            axes = _boxes(block, points, finder).axes
            lanes = {s: high - low for s, (low, high) in axes.items() if np.any(high - low > 1)}
            _require_mixed_radix({s: (0 * length, length) for s, length in lanes.items()})
    except (UnknownNumber, NotProven):
        return False
    return True


def turns_are_ordered(
    loops: Sequence[For], accesses: Sequence[BlockAccess], points: Points, finder: BlockFinder
) -> bool:
    """Whether all elements that one turn accesses come before those of any other turn, or after
    them. A turn is a program, or in it an iteration of each of some loops. A scalar index that is
    not known is anywhere within its bounds.

    Args:
        accesses: ops in these loops, at any depth.
    """
    turns: list[tuple[Array, ...]] = []
    lows: list[Array] = []
    highs: list[Array] = []
    try:
        for op in accesses:
            block = _block(op, finder)
            if block is not None:
                here = points.inside(op)[0]
                held, low, high = _reach(block, here, finder)
                turns.append(tuple(n[held] for n in here.turns(loops)))
                lows.append(low[held])
                highs.append(high[held])
        if not turns:
            return True
        turn = _numbered([joined(numbers) for numbers in zip(*turns, strict=True)])
    except (UnknownNumber, NotProven):
        return False
    count = int(turn.max(initial=-1)) + 1
    begins = np.full(count, MAX_NUMBER, np.int64)
    ends = np.full(count, -MAX_NUMBER, np.int64)
    np.minimum.at(begins, turn, joined(lows))
    np.maximum.at(ends, turn, joined(highs))
    order = np.argsort(begins, kind="stable")
    return bool(np.all(ends[order][:-1] < begins[order][1:]))


def _numbered(columns: Sequence[Array]) -> Array:
    """A number from 0 on for each row, the same for equal rows of nonnegative numbers."""
    extents = [int(column.max(initial=0)) + 1 for column in columns]
    if prod(extents) >= MAX_NUMBER:
        raise NotProven("there are too many iterations")
    return _ranked(linear(columns, extents))[1]


def _reach(block: Block, here: Points, finder: BlockFinder) -> tuple[Array, Array, Array]:
    """The points that access a block, as a mask, with the first and the last element that each may
    reach."""
    _require_no_wrapping(block, here, finder)
    low = high = here.polynomial(block.offset)
    held = np.ones(here.count, bool)
    for axis in block.axes:
        first, end = _bounds_along(axis, here)
        held &= first < end
        stride = here.polynomial(axis.stride)
        if _largest(stride) * (_largest(first) + _largest(end)) >= MAX_NUMBER // len(block.axes):
            raise NotProven("an index is too large")
        low = low + np.minimum(stride * first, stride * (end - 1))
        high = high + np.maximum(stride * first, stride * (end - 1))
    return held, low, high


def _bounds_along(axis: BlockAxis, here: Points) -> tuple[Array, Array]:
    """The first index and the end along an axis."""
    try:
        return _indices_along(axis, here)
    except UnknownNumber:
        if axis.extent > 1 or axis.end is not None or not axis.lower or not axis.upper:
            raise
    low, high = ([here.polynomial(b) for b in bounds] for bounds in (axis.lower, axis.upper))
    return np.max(low, axis=0), np.min(high, axis=0)


def _indices_along(axis: BlockAxis, here: Points) -> tuple[Array, Array]:
    """The first index and the end along an axis, whose begin is known."""
    low = high = here.polynomial(axis.begin)
    high = high + axis.extent
    for bound in axis.lower:
        low = np.maximum(low, here.polynomial(bound))
    for bound in axis.upper:
        high = np.minimum(high, here.polynomial(bound))
    if axis.end is not None:
        _require_not_replaced(low, high, here.polynomial(axis.end))
    return low, high


def _largest(numbers: Array) -> int:
    return int(np.abs(numbers).max(initial=0))


def distinct_after_projection(
    op: BlockAccess, here: Points, chosen: Array, place: Array, finder: BlockFinder
) -> Verdict:
    """Whether an access touches each element at most once if it is executed once for all points
    with the same projection.

    Args:
        here: the points at which the access is made, whatever conditions there are.
        chosen: of each place the first point.
        place: of each point. All points of a place must touch the same elements.
    """
    try:
        block = _block(op, finder)
        if block is None:
            return Verdict(True, True, elements=0)
        _require_same_block(block, here, chosen, place)
        points = here.taken(chosen)
        points.program = np.arange(points.count, dtype=np.int64)
        return _verdict([_boxes_at(block, points, True, finder)], op)
    except UnknownNumber as error:
        return _unproven(f"an index is not known before the launch: {error}", op)
    except NotProven as error:
        return _unproven(str(error), op, isinstance(error, SharedElements))


def _require_same_block(block: Block, here: Points, chosen: Array, place: Array) -> None:
    forms = [block.offset]
    for axis in block.axes:
        end = [axis.end] if axis.end is not None else []
        forms += [axis.stride, axis.begin, *axis.lower, *axis.upper, *end]
    for form in forms:
        numbers = here.polynomial(form)
        if np.any(numbers[chosen][place] != numbers):
            raise NotProven("the address depends on other coordinates of the program")


def _block(op: BlockAccess, finder: BlockFinder) -> Block | None:
    """The block of an access; None if it is empty."""
    block = finder.of(op)
    if isinstance(block, NoBlock):
        raise NotProven(block.located(line_of))
    if block.base.op is not None:
        raise NotProven("the pointer is cast or selected")
    return None if block.never else block


@record(frozen=False)
class _Alternatives:
    """Accesses of the same block, of which at most one is executed in each execution of an op."""

    blocks: list[Block]
    at: Op


def _joins(
    fn: Function, block: Block, alternatives: Sequence[_Alternatives], points: Points
) -> bool:
    """Add a block to the alternatives to which it belongs; False if there are none. If the points
    at which accesses are executed are known, they distinguish them."""
    for known in alternatives:
        if overlap(fn, block, known.blocks[0]) is not Overlap.SAME:
            continue
        if all(points.inside(b.op)[1] for b in (block, *known.blocks)):
            continue
        places = [exclusive_at(block.op, other.op) for other in known.blocks]
        if None not in places:
            around = [known.at, *(op for op in places if op is not None)]
            known.at = min(around, key=lambda op: len(list(op.ancestors())))
            known.blocks.append(block)
            return True
    return False


def _boxes_of(known: _Alternatives, points: Points, finder: BlockFinder) -> _Boxes:
    """The boxes of an access that represents several."""
    if len(known.blocks) == 1:
        return _boxes(known.blocks[0], points, finder)
    return _boxes_at(known.blocks[0], points.inside(known.at)[0], False, finder)


# -- the boxes of one access ----------------------------------------------------------------------


def _boxes(block: Block, points: Points, finder: BlockFinder) -> _Boxes:
    here, surely = points.inside(block.op)
    return _boxes_at(block, here, surely, finder)


def _boxes_at(block: Block, here: Points, surely: bool, finder: BlockFinder) -> _Boxes:
    """The boxes of a block at these points. `surely`: the access is executed at all of them."""
    _require_no_wrapping(block, here, finder)
    offset = _uniform(here.polynomial(block.offset))
    axes: dict[int, tuple[Array, Array]] = {}
    held = np.ones(here.count, bool)
    ends: list[tuple[int, Array, Array]] = []
    for axis in block.axes:
        stride = _uniform(here.polynomial(axis.stride))
        low, high = _indices_along(axis, here)
        held &= low < high
        ends.append((stride, low, high))
    for stride, low, high in ends:
        _add_axis(axes, stride, low[held], high[held])
    exact = surely and not block.residual and not block.conditions
    return _Boxes(axes, offset, here.program[held], exact)


def _require_not_replaced(low: Array, high: Array, end: Array) -> None:
    """Raise unless all indices are below the first one that is replaced by another: by a remainder,
    or as in `where(i < n, i, 0)`."""
    if np.any((low < high) & ((low < 0) | (high > end))):
        raise NotProven("an index is replaced by a remainder or another index")


def _add_axis(axes: dict[int, tuple[Array, Array]], stride: int, low: Array, high: Array) -> None:
    if stride < 0:
        stride, low, high = -stride, 1 - high, 1 - low
    if stride == 0:
        if np.any(high - low > 1):
            raise NotProven("lanes of a tile access the same element, as its stride is 0")
        return
    if stride in axes:
        # The sum of two indices with one stride is a single index only if one of them is fixed.
        before, after = axes[stride]
        if np.any(after - before > 1) and np.any(high - low > 1):
            raise NotProven(f"two axes have stride {stride}")
        low, high = low + before, high + after - 1
    axes[stride] = low, high


def _uniform(numbers: Array) -> int:
    if len(numbers) == 0:
        return 0
    if np.any(numbers != numbers[0]):
        raise NotProven("a stride changes from program to program")
    return int(numbers[0])


def _require_no_wrapping(block: Block, points: Points, finder: BlockFinder) -> None:
    """Raise unless the sums and products of narrow integers do not wrap around, which the
    description of the block presumes."""
    for value in (*block.assumed, *block.read_signed):
        low, high = range_of(finder.forms.of(value), shape_of(value.type), points)
        least, most = _signed_range(value) if value in block.read_signed else type_range(value)
        if points.count and (int(low.min()) < least or int(high.max()) > most):
            raise NotProven("an index overflows its type")


def range_of(form: Affine, shape: tuple[int, ...], points: Points) -> tuple[Array, Array]:
    """The least and the largest element of a tile at each point."""
    low = high = points.polynomial(form.start)
    for stride, length in zip(form.strides, shape, strict=True):
        reach = points.polynomial(stride * (length - 1))
        low, high = low + np.minimum(reach, 0), high + np.maximum(reach, 0)
    for coefficient, piece in form.pieces:
        factor = points.polynomial(coefficient)
        ends = [factor * end for end in _range_of_remainder(piece, points)]
        low, high = low + np.minimum(*ends), high + np.maximum(*ends)
    return low, high


def _range_of_remainder(piece: Piece, points: Points) -> tuple[Array, Array]:
    if not piece.is_remainder or piece.index is None or piece.divisor is None:
        raise NotProven("an index may wrap around")
    low, high = range_of(piece.index, shape_of(piece.value.type), points)
    divisor = points.polynomial(piece.divisor)
    if np.any(low < 0) or np.any(divisor < 1):
        raise NotProven("an index may wrap around")
    return np.where(high < divisor, low, 0), np.minimum(high, divisor - 1)


def _signed_range(value: Value) -> tuple[int, int]:
    _, most = type_range(value)
    half = (most + 1) // 2
    return -half, half - 1


# -- all accesses ---------------------------------------------------------------------------------


def _verdict(found: Sequence[_Boxes], at: Op | None) -> Verdict:
    """The verdict on all boxes; raises `NotProven` if programs may have an element in common."""
    strides = sorted({stride for boxes in found for stride in boxes.axes})
    counts = [len(boxes.program) for boxes in found]
    lows: dict[int, list[Array]] = {stride: [] for stride in strides}
    highs: dict[int, list[Array]] = {stride: [] for stride in strides}
    for boxes, count in zip(found, counts, strict=True):
        none = np.zeros(count, np.int64), np.ones(count, np.int64)
        for stride in strides:
            low, high = boxes.axes.get(stride, none)
            lows[stride].append(low)
            highs[stride].append(high)
    axes = {s: (joined(lows[s]), joined(highs[s])) for s in strides}
    _add_distances(axes, found, counts)
    if sum(counts) == 0:
        return Verdict(True, True, elements=0)
    try:
        _require_mixed_radix(axes)
    except NotProven:
        axes = _carried(axes)
        _require_mixed_radix(axes)
    boxes = list(axes.values())
    if not _have_different_boxes(boxes, joined([b.program for b in found])):
        reason = "several iterations or accesses of a program access the same elements"
        return Verdict(False, True, reason=reason, at=at)
    sizes = [high - low for low, high in boxes]
    total = np.prod(sizes, axis=0).sum() if sizes else sum(counts)
    return Verdict(True, True, elements=int(total) if all(b.exact for b in found) else None)


def _add_distances(
    axes: dict[int, tuple[Array, Array]], found: Sequence[_Boxes], counts: Sequence[int]
) -> None:
    """Make the constant distances between accesses an additional index."""
    if not found:
        return
    first = min(boxes.offset for boxes in found)
    distances = [boxes.offset - first for boxes in found]
    unit = gcd(*distances)
    if unit == 0:
        return
    index = joined(
        [np.full(n, d // unit, np.int64) for d, n in zip(distances, counts, strict=True)]
    )
    if unit in axes:
        low, high = axes[unit]
        axes[unit] = low + index, high + index
    else:
        axes[unit] = index, index + 1


def _carried(axes: Mapping[int, tuple[Array, Array]]) -> dict[int, tuple[Array, Array]]:
    """The same boxes with smaller begins: multiples of the next larger stride in the begin of an
    axis are carried to that axis, like digits. If all strides are constants, the block of an access
    has the whole address of a tile as the begin of one axis."""
    found = dict(axes)
    for stride, larger in pairwise(sorted(axes)):
        if larger % stride == 0:
            ratio = larger // stride
            low, high = found[stride]
            carry = low // ratio
            found[stride] = low - carry * ratio, high - carry * ratio
            before, after = found[larger]
            found[larger] = before + carry, after + carry
    return found


def _require_mixed_radix(axes: dict[int, tuple[Array, Array]]) -> None:
    reach = 0
    for stride in sorted(axes):
        low, high = axes[stride]
        span = int(high.max()) - 1 - int(low.min())
        if span and stride <= reach:
            raise NotProven(
                f"indices with stride {stride} overlap those with smaller strides, which extend "
                f"over {reach} elements"
            )
        reach += stride * span


def _have_different_boxes(axes: Sequence[tuple[Array, Array]], program: Array) -> bool:
    """Whether all points have different boxes, or at least those of different programs."""
    count = len(program)
    code = np.zeros(count, np.int64)
    for low, high in axes:
        begins, place = _ranked(low)
        ends = np.full(len(begins), np.iinfo(np.int64).min)
        np.maximum.at(ends, place, high)
        if np.any(ends[:-1] > begins[1:]):
            raise NotProven("tiles of different programs or iterations partially overlap")
        _, code = _ranked(code * len(begins) + place)
    if int(code.max(initial=0)) + 1 == count:
        return True
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, code, program)
    if np.any(first[code] != program):
        raise SharedElements("several programs access the same elements")
    return False


def _ranked(numbers: Array) -> tuple[Array, Array]:
    """The different numbers in order, and the place of each number among them."""
    steps = np.diff(numbers)
    if np.any(steps < 0):
        return _ranked_by_table(numbers)
    # They often rise with the number of the program: then there is nothing to sort.
    is_new = np.concatenate([np.ones(min(1, len(numbers)), bool), steps > 0])
    return numbers[is_new], np.cumsum(is_new) - 1


def _ranked_by_table(numbers: Array) -> tuple[Array, Array]:
    """`_ranked` in linear time if the numbers are close together, as indices of tiles are."""
    low, high = int(numbers.min()), int(numbers.max())
    if high - low > 4 * len(numbers):
        return np.unique(numbers, return_inverse=True)
    offsets = numbers - low
    present = np.zeros(high - low + 1, bool)
    present[offsets] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[offsets]

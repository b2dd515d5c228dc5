"""Analysis of a group's masks along the lane axis: the ranges in which all are true or all are
false.

A mask usually is a conjunction of comparisons such as ``offsets < n``. Along the lane axis each is
linear on one side and invariant on the other, so it is true up to some lane, and false from there.
Below the least such bound all comparisons are true, and the loop needs no masks. Above the greatest
all masks are false: nothing is loaded or stored, and reductions combine copies of one value.

Input: the values that a group evaluates. Output: `Bounds`, as run-time values computed before the
loop. The traversals are linear in the number of (value, axes) pairs that the group uses.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from tilewright.base.record import record
from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.ir.index_map import Along, Fixed, IndexMap, Term
from tilewright.lowering.emit import I64, V, const
from tilewright.ops import arith, memory
from tilewright.ops.view import View
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.lazy import is_lazy
from tilewright.targets.cpu.level import Coords, Level

Axes = tuple[int | None, ...]  # for each coordinate the group's axis that it equals; None: index 0
_UNKNOWN = -1  # any other expression


class MaskUses:
    """The masks used by evaluating some values at a point of a group, and the axes at which the
    comparisons they consist of are evaluated."""

    def __init__(self, roots: Iterable[tuple[Value, Axes]], kept: Container[Value]) -> None:
        self.kept = kept
        self.places: dict[Value, set[Axes]] = {}
        self.masks: dict[Value, None] = {}
        for value, axes in roots:
            self._visit(value, axes)

    def _visit(self, root: Value, at: Axes) -> None:
        stack = [(root, at)]
        while stack:
            value, axes = stack.pop()
            known = self.places.setdefault(value, set())
            if axes in known or not isinstance(value.type, ir.Tile):
                continue
            known.add(axes)
            op = value.op
            if op is None or not is_lazy(op) or value in self.kept:
                continue
            if isinstance(op, memory.Load) and op.mask is not None:
                self.masks[op.mask] = None
            stack.extend(reversed(_moved_axes(value, op, axes)))

    def add_mask(self, mask: Value) -> None:
        self.masks[mask] = None

    def leaves(self, mask: Value) -> list[Value]:
        """The values whose conjunction is the mask: comparisons, and any other op but `and`."""
        result: dict[Value, None] = {}
        seen: set[Value] = set()
        stack = [mask]
        while stack:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            op = v.op
            if isinstance(op, arith.And) and v not in self.kept:
                stack.extend(op.operands)
            elif isinstance(op, View) and op.aligned:
                stack.append(op.src)
            else:
                result[v] = None
        return list(result)

    def place(self, value: Value) -> Axes | None:
        """The coordinates at which the value is used; None if they are not unique."""
        places = self.places.get(value, set())
        return next(iter(places)) if len(places) == 1 else None


def _moved_axes(value: Value, op: Op, axes: Axes) -> list[tuple[Value, Axes]]:
    """The operands of a value's op, each with the axes at which the op uses it."""
    if op.elementwise:
        return [(operand, axes) for operand in op.operands]
    maps = zip(op.operands, op.index_maps(value.index), strict=True)
    return [(operand, _axes_of(found, axes)) for operand, found in maps if found is not None]


def _axes_of(found: IndexMap, axes: Axes) -> Axes:
    if found.domain is not None:  # the operand depends on the coordinates
        return (_UNKNOWN,) * len(found.axes)
    return tuple(_axis_of(term, axes) for term in found.axes)


def _axis_of(term: Term, axes: Axes) -> int | None:
    if isinstance(term, Along):
        return axes[term.axis]
    return None if isinstance(term, Fixed) and term.index == 0 else _UNKNOWN


@record(frozen=False)
class Bounds:
    """Bounds along the lane axis, as coordinates (i64).

    Attributes:
        full: below it, every comparison in `true` is true.
        empty: from it on, every mask in `false` is false; None if there is no such bound.
        sharp: whether both are equal, and multiples of a vector.
    """

    full: V
    true: list[Value]
    empty: V | None
    false: list[Value]
    sharp: bool


def find_bounds(
    level: Level,
    uses: MaskUses,
    coords: Coords,
    lane_axis: int,
    open_axes: set[int],
    size: int,
) -> Bounds | None:
    """Analyse the masks of a group, and emit the computation of their bounds before its lane loop.

    Args:
        coords: the group's coordinates; that of the lane axis is ``Lanes(0, 1)``.
        open_axes: axes of loops inside the lane loop, whose coordinates are unknown here.
        size: the extent of the lane axis.

    Returns:
        None if there are no masks, or none with a bound.
    """
    if not uses.masks:
        return None
    analysed: dict[Value, tuple[V, V | None] | None] = {}
    full: V = const(I64, size)
    empty: V | None = const(I64, 0)
    true: list[Value] = []
    b = level.b
    for mask in uses.masks:
        ends: list[V] = []
        for leaf in uses.leaves(mask):
            if leaf not in analysed:
                analysed[leaf] = _analyse(level, uses, leaf, coords, lane_axis, open_axes, size)
                known = analysed[leaf]
                if known is not None:
                    true.append(leaf)
                    full = b.intrinsic("llvm.smin", I64, [full, known[0]], overloads=[I64])
            known = analysed[leaf]
            if known is not None and known[1] is not None:
                ends.append(known[1])
        empty = _later(level, empty, ends)
    if not true:
        return None
    sharp = all(
        known is not None
        and known[1] is known[0]
        and _ends_with_vector(level, uses, leaf, lane_axis)
        for leaf, known in analysed.items()
    )
    # All masks must consist of the same comparisons, so that they become false at the same lane.
    sharp = sharp and all(set(uses.leaves(mask)) == analysed.keys() for mask in uses.masks)
    return Bounds(full, true, empty, list(uses.masks), sharp)


def _ends_with_vector(level: Level, uses: MaskUses, leaf: Value, lane_axis: int) -> bool:
    """Whether a comparison is uniform in each vector of lanes."""
    axes = uses.place(leaf) or ()
    if lane_axis not in axes:
        return True
    return level.kernel.facts[leaf].constancy[axes.index(lane_axis)] % level.width == 0


def _later(level: Level, empty: V | None, ends: list[V]) -> V | None:
    """The lane from which all masks are false: a mask is from the least of the `ends` of its
    comparisons on, and all of them are from the greatest of these on."""
    if empty is None or not ends:
        return None
    end = ends[0]
    for e in ends[1:]:
        end = level.b.intrinsic("llvm.smin", I64, [end, e], overloads=[I64])
    return level.b.intrinsic("llvm.smax", I64, [empty, end], overloads=[I64])


def _analyse(
    level: Level,
    uses: MaskUses,
    leaf: Value,
    coords: Coords,
    lane_axis: int,
    open_axes: set[int],
    size: int,
) -> tuple[V, V | None] | None:
    """The bound below which the leaf is true, and that from which it is false (None if unknown).

    Returns None if nothing is known. If both are one object, they are always equal.
    """
    axes = uses.place(leaf)
    if axes is None and isinstance(leaf.type, ir.Tile):
        return None
    axes = axes or ()
    if any(a == _UNKNOWN or a in open_axes for a in axes):
        return None
    at = tuple(lanes_index(coords, a) for a in axes)
    b = level.b
    op = leaf.op
    if lane_axis not in axes:
        holds = evaluate(level, leaf, at).base
        n = b.select(holds, const(I64, size), const(I64, 0))
        return n, n
    if not isinstance(op, arith.Cmp) or op.predicate in ("eq", "ne") or leaf in uses.kept:
        return None
    if not ir.is_int(op.lhs.type):
        return None
    x, y = evaluate(level, op.lhs, at), evaluate(level, op.rhs, at)
    predicate = op.predicate
    if predicate in ("gt", "ge"):
        x, y, predicate = y, x, {"gt": "lt", "ge": "le"}[predicate]
    return _linear_bound(level, x, y, predicate, ir.dtype_of(op.lhs.type), size)


def lanes_index(coords: Coords, axis: int | None) -> Lanes:
    return Lanes(const(I64, 0), 0) if axis is None else coords[axis]


def _linear_bound(
    level: Level, x: Lanes, y: Lanes, predicate: str, element: ir.DType, size: int
) -> tuple[V, V | None] | None:
    """The bounds of x + s * i < y (or <=) in i, for s > 0 and uniform y.

    Without overflow both are ceil((y - x) / s), clamped to 0 … size. If x + s * i may overflow
    before the last lane, the second bound is `size` at run time, or None.
    """
    if x.stride is None or x.stride <= 0 or not y.uniform:
        return None
    b = level.b
    signed = element.is_int_signed()
    low = level.extend(Lanes(x.base, 0, x.depth), signed).base
    high = level.extend(y, signed).base
    if element.primitive_bitwidth == 64 and not signed:
        return None
    distance = b.intrinsic("llvm.ssub.sat", I64, [high, low], overloads=[I64])
    if predicate == "le":
        distance = b.intrinsic("llvm.sadd.sat", I64, [distance, const(I64, 1)], overloads=[I64])
    distance = b.intrinsic("llvm.smax", I64, [distance, const(I64, 0)], overloads=[I64])
    if x.stride != 1:
        part = b.udiv(distance, const(I64, x.stride))
        rest = b.urem(distance, const(I64, x.stride))
        distance = b.add(part, b.zext(b.icmp("ne", rest, const(I64, 0)), I64))
    bound = b.intrinsic("llvm.smin", I64, [distance, const(I64, size)], overloads=[I64])
    # Above the bound the comparison is false, unless x overflows before the last lane.
    reach = x.stride * (size - 1)
    limit = element.get_int_max_value() - reach
    if limit < 0:
        return bound, None
    stays = b.icmp("sle", low, const(I64, min(limit, 2**63 - 1)))
    return bound, b.select(stays, bound, const(I64, size))


class UniformWhereFalse:
    """Determines which values are uniform along the lanes where some masks are false.

    Args:
        lane: the axis of the lanes.
        false: the masks that are false.
        kept: values in buffers, whose contents are unknown.
    """

    def __init__(self, lane: int, false: set[Value], kept: Container[Value]) -> None:
        self.lane = lane
        self.false = false
        self.kept = kept
        self._seen: set[tuple[Value, Axes]] = set()
        self._open: set[Value] = set()  # masks that are not known to be false

    def fails(self, mask: Value) -> bool:
        """Whether a mask is implied to be false by those that are."""
        seen: set[Value] = set()
        stack = [mask]
        while stack:
            v = stack.pop()
            if v in self.false:
                return True
            if v in seen or v in self._open:
                continue
            seen.add(v)
            op = v.op
            if isinstance(op, arith.And) or (isinstance(op, View) and op.aligned):
                stack.extend(op.operands)
        self._open |= seen
        return False

    def same_along(self, value: Value, axes: Axes) -> bool:
        """Whether a value is uniform along the lanes, at the group's coordinates `axes`.

        It is unless a value in its backward slice is not. Values visited by earlier queries need
        not be visited again: all of them were uniform, as the caller stops at the first that isn't.
        """
        stack = [(value, axes)]
        while stack:
            entry = stack.pop()
            if entry in self._seen:
                continue
            self._seen.add(entry)
            found = self._required(*entry)
            if found is None:
                return False
            stack.extend(found)
        return True

    def _required(self, value: Value, axes: Axes) -> list[tuple[Value, Axes]] | None:
        """The operands that must be uniform for the value to be; None if it is not uniform."""
        if self.lane not in axes and _UNKNOWN not in axes:
            return []
        if self.fails(value):
            return []
        op = value.op
        if op is None or value in self.kept or not is_lazy(op) or _UNKNOWN in axes:
            return None
        if not (op.elementwise or isinstance(op, View | memory.Load)):
            return None  # its elements may depend on their indices, as those of `arange` do
        if isinstance(op, memory.Load) and op.mask is not None and self.fails(op.mask):
            return [(op.other, axes)] if op.other is not None else []
        if isinstance(op, arith.Select) and self.fails(op.condition):
            return [(op.on_false, axes)]
        return _moved_axes(value, op, axes)

"""Where along the lanes a group's masks are known: all true, all false, or neither.

A mask is mostly a conjunction of comparisons such as ``offsets < n``. Along the lane axis each is
linear on one side and fixed on the other, so it holds up to some lane and fails from there. Below
the least such lane all comparisons are true and the loop needs no masks; past the greatest, all
masks are false, nothing is loaded or stored, and what is reduced there is one value many times.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.ir.index_map import Along, Fixed, IndexMap, Term
from tilewright.lowering.emit import I64, V, const
from tilewright.ops import arith, memory, shape
from tilewright.ops.view import View
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.lazy import is_lazy
from tilewright.targets.cpu.level import Coords, Level

Axes = tuple[int | None, ...]  # per coordinate the axis of the group that it is; None: fixed
_UNKNOWN = -1


class MaskUses:
    """The masks and comparisons that evaluating some values at a point of a group uses."""

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
        """The comparisons whose conjunction is the mask; others stand as they are."""
        found: dict[Value, None] = {}
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
                found[v] = None
        return list(found)

    def place(self, value: Value) -> Axes | None:
        """The only coordinates at which the value is used; None if there are several."""
        places = self.places.get(value, set())
        return next(iter(places)) if len(places) == 1 else None


def _moved_axes(value: Value, op: Op, axes: Axes) -> list[tuple[Value, Axes]]:
    """The operands, and the axes of the group at which computing the value uses each."""
    if op.elementwise:
        return [(operand, axes) for operand in op.operands]
    maps = zip(op.operands, op.index_maps(value.index), strict=True)
    return [(operand, _axes_of(found, axes)) for operand, found in maps if found is not None]


def _axes_of(found: IndexMap, axes: Axes) -> Axes:
    if found.domain is not None:  # which operand it is depends on the coordinates
        return (_UNKNOWN,) * len(found.axes)
    return tuple(_axis_of(term, axes) for term in found.axes)


def _axis_of(term: Term, axes: Axes) -> int | None:
    if isinstance(term, Along):
        return axes[term.axis]
    return None if isinstance(term, Fixed) and term.index == 0 else _UNKNOWN


@dataclass
class Bounds:
    """What is known along the lane axis, in lanes from its start.

    Attributes:
        full: below this, every comparison in `true` holds (an i64).
        empty: from this on, every mask in `false` fails; None if that is not known.
        sharp: whether both are the same lane, the first of a vector.
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
    """Analyse the masks of a group before its lane loop.

    Args:
        coords: the group's coordinates; the lane axis is ``Lanes(0, 1)``.
        open_axes: axes whose loops run inside the lane loop, so their coordinate is not known.
        size: length of the lane axis.
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
    # then all masks fail where one does, if they are of the same comparisons
    sharp = sharp and all(set(uses.leaves(mask)) == analysed.keys() for mask in uses.masks)
    return Bounds(full, true, empty, list(uses.masks), sharp)


def _ends_with_vector(level: Level, uses: MaskUses, leaf: Value, lane_axis: int) -> bool:
    """Whether a comparison that is used at one place is the same in all lanes of each vector."""
    axes = uses.place(leaf) or ()
    if lane_axis not in axes:
        return True
    return level.kernel.facts[leaf].constancy[axes.index(lane_axis)] % level.width == 0


def _later(level: Level, empty: V | None, ends: list[V]) -> V | None:
    """A mask fails from its first failing comparison on; the group from its last mask on."""
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
    """(lanes for which the leaf holds, lane from which it fails or None), or None if unknown."""
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
    """x + s * i < y (or <=) for i below the bound, with s > 0 and y the same in all lanes."""
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
    # past the bound the comparison fails, unless x wraps on the way to the last lane
    reach = x.stride * (size - 1)
    limit = element.get_int_max_value() - reach
    if limit < 0:
        return bound, None
    stays = b.icmp("sle", low, const(I64, min(limit, 2**63 - 1)))
    return bound, b.select(stays, bound, const(I64, size))


class Alike:
    """Which values are the same in all lanes where some masks fail.

    Args:
        lane: the axis of the lanes.
        false: the masks that fail.
        kept: values that are in buffers, of which nothing is known.
    """

    def __init__(self, lane: int, false: set[Value], kept: Container[Value]) -> None:
        self.lane = lane
        self.false = false
        self.kept = kept
        self._seen: set[tuple[Value, Axes]] = set()
        self._open: set[Value] = set()  # masks that are not known to fail

    def fails(self, mask: Value) -> bool:
        """Whether a mask is known to fail where the others do."""
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
        """Whether a value at a point of the group is the same in all lanes.

        It is unless something that it is computed from differs: so all of that is looked at, once
        for all values, as the first that differs ends the search.
        """
        stack = [(value, axes)]
        while stack:
            entry = stack.pop()
            if entry in self._seen:
                continue
            self._seen.add(entry)
            found = self._needed(*entry)
            if found is None:
                return False
            stack.extend(found)
        return True

    def _needed(self, value: Value, axes: Axes) -> list[tuple[Value, Axes]] | None:
        """The operands that must be the same for a value to be; None where it differs."""
        if self.lane not in axes and _UNKNOWN not in axes:
            return []
        if self.fails(value):
            return []
        op = value.op
        if op is None or value in self.kept or not is_lazy(op) or _UNKNOWN in axes:
            return None
        if isinstance(op, shape.Arange):
            return None
        if isinstance(op, memory.Load) and op.mask is not None and self.fails(op.mask):
            return [(op.other, axes)] if op.other is not None else []
        if isinstance(op, arith.Select) and self.fails(op.condition):
            return [(op.on_false, axes)]
        return _moved_axes(value, op, axes)

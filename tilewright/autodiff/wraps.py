"""Indices that wrap around to elements that are not used.

    i = row * M + tl.arange(0, M)
    a = tl.load(a_ptr + (i % m)[:, None] * k + …)           # wraps around to the first rows
    …
    tl.store(c_ptr + …, mask=(i < m)[:, None] & …)          # their results are not stored

Lanes beyond m load elements of other programs, and a plain store of their gradients, which are
zero, would overwrite those. If no stored lane depends on them, the load is changed to mask them
off, and the remainder is dropped from the index. `where(i < m, i, 0)` is treated likewise.

Lanes are followed from the load along one axis (`lanes.py`) to stores whose masks exclude them, as
proven for the arguments of a launch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.affine_form import Affine
from tilewright.analysis.polynomial import Iteration, Polynomial
from tilewright.analysis.ranges import type_range
from tilewright.autodiff.distinct import NotProven, range_of
from tilewright.autodiff.lanes import lanes_of
from tilewright.autodiff.memo import once_for_each_value
from tilewright.autodiff.points import Points, UnknownNumber
from tilewright.base.record import record
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.index_map import Along
from tilewright.ir.types import Tile, is_float, is_int, shape_of
from tilewright.ops.arith import And, Cmp, Constant, Rem, Select, constant_value
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.control import For
from tilewright.ops.memory import Load, Store
from tilewright.ops.shape import Reshape, broadcast_from_axis
from tilewright.ops.view import View


@record
class _Wrap:
    """An index that is replaced beyond a limit.

    Attributes:
        value: the replaced index.
        index, limit: the index itself, and the first one that is replaced; tiles.
        axis: along which it runs.
        beyond: how far the first lane is beyond the limit: negative where it is not.
    """

    value: Value
    index: Value
    limit: Value
    axis: int
    beyond: Polynomial


def remove_wraps(fn: Function, points: Points) -> None:
    """Mask off loads beyond limits at which their indices are replaced, where no stored lane
    depends on these.

    Args:
        points: the programs of the launch.
    """
    for op in list(fn.walk()):
        forms = AffineForms(through_scalars=True)
        wrap = _wrap_of(op, forms, points)
        if wrap is None:
            continue
        lanes = lanes_of(wrap.value, wrap.axis)
        if lanes is None:
            continue
        loads = [(load, axis) for load, place, axis in lanes.uses if _is_masked(load, place)]
        if len(loads) == len(lanes.uses) and all(
            _is_unused(load, axis, wrap, forms, points) for load, axis in loads
        ):
            _mask_off(wrap, loads)


def _is_masked(op: Op, place: int) -> bool:
    """Whether an op is a load through this operand that may have a further mask."""
    if not isinstance(op, Load) or op.volatile or op.operands[place] is not op.ptr:
        return False
    return op.other is None or constant_value(op.other) == 0


def _wrap_of(op: Op, forms: AffineForms, points: Points) -> _Wrap | None:
    match op:
        case Rem(index, limit):
            pass
        case Select(Value(op=Cmp(index, limit, "lt")), on_true, _) if on_true is index:
            pass
        case _:
            return None
    if not isinstance(index.type, Tile) or not is_int(index.type) or type_range(index)[0] == 0:
        return None
    form, end = forms.of(index), forms.of(limit)
    axis = _only_axis(form)
    if axis is None or not end.is_uniform or form.pieces:
        return None
    try:
        start = points.inside(op)[0].polynomial(form.start)
    except UnknownNumber:
        return None
    if isinstance(op, Rem) and np.any(start < 0):
        return None
    if not _fit((*form.assumed, *end.assumed, index), op, forms, points):
        return None
    return _Wrap(op.results[0], index, limit, axis, form.start - end.start)


def _only_axis(form: Affine) -> int | None:
    """The axis along which an index rises by 1, if there is no other along which it changes."""
    along = [axis for axis, stride in enumerate(form.strides) if stride]
    return along[0] if len(along) == 1 and form.strides[along[0]] == Polynomial.of(1) else None


def _fit(values: tuple[Value, ...], op: Op, forms: AffineForms, points: Points) -> bool:
    """Whether integers have no more bits than their types, where an op runs."""
    try:
        here = points.inside(op)[0]
        for value in values:
            low, high = range_of(forms.of(value), shape_of(value.type), here)
            least, most = type_range(value)
            if here.count and (int(low.min()) < least or int(high.max()) > most):
                return False
    except (UnknownNumber, NotProven):
        return False
    return True


# -- whether they are stored ----------------------------------------------------------------------


def _is_unused(load: Op, axis: int, wrap: _Wrap, forms: AffineForms, points: Points) -> bool:
    """Whether no stored lane depends on those that a load has beyond the limit."""
    lanes = lanes_of(load.results[0], axis)
    if lanes is None:
        return False
    return all(
        _is_excluded(op, place, at, wrap, lanes.loops, forms, points)
        for op, place, at in lanes.uses
    )


def _is_excluded(
    op: Op, place: int, axis: int, wrap: _Wrap, loops: set[For], forms: AffineForms, points: Points
) -> bool:  # fmt: skip
    """Whether the mask of a store excludes the lanes beyond the limit."""
    if not isinstance(op, Store | AtomicRMW) or op.operands[place] is not op.value:
        return False
    if op.mask is None or (isinstance(op, AtomicRMW) and op.result.users):
        return False
    for condition, along in _conditions(op.mask, axis):
        begin = _begin(condition, along, forms)
        if begin is None or not _fit((condition.lhs, condition.rhs), op, forms, points):
            continue
        # Lane l is stored only if begin + l < 0, and is beyond the limit if wrap.beyond + l >= 0.
        if _is_at_most(wrap.beyond, begin, op, loops, points):
            return True
    return False


@once_for_each_value
def _conditions(mask: Value, axis: int) -> Sequence[tuple[Cmp, int]]:
    """The comparisons that hold wherever a mask does, and their axes."""
    op = mask.op
    found: dict[tuple[Cmp, int], None] = {}
    match op:
        case And():
            for operand in op.operands:
                found.update(dict.fromkeys(_conditions(operand, axis)))
        case Cmp():
            found[op, axis] = None
        case View() if len(op.operands) == 1:
            (index,) = op.index_maps()
            for own, term in enumerate(index.axes if index is not None else ()):
                if term == Along(axis):
                    found.update(dict.fromkeys(_conditions(op.operands[0], own)))
        case _:
            pass
    return list(found)


def _begin(condition: Cmp, axis: int, forms: AffineForms) -> Polynomial | None:
    """b of a comparison that holds in lanes l with b + l < 0."""
    if not is_int(condition.lhs.type) or type_range(condition.lhs)[0] == 0:
        return None
    sides = {"lt": (condition.lhs, condition.rhs, 0), "le": (condition.lhs, condition.rhs, -1)}
    sides |= {"gt": (condition.rhs, condition.lhs, 0), "ge": (condition.rhs, condition.lhs, -1)}
    if condition.predicate not in sides:
        return None
    less, more, by = sides[condition.predicate]
    one, other = forms.of(less), forms.of(more)
    if _only_axis(one) != axis or one.pieces or not other.is_uniform:
        return None
    return one.start - other.start + by


def _is_at_most(a: Polynomial, b: Polynomial, op: Op, loops: set[For], points: Points) -> bool:
    """Whether a <= b where an op runs. Loop-carried values are not compared across iterations."""
    if any(_changes_in(atom, loops) for form in (a, b) for t in form.terms for atom in t.factors):
        return False
    try:
        return bool(np.all(points.inside(op)[0].polynomial(a - b) <= 0))
    except UnknownNumber:
        return False


def _changes_in(atom: Value | Iteration, loops: set[For]) -> bool:
    if isinstance(atom, Iteration):
        return atom.loop in loops
    return any(loop.contains(atom) for loop in loops)


# -- the change -----------------------------------------------------------------------------------


def _mask_off(wrap: _Wrap, loads: list[tuple[Op, int]]) -> None:
    """Mask off lanes beyond the limit in loads."""
    builder = Builder(Region())
    op = wrap.value.op
    assert op is not None
    with builder.before(op):
        inside = builder.value(Cmp(wrap.index, wrap.limit, "lt"))
        length = shape_of(inside.type)[wrap.axis]
        if len(shape_of(inside.type)) > 1:
            inside = builder.value(Reshape(inside, (length,)))
    wrap.value.replace_with(wrap.index)
    op.erase()
    for load, axis in loads:
        assert isinstance(load, Load)
        with builder.before(load):
            mask = broadcast_from_axis(builder.value, inside, axis, shape_of(load.ptr.type))
            if load.mask is not None:
                mask = builder.value(And(load.mask, mask))
            other = builder.value(
                Constant(0.0 if is_float(load.result.type) else 0, load.result.type)
            )
            made = builder.value(Load(load.ptr, mask, other, **load.attributes))
        load.result.replace_with(made)
        load.erase()

"""Derivatives of `ops/shape.py`: all are linear, so a tangent goes through the same op."""

from __future__ import annotations

from math import prod

from tilewright.autodiff.registry import (
    AdjointPoint,
    TangentPoint,
    Zero,
    adjoint,
    declare,
    derivative_error,
)
from tilewright.ir.core import Op, Value
from tilewright.ir.types import I32, derivative_type, dtype_of, element_of, is_float, shape_of
from tilewright.ops.arith import Cast, Max, Min
from tilewright.ops.shape import (
    Arange,
    Broadcast,
    Cat,
    ExpandDims,
    Flip,
    Gather,
    Join,
    Permute,
    Reshape,
    Splat,
    Split,
    broadcast_along,
)

MOST_PAIRS = 1 << 16  # of an element and a place, that one op may compare

declare(Zero("it has no operands"), Arange)


def _same_op(d: TangentPoint, op: Op) -> list[Value | None]:
    """The op on the tangents of its float operands."""
    tangents = [d.tangent(v) if is_float(v.type) else None for v in op.operands]
    if not any(t is not None for t in tangents):
        return [None] * len(op.results)
    operands = [
        t if t is not None else _still(d, v) for v, t in zip(op.operands, tangents, strict=True)
    ]
    made = type(op)(*operands, **op.attributes)
    if len(made.results) == 1:
        return [d.emit.op(made)]
    return list(d.emit.builder.insert(made).results)


def _still(d: TangentPoint, value: Value) -> Value:
    """The tangent of an operand without one: zeros, or the operand itself if it is an index."""
    return d.emit.zeros(derivative_type(value.type)) if is_float(value.type) else d.plain(value)


@adjoint(Splat, tangent=_same_op)
def _splat(d: AdjointPoint, op: Splat, adjoints: list[Value | None]) -> None:
    (y,) = adjoints
    if y is not None:
        d.give(op.src, d.emit.sum_all(y))


@adjoint(ExpandDims, tangent=_same_op)
def _expand_dims(d: AdjointPoint, op: ExpandDims, adjoints: list[Value | None]) -> None:
    _reshaped_back(d, op.src, adjoints)


@adjoint(Reshape, tangent=_same_op)
def _reshape(d: AdjointPoint, op: Reshape, adjoints: list[Value | None]) -> None:
    _reshaped_back(d, op.src, adjoints)


def _reshaped_back(d: AdjointPoint, src: Value, adjoints: list[Value | None]) -> None:
    (y,) = adjoints
    if y is None:
        return
    lengths = shape_of(src.type)
    d.give(src, d.emit.op(Reshape(y, lengths)) if lengths else d.emit.sum_all(y))


@adjoint(Broadcast, tangent=_same_op)
def _broadcast(d: AdjointPoint, op: Broadcast, adjoints: list[Value | None]) -> None:
    """The sum along the repeated axes."""
    (y,) = adjoints
    if y is None:
        return
    for axis, (length, repeated) in enumerate(zip(shape_of(op.src.type), op.shape, strict=True)):
        if length != repeated:
            y = _sum_keeping_axis(d, y, axis)
    d.give(op.src, y)


def _sum_keeping_axis(d: AdjointPoint, y: Value, axis: int) -> Value:
    lengths = shape_of(y.type)
    total = d.emit.sum(y, axis)
    if len(lengths) == 1:
        return d.emit.op(Splat(total, (1,)))
    return d.emit.op(ExpandDims(total, axis))


@adjoint(Permute, tangent=_same_op)
def _permute(d: AdjointPoint, op: Permute, adjoints: list[Value | None]) -> None:
    (y,) = adjoints
    if y is not None:
        inverse = tuple(op.order.index(axis) for axis in range(len(op.order)))
        d.give(op.src, d.emit.op(Permute(y, inverse)))


@adjoint(Flip, tangent=_same_op)
def _flip(d: AdjointPoint, op: Flip, adjoints: list[Value | None]) -> None:
    (y,) = adjoints
    if y is not None:
        d.give(op.src, d.emit.op(Flip(y, op.axis)))


@adjoint(Join, tangent=_same_op)
def _join(d: AdjointPoint, op: Join, adjoints: list[Value | None]) -> None:
    (y,) = adjoints
    if y is not None:
        halves = d.emit.builder.insert(Split(d.emit.guarded(y))).results
        d.give(op.lhs, d.emit.computed_from(halves[0], y))
        d.give(op.rhs, d.emit.computed_from(halves[1], y))


@adjoint(Split, tangent=_same_op)
def _split(d: AdjointPoint, op: Split, adjoints: list[Value | None]) -> None:
    kind = derivative_type(op.results[0].type)
    halves = [d.emit.guarded(y) if y is not None else d.emit.zeros(kind) for y in adjoints]
    d.give(op.src, d.emit.computed_from(d.emit.op(Join(*halves)), *halves))


@adjoint(Cat, tangent=_same_op)
def _cat(d: AdjointPoint, op: Cat, adjoints: list[Value | None]) -> None:
    """The two halves; there is no op that splits operands of different extents."""
    (y,) = adjoints
    if y is None:
        return
    lengths, axis = shape_of(op.lhs.type), op.axis
    if lengths != shape_of(op.rhs.type):
        raise derivative_error(
            op, "no gradient through a concatenation of tiles of different extents"
        )
    paired = (*lengths[:axis], 2, *lengths[axis:])
    rank = len(paired)
    order = (*(i for i in range(rank) if i != axis), axis)
    apart = d.emit.op(Permute(d.emit.op(Reshape(d.emit.guarded(y), paired)), order))
    halves = d.emit.builder.insert(Split(apart)).results
    d.give(op.lhs, d.emit.computed_from(halves[0], y))
    d.give(op.rhs, d.emit.computed_from(halves[1], y))


@adjoint(Gather, tangent=_same_op)
def _gather(d: AdjointPoint, op: Gather, adjoints: list[Value | None]) -> None:
    """Of an element: the sum over all places that took it, each of which is compared with it."""
    (y,) = adjoints
    if y is None:
        return
    axis, taken = op.axis, shape_of(op.index.type)
    lengths = (*taken[:axis], shape_of(op.src.type)[axis], *taken[axis:])
    if prod(lengths) > MOST_PAIRS:
        raise derivative_error(
            op,
            f"no gradient through tl.gather of so many elements: {prod(lengths)} pairs of an "
            f"element and an index would be compared, more than {MOST_PAIRS}",
            "help: load the elements from memory at the same indices instead",
        )
    index = _within(d, d.plain(op.index), lengths[axis] - 1)
    element = d.emit.positions(lengths, axis)
    is_it = d.emit.compare(broadcast_along(d.emit.op, index, (axis,), lengths), element, "eq")
    found = d.emit.where(is_it, broadcast_along(d.emit.op, d.emit.guarded(y), (axis,), lengths))
    d.give(op.src, d.emit.sum(found, axis + 1))


def _within(d: AdjointPoint, index: Value, last: int) -> Value:
    """An index as i32, clamped to 0 and the last element."""
    value, type = d.emit.builder.value, index.type
    if dtype_of(type).primitive_bitwidth < I32.primitive_bitwidth:
        index = value(Cast(index, I32, "rtne"))
    least, most = (d.emit.integer(number, index.type) for number in (0, last))
    index = value(Min(value(Max(index, least, False)), most, False))
    return index if element_of(index.type) == I32 else value(Cast(index, I32, "rtne"))

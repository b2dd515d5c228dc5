"""Shape ops.

Canonical form: no two consecutive shape ops of the same kind; `broadcast` outermost, then
`expand_dims`; a reshape that only inserts one axis is an `expand_dims`; axes of length 1 are
dropped before loads and index arithmetic rather than after them; a uniform tile is a splat or a
constant. Termination: each rule decreases (number of elements moved, number of ops, distance of
broadcasts from the users), in lexicographic order.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Op, Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import shape_of
from tilewright.ops.arith import Add, And, Cast, Cmp, Constant, Max, Min, Mul, Or, Sub
from tilewright.ops.memory import AddPtr
from tilewright.ops.shape import (
    Arange,
    Broadcast,
    ExpandDims,
    Flip,
    Join,
    Permute,
    Reshape,
    Splat,
    Split,
)
from tilewright.rewrites.patterns import constant, like, uniform, with_shape_of


@rewrite(Splat)
def splat_of_constant(op: Splat, rw: Rewriter) -> Value | None:
    """splat(c) = the constant tile c"""
    match op.src.op:
        case Constant(value):
            return rw.insert(Constant(value, op.result.type))
        case _:
            return None


def shape_of_uniform(op: Op, rw: Rewriter) -> Value | None:
    """f(splat(x)) = splat(x) for every shape op f"""
    same = uniform(op.operands[0])
    return None if same is None else with_shape_of(rw, same, shape_of(op.result.type))


for _op_class in (ExpandDims, Broadcast, Reshape, Permute, Flip):
    rewrite(_op_class)(shape_of_uniform)


@rewrite(Arange)
def arange_of_one(op: Arange, rw: Rewriter) -> Value | None:
    """arange(n, n + 1) = the constant n"""
    return constant(rw, op.start, op.result.type) if op.end == op.start + 1 else None


@rewrite(ExpandDims)
def expand_dims_of_broadcast(op: ExpandDims, rw: Rewriter) -> Value | None:
    """expand_dims(broadcast(x)) = broadcast(expand_dims(x))"""
    match op.src.op:
        case Broadcast(x):
            return rw.insert(Broadcast(rw.insert(ExpandDims(x, op.axis)), shape_of(op.result.type)))
        case _:
            return None


@rewrite(Broadcast)
def broadcast_of_broadcast(op: Broadcast, rw: Rewriter) -> Value | None:
    """broadcast(x) = x if the shape is the same; broadcast(broadcast(x)) = broadcast(x)"""
    if op.src.type == op.result.type:
        return op.src
    match op.src.op:
        case Broadcast(x):
            return rw.insert(Broadcast(x, op.shape))
        case _:
            return None


@rewrite(Reshape)
def reshape_of_reshape(op: Reshape, rw: Rewriter) -> Value | None:
    """reshape(x) = x if the shape is the same; reshape(reshape(x)) = reshape(expand_dims(x)) =
    reshape(x)"""
    if op.src.type == op.result.type:
        return op.src
    match op.src.op:
        case Reshape(x) | ExpandDims(x):
            return rw.insert(Reshape(x, op.shape))
        case _:
            return None


def without_dropped_axes(op: Reshape, shape: Sequence[int]) -> tuple[int, ...] | None:
    """`shape`, which has the rank of the reshape's source, without the axes that the reshape drops.

    None unless the reshape only drops axes of length 1, and not all axes.
    """
    source, left = shape_of(op.src.type), list(op.shape)
    kept: list[int] = []
    for axis in reversed(range(len(source))):
        if left and left[-1] == source[axis]:
            left.pop()
            kept.append(shape[axis])
        elif source[axis] != 1:
            return None
    return None if left or not kept or len(kept) == len(source) else tuple(reversed(kept))


@rewrite(Reshape)
def reshape_of_broadcast(op: Reshape, rw: Rewriter) -> Value | None:
    """reshape(broadcast(x)) = broadcast(reshape(x)) where it drops axes of length 1"""
    match op.src.op:
        case Broadcast(x):
            shape = without_dropped_axes(op, shape_of(x.type))
            if shape is None:
                return None
            return rw.insert(Broadcast(rw.insert(Reshape(x, shape)), op.shape))
        case _:
            return None


# The ops that compute addresses and masks.
_INDEXING = (AddPtr, Add, Sub, Mul, Min, Max, And, Or, Cmp, Cast)


@rewrite(Reshape)
def reshape_of_index(op: Reshape, rw: Rewriter) -> Value | None:
    """reshape(f(x, y)) = f(reshape(x), reshape(y)) where it drops axes of length 1 and f(x, y) has
    one use, so that the address of a load without these axes is in canonical form"""
    source = op.src.op
    if not isinstance(source, _INDEXING) or len(op.src.users) != 1:
        return None
    if without_dropped_axes(op, shape_of(op.src.type)) is None:
        return None
    return rw.insert(like(source, [rw.insert(Reshape(v, op.shape)) for v in source.operands]))


@rewrite(Reshape)
def reshape_to_expand_dims(op: Reshape, rw: Rewriter) -> Value | None:
    """reshape(x) = expand_dims(x) where it inserts one axis of length 1"""
    source = shape_of(op.src.type)
    if not source or len(op.shape) != len(source) + 1:
        return None
    for axis in range(len(op.shape)):
        if op.shape[axis] == 1 and op.shape[:axis] + op.shape[axis + 1 :] == source:
            return rw.insert(ExpandDims(op.src, axis))
    return None


@rewrite(Permute)
def permute_of_permute(op: Permute, rw: Rewriter) -> Value | None:
    """permute(x) = x for the identity permutation; permute(permute(x, p), q) = permute(x, p[q])"""
    if op.order == tuple(range(len(op.order))):
        return op.src
    match op.src.op:
        case Permute(x, order):
            return rw.insert(Permute(x, tuple(order[i] for i in op.order)))
        case _:
            return None


@rewrite(Permute)
def permute_of_broadcast(op: Permute, rw: Rewriter) -> Value | None:
    """permute(broadcast(x)) = broadcast(permute(x))"""
    match op.src.op:
        case Broadcast(x):
            permuted = rw.insert(Permute(x, op.order))
            return rw.insert(Broadcast(permuted, shape_of(op.result.type)))
        case _:
            return None


@rewrite(Permute)
def permute_of_expand_dims(op: Permute, rw: Rewriter) -> Value | None:
    """permute(expand_dims(x, i)) = expand_dims(x, j) where the other axes keep their order"""
    match op.src.op:
        case ExpandDims(x, axis):
            rest = [i for i in op.order if i != axis]
            if rest == sorted(rest):
                return rw.insert(ExpandDims(x, op.order.index(axis)))
        case _:
            pass
    return None


@rewrite(Flip)
def flip_twice(op: Flip, rw: Rewriter) -> Value | None:
    """flip(flip(x, i), i) = x; flip(x, i) = x where axis i has length 1"""
    if shape_of(op.src.type)[op.axis] == 1:
        return op.src
    match op.src.op:
        case Flip(x, axis) if axis == op.axis:
            return x
        case _:
            return None


@rewrite(Split)
def split_of_join(op: Split, rw: Rewriter) -> tuple[Value, ...] | None:
    """split(join(a, b)) = a, b"""
    match op.src.op:
        case Join(a, b):
            return a, b
        case _:
            return None


@rewrite(Split)
def split_of_uniform(op: Split, rw: Rewriter) -> tuple[Value, ...] | None:
    """split(splat(x)) = splat(x), splat(x)"""
    same = uniform(op.src)
    if same is None:
        return None
    half = with_shape_of(rw, same, shape_of(op.results[0].type))
    return half, half


@rewrite(Split)
def split_of_broadcast(op: Split, rw: Rewriter) -> tuple[Value, ...] | None:
    """split(broadcast(x)) = broadcast(x), broadcast(x) without the last axis, along which x has one
    element"""
    match op.src.op:
        case Broadcast(x) if shape_of(x.type)[-1] == 1 and len(shape_of(x.type)) > 1:
            half = rw.insert(Reshape(x, shape_of(x.type)[:-1]))
            half = rw.insert(Broadcast(half, shape_of(op.results[0].type)))
            return half, half
        case _:
            return None


@rewrite(Join)
def join_of_equal(op: Join, rw: Rewriter) -> Value | None:
    """join(x, x) = broadcast(expand_dims(x)), which holds no elements of its own"""
    if op.lhs is not op.rhs or not shape_of(op.lhs.type):
        return None
    pair = rw.insert(ExpandDims(op.lhs, len(shape_of(op.lhs.type))))
    return rw.insert(Broadcast(pair, shape_of(op.result.type)))


@rewrite(Join)
def join_of_split(op: Join, rw: Rewriter) -> Value | None:
    """join(split(x)) = x"""
    source = op.lhs.op
    if isinstance(source, Split) and list(op.operands) == source.results:
        return source.src
    return None

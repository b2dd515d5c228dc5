"""Sums of the adjoints of lanes that access the same element.

    channel = at // pixels % channels           # lanes of a tile have a channel in common
    w = tl.load(w_ptr + channel)

A program that accumulates the gradient of `w` in memory must add to each element once. The lanes
are sorted by element, and a segmented scan sums the adjoints of each element in its last lane:

    element   3 3 3 0 0 1   sorted   0 0   1 3 3   3
    adjoint   a b c d e f   scan     d d+e f a a+b a+b+c
                            added      *   *       *

This is correct for any addresses. The order of additions is that of the lanes, so results are
deterministic. The combine function (k, v) (k', v') = (k', v' + (v if k = k' else 0)) is associative
where equal keys are adjacent: if the keys at the ends of two sorted ranges are equal, the second
range has no other.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from tilewright.autodiff.emitter import Emitter
from tilewright.ir.core import Region, Value
from tilewright.ir.types import I32, I64, dtype_of, shape_of, with_shape
from tilewright.ops import arith
from tilewright.ops.control import Yield
from tilewright.ops.memory import AddPtr
from tilewright.ops.reduce import Scan
from tilewright.ops.shape import Arange, Gather, Reshape, Splat
from tilewright.ops.sort import Sort
from tilewright.ops.view import View

MOST_LANES = 1 << 12  # of a tile that is sorted: stages of the network grow with log(n)^2
_LANE_BITS = 16  # of a sorted number, below those of the element
_NO_ELEMENT = 1 << 40  # greater than the number of any


class LaneSums(NamedTuple):
    """Sums by element, of some of the lanes of a tile of one dimension."""

    pointer: Value
    mask: Value
    sums: Value


def can_sum(pointer: Value) -> bool:
    """Whether lanes with these addresses can be sorted."""
    return 1 < prod(shape_of(pointer.type)) <= MOST_LANES


def summed_by_element(
    emit: Emitter, plain: Callable[[Value], Value], pointer: Value, base: Value,
    mask: Value | None, adjoint: Value,
) -> LaneSums:  # fmt: skip
    """Emit the sums of the adjoints of lanes with the same address.

    Args:
        plain: a value of the forward function, here.
        pointer: the addresses, in the forward function.
        base: of the array that the sums are added to.
        adjoint: zero in lanes that the mask excludes.
    """
    value, lanes = emit.builder.value, prod(shape_of(adjoint.type))
    shape = shape_of(adjoint.type)

    def number(n: int) -> Value:
        return emit.integer(n, with_shape(I64, (lanes,)))

    def flat(tile: Value) -> Value:
        return tile if shape == (lanes,) else value(Reshape(tile, (lanes,)))

    element = flat(_offsets(emit, plain, pointer, shape))
    if mask is not None:
        element = value(arith.Select(flat(mask), element, number(_NO_ELEMENT)))
    lane = value(Arange(0, lanes))
    wide = value(arith.Cast(lane, I64, "rtne"))
    key = value(arith.Or(value(arith.Shl(element, number(_LANE_BITS))), wide))
    key = value(Sort(key, descending=False, merge=False))
    element = value(arith.Shr(key, number(_LANE_BITS)))
    source = value(arith.And(key, number((1 << _LANE_BITS) - 1)))
    source = value(arith.Cast(source, I32, "rtne"))
    sums = _scanned(emit, element, value(Gather(flat(adjoint), source, 0)))
    following = value(arith.Add(lane, emit.integer(1, lane.type)))
    differs = emit.compare(element, value(Gather(element, following, 0)), "ne")
    is_end = emit.compare(lane, emit.integer(lanes - 1, lane.type), "eq")
    is_last = value(arith.Or(differs, is_end))
    within = emit.compare(element, number(_NO_ELEMENT), "ne")
    address = value(AddPtr(value(Splat(base, (lanes,))), element))
    return LaneSums(address, value(arith.And(is_last, within)), sums)


def _scanned(emit: Emitter, element: Value, adjoint: Value) -> Value:
    """The sum of each lane and those before it that have its element."""
    types = [dtype_of(element.type), dtype_of(adjoint.type)]
    region = Region([*types, *types])
    before, total, here, term = region.args
    with emit.builder.combining(region):
        is_same = emit.builder.value(arith.Cmp(before, here, "eq"))
        carried = emit.builder.value(arith.Select(is_same, total, emit.zeros(types[1])))
        emit.builder.insert(Yield([here, emit.builder.value(arith.Add(term, carried))]))
    scan = emit.builder.insert(Scan([element, adjoint], 0, False, region))
    return scan.results[1]


def _offsets(
    emit: Emitter, plain: Callable[[Value], Value], pointer: Value, shape: tuple[int, ...]
) -> Value:
    """The distance of addresses from the array's begin, in elements."""
    found = _offset(emit, plain, pointer)
    if found is None:
        found = emit.integer(0, I64)
    return found if shape_of(found.type) == shape else emit.builder.value(Splat(found, shape))


def _offset(emit: Emitter, plain: Callable[[Value], Value], pointer: Value) -> Value | None:
    """See `_offsets`; None is 0."""
    value, op = emit.builder.value, pointer.op
    match op:
        case AddPtr(ptr, offset):
            further = value(arith.Cast(plain(offset), I64, "rtne"))
            before = _offset(emit, plain, ptr)
            return further if before is None else value(arith.Add(before, further))
        case arith.Hint(src) | arith.Bitcast(src):
            return _offset(emit, plain, src)
        case View(src):
            found = _offset(emit, plain, src)
            return None if found is None else value(type(op)(found, **op.attributes))
        case _:
            return None

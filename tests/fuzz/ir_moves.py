"""What random tile IR has of elements that are moved several times over, and of chains of ops."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilewright.ir.core import Value
from tilewright.ir.types import I32, is_int, shape_of, with_element
from tilewright.ops.arith import Add, And, Mul, Or, Sub, Xor
from tilewright.ops.shape import (
    Arange,
    Broadcast,
    ExpandDims,
    Flip,
    Gather,
    Join,
    Permute,
    Reshape,
    Split,
)

if TYPE_CHECKING:
    from tests.fuzz.ir_generator import Generator

CHAINS = (4, 8, 8, 16, 16, 40, 120)  # ops


def factored(g: Generator, count: int) -> tuple[int, ...]:
    """Extents of a tile of so many elements."""
    first = g.choose([d for d in range(1, count + 1) if count % d == 0])
    return (first, count // first)


def moved(g: Generator) -> None:
    """Elements that are moved several times over: a part, in another order and shape."""
    src = g.tile()
    for _ in range(2 + g.below(3)):
        shape = shape_of(src.type)
        axis = g.below(len(shape))
        match g.below(4):
            case 0:
                src = g.build.value(Reshape(src, factored(g, prod(shape))))
            case 1:
                order = tuple(int(i) for i in g.rng.permutation(len(shape)))
                src = g.build.value(Permute(src, order))
            case 2:
                src = g.build.value(Flip(src, axis))
            case _:
                src = _part(g, src, axis)
    g.pool.append(src)


def _part(g: Generator, src: Value, axis: int) -> Value:
    """Some neighbouring places of an axis."""
    shape = shape_of(src.type)
    count = 1 + g.below(shape[axis])
    start = g.below(shape[axis] - count + 1)
    index: Value = g.build.value(Arange(start, start + count))
    for i in range(len(shape)):
        if i != axis:
            index = g.build.value(ExpandDims(index, i))
    index = g.build.value(Broadcast(index, (*shape[:axis], count, *shape[axis + 1 :])))
    return g.build.value(Gather(src, index, axis))


def chained(g: Generator) -> None:
    """Many ops of which each depends on the last two, also with their elements in other places."""
    first = g.any_value(lambda v: is_int(v.type))
    last, before = first, g.value(first.type)
    shape = shape_of(first.type)
    moving = g.below(2) == 1
    for _ in range(g.choose(CHAINS)):
        other = before
        if shape and moving and g.below(3) == 0:
            other = _reordered(g, before, shape)
        op = g.choose([Add, Sub, Mul, And, Or, Xor])
        last, before = g.build.value(op(last, other)), last
    g.pool.append(last)


def _reordered(g: Generator, value: Value, shape: tuple[int, ...]) -> Value:
    """The elements of a tile in another order, in a tile of the same shape."""
    match g.below(4):
        case 0:
            return g.build.value(Flip(value, g.below(len(shape))))
        case 1:
            flat = g.build.value(Flip(g.build.value(Reshape(value, (prod(shape),))), 0))
            return g.build.value(Reshape(flat, shape))
        case 2:
            order = tuple(int(i) for i in g.rng.permutation(len(shape)))
            return g.build.value(Reshape(g.build.value(Permute(value, order)), shape))
        case _ if shape[-1] % 2 == 0:
            pairs = g.build.value(Reshape(value, (*shape[:-1], shape[-1] // 2, 2)))
            odd_even = g.build.insert(Split(pairs)).results
            return g.build.value(Reshape(g.build.value(Join(*reversed(odd_even))), shape))
        case _:
            return value


def gathered(g: Generator) -> None:
    """Elements at places that data say, clamped."""
    src = g.tile()
    axis = g.below(len(shape_of(src.type)))
    index = g.value(with_element(src.type, I32))
    g.new(Gather(src, index, axis))

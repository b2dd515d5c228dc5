"""Loops of random tile IR: over ranges of any type, and with pointers that they move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.core import Op, Value
from tilewright.ir.types import I32, DType, with_shape
from tilewright.ops.arith import Add, And, Cast, Constant, Max
from tilewright.ops.control import For, Yield
from tilewright.ops.memory import AddPtr, Load
from tilewright.ops.shape import Splat

if TYPE_CHECKING:
    from tests.fuzz.ir_generator import Generator


def counted_loop(g: Generator) -> None:
    """A loop over a range of any type, of a few iterations."""
    index = g.choose((I32, I32, I32, *g.integers))
    start = first_of(g, index)
    # If the sum wraps, the loop has no iteration.
    stop = g.new(Add(start, g.new(Cast(g.count(4), index, "rtne"))))
    step = g.new(Constant(1 + g.below(2), index))
    if g.below(3) == 0:
        few = g.new(Max(g.count(4), g.new(Constant(1, I32)), propagate_nan=False))
        step = g.new(Cast(few, index, "rtne"))
    inits = g.carried()
    types = [v.type for v in inits]

    def fill(args: list[Value]) -> Op:
        g.ops(1 + g.below(5))
        return Yield([g.value(t) for t in types])

    body = g.region([index, *types], fill)
    g.take(For(start, stop, step, inits, 0, 0, (), body))


def first_of(g: Generator, index: DType) -> Value:
    """Where a loop begins: near 0, near an end of its type, or anywhere."""
    if g.below(2) or not g.features.extremes:
        return g.new(Constant(g.below(3), index))
    if g.below(3) == 0:
        return g.value(index)
    ends = (index.get_int_min_value(), index.get_int_max_value() - 8)
    return g.new(Constant(g.choose(ends) + g.below(9), index))


def pointer_loop(g: Generator) -> None:
    """A loop that carries a pointer, or a tile of them, and moves it."""
    array = g.choose(g.arrays)
    shape = g.choose([(), (8,), (4, 8)])
    start: Value = g.build.value(Splat(array, shape)) if shape else array
    # The pointer moves on from there by less than the other half.
    pointer = g.build.value(AddPtr(start, g.offsets(shape, g.readable // 2)))
    by = g.count(8)
    step = g.build.value(Splat(by, shape)) if shape else by
    if shape and g.below(3) == 0:
        seven = g.build.value(Constant(7, with_shape(I32, shape)))
        step = g.build.value(And(g.value(seven.type), seven))
    total = g.value(with_shape(array.type.element_ty, shape))
    # The element types of arrays may be ones without arithmetic: the last value wins there.
    element = array.type.element_ty

    def fill(args: list[Value]) -> Op:
        loaded = g.build.value(Load(args[1], None, None, "", "", False))
        kept = g.build.value(Add(args[2], loaded)) if element in g.arithmetic else loaded
        return Yield([g.build.value(AddPtr(args[1], step)), kept])

    zero = g.new(Constant(0, I32))
    one = g.new(Constant(1, I32))
    body = g.region([I32, pointer.type, total.type], fill)
    loop = For(zero, g.count(4), one, [pointer, total], 0, 0, (), body)
    g.build.insert(loop)
    g.pool.append(loop.results[1])
    if g.below(2):
        g.new(Load(loop.results[0], None, None, "", "", False))

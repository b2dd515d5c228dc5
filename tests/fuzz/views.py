"""Random views of tiles: elements that reshapes, permutations, slices, flips and broadcasts move.

    module = views_module(seed=7, views=range(20))
    args = views_args(seed=7, views=range(20))

A kernel computes many views, one after the other, each into a slot of its own in the output, so
that one compilation checks them all. A view is drawn from the seed and its own number alone:
``views_module(7, [13])`` is the kernel of the view that failed.

Extents are of any kind, mostly no powers of two. What moves is data from memory, positions
(which become addresses and masks after they were moved), and masks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import I8, I32, I64, DType, Pointer, dtype_of, shape_of
from tilewright.ops.arith import Add, And, Cast, Cmp, Constant, Mul, Or, Rem, Select, Sub
from tilewright.ops.control import Return, Yield
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.reduce import Reduce, Scan
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
)

Shape = tuple[int, ...]

LARGEST = 600  # elements of a tile
SLOT = 640  # elements of the output for each view
READABLE = 4096  # elements of each input
EXTENTS = (1, 2, 3, 3, 4, 5, 6, 7, 8, 8, 9, 12, 15, 16, 16, 17, 24, 32, 33, 36, 40, 48, 64, 72)
INPUTS = (I8, I32, I64)
OUTPUTS = (I8, I32, I64)


def views_module(seed: int, views: Iterable[int]) -> Module:
    """The kernel that computes these views."""
    fn = Function("kernel", [*map(Pointer, INPUTS), *map(Pointer, OUTPUTS), I32])
    build = Builder()
    with build.at_end(fn.body):
        for slot, view in enumerate(views):
            _View(build, fn, random.Random(f"{seed} {view}")).store(slot)
        build.insert(Return([]))
    return Module([fn])


def views_args(seed: int, views: Iterable[int]) -> list[Any]:
    """Arguments of `views_module`: inputs, outputs and a bound of masks."""
    rng = np.random.default_rng(seed)
    size = SLOT * len(list(views))
    inputs = [rng.integers(-100, 100, READABLE).astype(t.numpy) for t in INPUTS]
    outputs = [np.zeros(size, t.numpy) for t in OUTPUTS]
    return [*inputs, *outputs, np.int32(rng.integers(1, 40))]


class _View:
    """Draws one view, from its result backwards to what it is made of."""

    def __init__(self, build: Builder, fn: Function, rng: random.Random) -> None:
        self.build = build
        self.rng = rng
        self.inputs = fn.args[: len(INPUTS)]
        self.outputs = fn.args[len(INPUTS) : len(INPUTS) + len(OUTPUTS)]
        self.bound = fn.args[-1]

    def new(self, op: Op) -> Value:
        self.build.insert(op)
        return op.results[0]

    def one_in(self, n: int) -> bool:
        return self.rng.randrange(n) == 0

    # -- shapes ---------------------------------------------------------------------------------

    def shape(self) -> Shape:
        while True:
            found = tuple(self.rng.choice(EXTENTS) for _ in range(self.rng.randint(1, 3)))
            if 24 <= prod(found) <= LARGEST:
                return found

    def factored(self, count: int) -> Shape:
        """Extents of a tile of so many elements."""
        parts = [1] * self.one_in(4)
        for _ in range(self.rng.randrange(1, 4)):
            divisors = [d for d in range(1, count + 1) if count % d == 0]
            parts.append(self.rng.choice(divisors))
            count //= parts[-1]
        self.rng.shuffle(parts)
        parts.insert(self.rng.randrange(len(parts) + 1), count)
        return tuple(parts)

    # -- tiles ----------------------------------------------------------------------------------

    def tile(self, shape: Shape, depth: int) -> Value:
        """Any numbers, of type i32."""
        options = [self.loaded, self.loaded, self.places]
        if depth > 0:
            options += [self.loaded_at, self.loaded_at, self.chosen, self.combined, self.reduced]
            options += [self.scanned]
            options += [lambda s, d: self.moved(s, d, self.tile)] * 9
        return self.rng.choice(options)(shape, depth)

    def places(self, shape: Shape, depth: int) -> Value:
        """Numbers from 0 to below twice `LARGEST`: positions that were moved."""
        if depth > 0 and not self.one_in(4):
            return self.moved(shape, depth, self.places)
        match self.rng.randrange(3):
            case 0:
                return self.along(shape, self.rng.randrange(len(shape)))
            case 1:  # what a remainder or a quotient of the position would be
                factors = self.factored(prod(shape))
                places = self.along(factors, self.rng.randrange(len(factors)))
                return self.new(Reshape(places, shape))
            case _:
                return self.counted(shape)

    def counted(self, shape: Shape) -> Value:
        """Row-major positions."""
        count = prod(shape)
        found = self.new(Arange(0, count))
        return found if shape == (count,) else self.new(Reshape(found, shape))

    def along(self, shape: Shape, axis: int) -> Value:
        """Positions along an axis."""
        found = self.new(Arange(0, shape[axis]))
        for i in range(len(shape)):
            if i != axis:
                found = self.new(ExpandDims(found, i))
        return self.new(Broadcast(found, shape)) if shape_of(found.type) != shape else found

    def pointer(self, base: Value, places: Value, start: int) -> Value:
        shape = shape_of(places.type)
        first = self.new(Constant(start, places.type))
        return self.new(AddPtr(self.new(Splat(base, shape)), self.new(Add(places, first))))

    def read(self, places: Value, mask: Value | None, other: Value | None) -> Value:
        """What an input holds at these places, as i32."""
        which = self.rng.randrange(len(INPUTS))
        base, element = self.inputs[which], INPUTS[which]
        start = self.rng.randrange(READABLE - 2 * LARGEST)
        pointer = self.pointer(base, places, start)
        if other is not None:
            other = self.cast(other, element)
        found = self.new(Load(pointer, mask, other, "", "", False))
        return self.cast(found, I32)

    def cast(self, value: Value, to: DType) -> Value:
        return value if dtype_of(value.type) == to else self.new(Cast(value, to, "rtne"))

    def loaded(self, shape: Shape, depth: int) -> Value:
        return self.read(self.counted(shape), None, None)

    def loaded_at(self, shape: Shape, depth: int) -> Value:
        mask = self.mask(shape, self.rng.randrange(depth)) if self.rng.randrange(4) else None
        with_other = mask is not None and self.one_in(2)
        other = self.tile(shape, depth - 1) if with_other else None
        return self.read(self.places(shape, depth - 1), mask, other)

    def mask(self, shape: Shape, depth: int) -> Value:
        """Comparisons, of positions above all, and what is made of them."""
        if depth > 0 and self.one_in(3):
            return self.moved(shape, depth, self.mask)
        if depth > 0 and self.one_in(4):
            sides = self.mask(shape, depth - 1), self.mask(shape, depth - 1)
            return self.new(self.rng.choice([And, And, Or])(*sides))
        x = self.places(shape, depth) if self.rng.randrange(4) else self.tile(shape, depth)
        if self.one_in(2):
            limit = self.new(Splat(self.bound, shape))
        elif self.one_in(2):
            limit = self.tile(shape, depth)
        else:
            limit = self.new(Constant(self.rng.randrange(prod(shape) + 2), x.type))
        predicate = self.rng.choice(["lt", "lt", "le", "gt", "ge", "eq", "ne"])
        return self.new(Cmp(x, limit, predicate))

    def chosen(self, shape: Shape, depth: int) -> Value:
        sides = self.tile(shape, depth - 1), self.tile(shape, depth - 1)
        return self.new(Select(self.mask(shape, depth - 1), *sides))

    def combined(self, shape: Shape, depth: int) -> Value:
        x = self.tile(shape, depth - 1)
        if self.one_in(3):
            seven = self.new(Constant(self.rng.randint(2, 7), x.type))
            return self.new(self.rng.choice([Mul, Rem])(x, seven))
        return self.new(self.rng.choice([Add, Sub, Mul])(x, self.tile(shape, depth - 1)))

    def sums(self) -> Region:
        region = Region([I32, I32])
        inner = Builder()
        with inner.at_end(region):
            total = inner.value(Add(*region.args))
            inner.insert(Yield([total]))
        return region

    def reduced(self, shape: Shape, depth: int) -> Value:
        extent = self.rng.choice(EXTENTS)
        if extent * prod(shape) > LARGEST:
            return self.tile(shape, depth - 1)
        axis = self.rng.randrange(len(shape) + 1)
        src = self.tile((*shape[:axis], extent, *shape[axis:]), depth - 1)
        return self.new(Reduce([src], axis, self.sums()))

    def scanned(self, shape: Shape, depth: int) -> Value:
        src = self.tile(shape, depth - 1)
        return self.new(Scan([src], self.rng.randrange(len(shape)), self.one_in(2), self.sums()))

    # -- moves ----------------------------------------------------------------------------------

    def moved(self, shape: Shape, depth: int, make: Callable[[Shape, int], Value]) -> Value:
        """A tile of this shape whose elements were elsewhere in another, which `make` draws."""
        moves = [self.reshaped] * 3 + [self.permuted] * 3 + [self.sliced, self.flipped]
        moves += [self.broadcast, self.joined, self.halved, self.together]
        return self.rng.choice(moves)(shape, lambda s: make(s, depth - 1))

    def reshaped(self, shape: Shape, make: Callable[[Shape], Value]) -> Value:
        return self.new(Reshape(make(self.factored(prod(shape))), shape))

    def permuted(self, shape: Shape, make: Callable[[Shape], Value]) -> Value:
        order = self.rng.sample(range(len(shape)), len(shape))
        source = [0] * len(shape)
        for to, axis in enumerate(order):
            source[axis] = shape[to]
        return self.new(Permute(make(tuple(source)), tuple(order)))

    def flipped(self, shape: Shape, make: Callable[[Shape], Value]) -> Value:
        return self.new(Flip(make(shape), self.rng.randrange(len(shape))))

    def sliced(self, shape: Shape, make: Callable[[Shape], Value]) -> Value:
        """Some places of an axis, as a subscript of Python picks them."""
        axis = self.rng.randrange(len(shape))
        step, start = self.rng.choice((1, 1, 2, 3, -1, -2)), self.rng.randrange(9)
        extent = (shape[axis] - 1) * abs(step) + 1 + start + self.rng.randrange(3)
        if prod(shape) // shape[axis] * extent > LARGEST:
            return make(shape)
        src = make((*shape[:axis], extent, *shape[axis + 1 :]))
        index = self.along(shape, axis)
        index = self.new(Mul(index, self.new(Constant(step, index.type))))
        first = start if step > 0 else extent - 1 - start
        index = self.new(Add(index, self.new(Constant(first, index.type))))
        return self.new(Gather(src, index, axis))

    def broadcast(self, shape: Shape, make: Callable[[Shape], Value]) -> Value:
        axis = self.rng.randrange(len(shape))
        if len(shape) > 1 and self.one_in(2):
            src = self.new(ExpandDims(make((*shape[:axis], *shape[axis + 1 :])), axis))
        else:
            src = make((*shape[:axis], 1, *shape[axis + 1 :]))
        return self.new(Broadcast(src, shape)) if shape[axis] != 1 else src

    def joined(self, shape: Shape, make: Callable[[Shape], Value]) -> Value:
        if shape[-1] != 2 or len(shape) < 2:
            return self.flipped(shape, make)
        return self.new(Join(make(shape[:-1]), make(shape[:-1])))

    def halved(self, shape: Shape, make: Callable[[Shape], Value]) -> Value:
        if 2 * prod(shape) > LARGEST:
            return self.permuted(shape, make)
        split = Split(make((*shape, 2)))
        self.build.insert(split)
        return self.rng.choice(split.results)

    def together(self, shape: Shape, make: Callable[[Shape], Value]) -> Value:
        axis = self.rng.randrange(len(shape))
        if shape[axis] == 1:
            return self.reshaped(shape, make)
        first = self.rng.randrange(1, shape[axis])
        sides = [(*shape[:axis], n, *shape[axis + 1 :]) for n in (first, shape[axis] - first)]
        return self.new(Cat(make(sides[0]), make(sides[1]), axis))

    # -- stores ---------------------------------------------------------------------------------

    def places_once(self, shape: Shape, depth: int) -> Value:
        """Each position below the number of elements at one place."""
        if depth == 0 or self.one_in(2):
            return self.counted(shape)
        move = self.rng.choice([self.reshaped, self.permuted, self.flipped])
        return move(shape, lambda s: self.places_once(s, depth - 1))

    def store(self, slot: int) -> None:
        """Draw the view and store it in a slot of an output."""
        shape, depth = self.shape(), self.rng.randint(1, 4)
        value = self.tile(shape, depth)
        mask = self.mask(shape, self.rng.randrange(3)) if self.one_in(2) else None
        which = self.rng.randrange(len(OUTPUTS))
        base, element = self.outputs[which], OUTPUTS[which]
        pointer = self.pointer(base, self.places_once(shape, 2 * self.one_in(2)), slot * SLOT)
        self.build.insert(Store(pointer, self.cast(value, element), mask, "", ""))

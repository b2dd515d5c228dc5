"""Creation of tiles and changes of shape. Elements are in row-major order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, require
from tilewright.ir.index_map import (
    Fixed,
    IndexMap,
    Picked,
    Reversed,
    broadcast,
    concatenated,
    identity,
    permuted,
    replaced,
    reshaped,
    with_new_axis,
    without_axis,
)
from tilewright.ir.traits import FREE_LAYOUT, PURE
from tilewright.ir.types import (
    I32,
    Tile,
    Type,
    element_of,
    is_int,
    shape_of,
    with_shape,
)
from tilewright.ops.numeric import Array
from tilewright.ops.verifiers import verify_axis, verify_same_type
from tilewright.ops.view import View


class Arange(Op, name="tile.arange", traits=FREE_LAYOUT):
    """The integers start, start + 1, … end - 1.

    %0 = tile.arange start=0, end=64 : () -> 64xi32
    """

    start: int = attr()
    end: int = attr()

    def result_type(self) -> Tile:
        return Tile((self.end - self.start,), I32)

    def verify(self) -> None:
        require(
            self.end > self.start,
            self,
            "range",
            "end {e} is not above start {s}",
            e=self.end,
            s=self.start,
        )
        require(self.start >= -(2**31) and self.end <= 2**31, self, "range", "must fit in i32")

    def evaluate(self) -> Array:
        return np.arange(self.start, self.end, dtype=np.int32)


class Splat(View, name="tile.splat", traits=PURE):
    """A tile with all elements equal to the scalar `src`.

    %1 = tile.splat %0, shape=(4, 8,) : fp32 -> 4x8xfp32
    """

    shape: tuple[int, ...] = attr()

    def result_type(self) -> Type:
        return with_shape(self.src.type, self.shape)

    def verify(self) -> None:
        require(not isinstance(self.src.type, Tile), self, "operand-types", "takes a scalar")
        _verify_shape(self, self.shape)

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (broadcast((), self.shape),)

    def evaluate(self, src: Array) -> Array:
        return np.full(self.shape, src)


def _verify_shape(op: Op, shape: tuple[int, ...]) -> None:
    require(
        len(shape) > 0 and all(d > 0 for d in shape),
        op,
        "shape",
        "{shape} is not a tile's shape",
        shape=shape,
    )


class ExpandDims(View, name="tile.expand_dims", traits=PURE):
    """Inserts an axis of length 1 at position `axis` of the result.

    %1 = tile.expand_dims %0, axis=1 : 4xfp32 -> 4x1xfp32
    """

    axis: int = attr()

    def result_type(self) -> Type:
        shape = shape_of(self.src.type)
        return with_shape(self.src.type, (*shape[: self.axis], 1, *shape[self.axis :]))

    def verify(self) -> None:
        rank = len(shape_of(self.src.type))
        require(rank > 0, self, "operand-types", "takes a tile")
        require(
            0 <= self.axis <= rank,
            self,
            "axis-range",
            "axis {axis} is outside a result of rank {rank}",
            axis=self.axis,
            rank=rank + 1,
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (with_new_axis(shape_of(self.src.type), self.axis, 1),)

    def evaluate(self, src: Array) -> Array:
        return np.expand_dims(src, self.axis)


class Broadcast(View, name="tile.broadcast", traits=PURE):
    """Repeats the elements along axes of length 1; preserves the rank.

    %1 = tile.broadcast %0, shape=(4, 8,) : 4x1xfp32 -> 4x8xfp32
    """

    shape: tuple[int, ...] = attr()

    def result_type(self) -> Type:
        return with_shape(self.src.type, self.shape)

    def verify(self) -> None:
        source = shape_of(self.src.type)
        _verify_shape(self, self.shape)
        require(
            len(source) == len(self.shape),
            self,
            "rank",
            "{a} and {b} differ in rank",
            a=source,
            b=self.shape,
        )
        require(
            all(s in (1, d) for s, d in zip(source, self.shape, strict=True)),
            self,
            "shape",
            "{a} does not broadcast to {b}",
            a=source,
            b=self.shape,
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (broadcast(shape_of(self.src.type), self.shape),)

    def evaluate(self, src: Array) -> Array:
        return np.broadcast_to(src, self.shape)


class Reshape(View, name="tile.reshape", traits=PURE):
    """The same elements, in row-major order, in another shape; () is a scalar.

    %1 = tile.reshape %0, shape=(8, 4,) : 4x8xfp32 -> 8x4xfp32
    """

    shape: tuple[int, ...] = attr()

    def result_type(self) -> Type:
        return with_shape(self.src.type, self.shape)

    def verify(self) -> None:
        source = shape_of(self.src.type)
        require(
            all(d > 0 for d in self.shape) and prod(source) == prod(self.shape),
            self,
            "shape",
            "{a} and {b} differ in their number of elements",
            a=source,
            b=self.shape,
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (reshaped(shape_of(self.src.type), self.shape),)

    def evaluate(self, src: Array) -> Array:
        return src.reshape(self.shape)


class Permute(View, name="tile.permute", traits=PURE):
    """Permutes the axes: axis i of the result is axis `order[i]` of `src`.

    %1 = tile.permute %0, order=(1, 0,) : 4x8xfp32 -> 8x4xfp32
    """

    order: tuple[int, ...] = attr()

    def result_type(self) -> Type:
        shape = shape_of(self.src.type)
        require(
            sorted(self.order) == list(range(len(shape))) and shape,
            self,
            "order",
            "{order} is not a permutation of {rank} axes",
            order=self.order,
            rank=len(shape),
        )
        return with_shape(self.src.type, tuple(shape[i] for i in self.order))

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (permuted(shape_of(self.src.type), self.order),)

    def evaluate(self, src: Array) -> Array:
        return np.transpose(src, self.order)


class Join(Op, name="tile.join", traits=PURE):
    """Stacks two tiles along a new last axis of length 2.

    %2 = tile.join %0, %1 : (4xfp32, 4xfp32) -> 4x2xfp32
    """

    lhs: Value = operand()
    rhs: Value = operand()

    def result_type(self) -> Type:
        return with_shape(self.lhs.type, (*shape_of(self.lhs.type), 2))

    def verify(self) -> None:
        verify_same_type(self, self.lhs, self.rhs)

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        shape = shape_of(self.lhs.type)
        return tuple(with_new_axis(shape, len(shape), 2, side) for side in (0, 1))

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return np.stack([lhs, rhs], axis=-1)


class Split(View, name="tile.split", traits=PURE):
    """The two slices along a last axis of length 2: the inverse of `tile.join`.

    %1, %2 = tile.split %0 : 4x2xfp32 -> (4xfp32, 4xfp32)
    """

    def result_types(self) -> tuple[Type, ...]:
        half = with_shape(self.src.type, shape_of(self.src.type)[:-1])
        return half, half

    def verify(self) -> None:
        shape = shape_of(self.src.type)
        require(
            len(shape) > 0 and shape[-1] == 2,
            self,
            "shape",
            "the last axis of {shape} must have length 2",
            shape=shape,
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        shape = shape_of(self.src.type)
        return (without_axis(shape, len(shape) - 1, Fixed(result)),)

    def evaluate(self, src: Array) -> tuple[Array, ...]:
        return np.asarray(src[..., 0]), np.asarray(src[..., 1])


class Cat(Op, name="tile.cat", traits=PURE):
    """Concatenates `lhs` and `rhs` along an axis.

    %2 = tile.cat %0, %1, axis=0 : (4xfp32, 4xfp32) -> 8xfp32
    """

    lhs: Value = operand()
    rhs: Value = operand()
    axis: int = attr()

    def result_type(self) -> Type:
        a, b = shape_of(self.lhs.type), shape_of(self.rhs.type)
        require(
            element_of(self.lhs.type) == element_of(self.rhs.type),
            self,
            "operand-types",
            "element types differ",
        )
        verify_axis(self, self.axis, len(a))
        require(
            len(a) == len(b)
            and all(x == y for i, (x, y) in enumerate(zip(a, b, strict=True)) if i != self.axis),
            self,
            "shape",
            "{a} and {b} differ outside axis {axis}",
            a=a,
            b=b,
            axis=self.axis,
        )
        length = a[self.axis] + b[self.axis]
        return with_shape(self.lhs.type, (*a[: self.axis], length, *a[self.axis + 1 :]))

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        a, b = shape_of(self.lhs.type), shape_of(self.rhs.type)
        first, length = a[self.axis], a[self.axis] + b[self.axis]
        return (
            concatenated(a, self.axis, 0, length),
            concatenated(b, self.axis, first, length),
        )

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return np.concatenate([lhs, rhs], self.axis)


class Flip(View, name="tile.flip", traits=PURE):
    """Reverses the elements along an axis.

    %1 = tile.flip %0, axis=0 : 4xfp32 -> 4xfp32
    """

    axis: int = attr()

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        rank = len(shape_of(self.src.type))
        verify_axis(self, self.axis, rank)

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (replaced(shape_of(self.src.type), self.axis, Reversed(self.axis)),)

    def evaluate(self, src: Array) -> Array:
        return np.flip(src, self.axis)


class Gather(View, name="tile.gather", traits=PURE):
    """Gathers elements along an axis: result[.., k, ..] = src[.., index[.., k, ..], ..].

    An index outside the axis is clamped.

        %2 = tile.gather %0, %1, axis=0 : (8xfp32, 4xi32) -> 4xfp32
    """

    index: Value = operand()
    axis: int = attr()

    def result_type(self) -> Type:
        return with_shape(self.src.type, shape_of(self.index.type))

    def verify(self) -> None:
        a, b = shape_of(self.src.type), shape_of(self.index.type)
        require(is_int(self.index.type), self, "operand-types", "the index must be integers")
        verify_axis(self, self.axis, len(a))
        require(
            len(a) == len(b)
            and all(x == y for i, (x, y) in enumerate(zip(a, b, strict=True)) if i != self.axis),
            self,
            "shape",
            "{a} and {b} differ outside axis {axis}",
            a=a,
            b=b,
            axis=self.axis,
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        source, index = shape_of(self.src.type), shape_of(self.index.type)
        axes = replaced(source, self.axis, Picked(1)).axes
        return IndexMap(source, index, axes), identity(index)

    def evaluate(self, src: Array, index: Array) -> Array:
        last = src.shape[self.axis] - 1
        return np.take_along_axis(src, np.clip(index, 0, last).astype(np.int64), self.axis)


def broadcast_along(
    insert: Callable[[Op], Value], value: Value, axes: Iterable[int], shape: tuple[int, ...]
) -> Value:
    """A tile with axes inserted one after the other, along which its elements are repeated.

        broadcast_along(builder.value, row, (0,), (4, 8))  # a row of 8, four times

    Args:
        insert: inserts an op, and returns its result.
        shape: the result's; it may also be longer along axes of length 1 of the tile.
    """
    for axis in axes:
        value = insert(ExpandDims(value, axis))
    return value if shape_of(value.type) == shape else insert(Broadcast(value, shape))


def broadcast_from_axis(
    insert: Callable[[Op], Value], value: Value, axis: int, shape: tuple[int, ...]
) -> Value:
    """A tile of one axis, repeated along all others of a shape, as by `broadcast_along`."""
    others = (other for other in range(len(shape)) if other != axis)
    return broadcast_along(insert, value, others, shape)

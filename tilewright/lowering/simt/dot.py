"""Matrix products without matrix instructions: each thread computes its elements of the result.

Both operands are in shared memory, row by row, with the chunks of rows swizzled or not
(`families.shared_chunks`). A loop over K loads the elements of the thread's rows
and columns, each once, and accumulates their products. An iteration has groups of `STEPS` steps, as
many as `LONG_ITERATION` allows: loads of one group are in flight during products of another. The
size of the code does not depend on K. Adjacent elements are loaded together: of a row those of a
group, of columns those of a step. float16 accumulates in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.layout.families import shared_row_major
from tilewright.layout.linear import REGISTER, LinearLayout, dim_name
from tilewright.lowering.convert import cast
from tilewright.lowering.emit import I32, V, const, int_type, vector
from tilewright.lowering.simt.buffer_vectors import VECTOR_BYTES
from tilewright.lowering.simt.convert import from_bits
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.tile_access import layout_of
from tilewright.lowering.types import memory_type
from tilewright.ops.dot import Dot

STEPS = 4  # of K whose operands are loaded together
LONG_ITERATION = 1280  # of the loop over K: an estimate of its instructions
ELEMENT_WORK = 4  # instructions to load and convert an element


@emits(Dot)
def emit_dot(kernel: Kernel, op: Dot) -> None:
    b = kernel.b
    layout = layout_of(op.acc)
    rank = len(layout.shape)
    element = ir.dtype_of(op.acc.type)
    compute = ir.FP32 if element == ir.FP16 else element
    k = ir.shape_of(op.lhs.type)[-1]
    steps = STEPS if k % STEPS == 0 else 1
    left = _Reader(kernel, op.lhs, layout, rank - 2, rank - 1, compute)
    right = _Reader(kernel, op.rhs, layout, rank - 1, rank - 2, compute)
    sums = [cast(b, v, element, compute) for v in kernel.env[op.acc]]
    work = len(sums) + ELEMENT_WORK * (len(left.starts) + len(right.starts))
    per_iteration = steps_per_iteration(k, steps, work)
    if per_iteration == k:
        sums = _accumulate(kernel, left, right, range(0, k, steps), steps, sums)
    else:
        bounds = const(I32, 0), const(I32, k), const(I32, per_iteration)
        with b.loop(*bounds, sums, "disable") as loop:
            places = [b.add(loop.index, at) for at in range(0, per_iteration, steps)]
            loop.yield_(_accumulate(kernel, left, right, places, steps, loop.carried))
        sums = loop.results
    kernel.bind(op, [cast(b, v, compute, element) for v in sums])


def steps_per_iteration(k: int, steps: int, work: int) -> int:
    """The largest divisor of K, a multiple of `steps`, that `LONG_ITERATION` allows.

    Args:
        work: instructions of a step.
    """
    groups = k // steps
    most = max(1, LONG_ITERATION // (steps * work))
    return steps * max(n for n in range(1, min(groups, most) + 1) if groups % n == 0)


def _accumulate(
    kernel: Kernel,
    left: _Reader,
    right: _Reader,
    places: Iterable[V | int],
    steps: int,
    sums: Sequence[V],
) -> Registers:
    """Add the products of some steps from each place along K on."""
    for place in places:
        at = place if isinstance(place, V) else const(I32, place)
        for rows, columns in zip(left.read(at, steps), right.read(at, steps), strict=True):
            sums = [
                _multiply_add(kernel, x, y, z) for x, y, z in zip(rows, columns, sums, strict=True)
            ]
    return list(sums)


def _multiply_add(kernel: Kernel, x: V, y: V, z: V) -> V:
    b = kernel.b
    return b.fma(x, y, z) if x.type.is_float else b.add(b.mul(x, y), z)


class _Reader:
    """Reads, for each register of the result, the operand's elements at indices along K.

    Args:
        layout: the layout of the result.
        own_axis: the axis of the result along which this operand varies.
        other_axis: the operand's K axis.
        compute: the type to convert the elements to.
    """

    def __init__(
        self,
        kernel: Kernel,
        value: Value,
        layout: LinearLayout,
        own_axis: int,
        other_axis: int,
        compute: ir.DType,
    ) -> None:
        self.kernel = kernel
        self.type = value.type
        self.compute = compute
        self.element = int_type(memory_type(value.type).bits)
        shape = ir.shape_of(value.type)
        self.width = shape[-1]
        length = VECTOR_BYTES * 8 // self.element.bits
        # The elements of a chunk, and the number of chunks that are swizzled.
        self.chunk, self.chunks = length, min(max(1, self.width // length), shape[-2])
        if layout_of(value) == shared_row_major(shape):
            self.chunks = 1
        self.along_k = other_axis == len(shape) - 1  # K is where the result has the other axis
        self.base = kernel.scalar(value)
        axes = [*range(len(shape) - 2), own_axis]
        own = kernel.coordinates(layout, dim_name(own_axis))
        batches = [
            [
                kernel.b.mul(c, prod(shape[axis + 1 :]))
                for c in kernel.coordinates(layout, dim_name(axis))
            ]
            for axis in axes[:-1]
        ]
        # Successive registers have so many columns side by side; those of rows are not adjacent.
        self.run = layout.num_consecutive((own_axis,))
        self.keys = self._keys(layout, axes)
        self.own = {key: own[r] for r, key in enumerate(self.keys)}
        self.starts = {
            key: _sum(kernel.b.add, [const(I32, 0), *(batch[r] for batch in batches)])
            for r, key in enumerate(self.keys)
        }

    @staticmethod
    def _keys(layout: LinearLayout, axes: list[int]) -> list[tuple[int, ...]]:
        """A key for each register of the result, equal for registers that use the same element."""
        result: list[tuple[int, ...]] = []
        for register in range(layout.in_size(REGISTER)):
            place = layout.coordinates(layout.apply_flat(register))
            result.append(tuple(place[axis] for axis in axes))
        return result

    def read(self, k: V, steps: int) -> list[Registers]:
        """The elements at each of some indices from `k` on, which is a multiple of their number."""
        if self.along_k:
            rows = {
                key: self._adjacent(self._row(start, self.own[key]), k, steps)
                for key, start in self.starts.items()
            }
            return [[rows[key][step] for key in self.keys] for step in range(steps)]
        return [self._columns(self.kernel.b.add(k, step)) for step in range(steps)]

    def _columns(self, k: V) -> Registers:
        """The elements of a row of the operand."""
        keys = list(self.starts)
        loaded: dict[tuple[int, ...], V] = {}
        for at in range(0, len(keys), self.run):
            first = keys[at]
            row = self._row(self.starts[first], k)
            values = self._adjacent(row, self.own[first], self.run)
            loaded.update(zip(keys[at : at + self.run], values, strict=True))
        return [loaded[key] for key in self.keys]

    def _row(self, start: V, index: V) -> _Row:
        """A row of a matrix that begins at `start`."""
        b = self.kernel.b
        swizzle = b.mul(b.and_(index, self.chunks - 1), self.chunk)
        return _Row(b.add(start, b.mul(index, self.width)), swizzle)

    def _adjacent(self, row: _Row, column: V, count: int) -> Registers:
        """So many elements of a row from a column on, which is a multiple of their number."""
        b, size = self.kernel.b, self.element.bits // 8
        length = min(count, self.chunk)
        bits: list[V] = []
        for first in range(0, count, length):
            place = b.add(row.start, b.xor(b.add(column, first), row.swizzle))
            address = b.gep(self.element, self.base, place)
            loaded = b.load(vector(self.element, length), address, align=length * size)
            bits += [b.extract(loaded, i) for i in range(length)]
        values = from_bits(self.kernel, self.type, bits)
        return [cast(b, v, ir.dtype_of(self.type), self.compute) for v in values]


class _Row(NamedTuple):
    """The address of a row of an operand, and the offsets of its columns."""

    start: V
    swizzle: V


def _sum(add: Callable[[V, V], V], values: list[V]) -> V:
    total = values[0]
    for value in values[1:]:
        total = add(total, value)
    return total

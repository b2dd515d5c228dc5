"""The loads that a tensor copy (TMA) can perform, and the description of their tensors.

A tensor copy moves a box of a tensor to shared memory: one thread starts it, and the hardware
computes the addresses and fills elements outside of the tensor with zeros. The tensor must be
described when the kernel is launched (`LoadBlock`). So a load qualifies if it accesses a block with
strides and bounds that are sums of products of the kernel's arguments, and if its mask consists of
these bounds. The alignment that the hardware requires is proven here, or the load does not qualify.
"""

from __future__ import annotations

from math import gcd
from operator import attrgetter

from tilewright.analysis.blocks import Block, BlockAxis, BlockFinder
from tilewright.analysis.polynomial import Atom, Iteration, Polynomial
from tilewright.analysis.ranges import value_range
from tilewright.analysis.wraps import wrap_is_needed
from tilewright.base.record import record
from tilewright.ir.core import Function, Value
from tilewright.ir.types import Tile, dtype_of, is_int
from tilewright.layout.families import shared_hopper, shared_row_major
from tilewright.layout.linear import LinearLayout
from tilewright.ops import arith
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.memory import Load
from tilewright.ops.nvidia import MAX_MAP_RANK, Sum
from tilewright.targets.gpu.operands import SWIZZLED_ROWS

# PTX ISA, "Tensors", and cuTensorMapEncodeTiled.
ALIGNMENT = 16  # bytes, of the address and of strides
UNBOUNDED = (1 << 31) - 1  # extent of a dimension without a bound in the kernel
SWIZZLES = (128, 64, 32)  # bytes of a row of a box
MAX_BOX = 256  # elements of a box along a dimension
MAX_DEPTH = 16  # limit of the ops searched for a coordinate


@record
class TensorCopy:
    """A load as a tensor copy. The fields are those of `LoadBlock`, except for `begins`: the
    coordinates, as polynomials."""

    base: Value
    args: tuple[Value, ...]
    offset: Sum
    extents: tuple[Sum, ...]
    strides: tuple[Sum, ...]
    axes: tuple[int, ...]
    within: tuple[int, ...]
    begins: tuple[Polynomial, ...]

    def is_unbounded(self, axis: int) -> bool:
        """Whether the tensor has no known end along an axis of the tile."""
        return self.extents[self.axes[axis]] == ((UNBOUNDED, ()),)


class NoTensorCopy(Exception):
    """The reason why a load cannot be a tensor copy, as text of a remark."""


def tensor_copy(fn: Function, finder: BlockFinder, load: Load, buffer: LinearLayout) -> TensorCopy:
    """The tensor copy that is equivalent to a load.

    Args:
        buffer: the layout of the tile's buffer in shared memory.

    Raises:
        NoTensorCopy: there is none.
    """
    block = finder.of(load)
    if not isinstance(block, Block):
        raise NoTensorCopy(block.located(attrgetter("line")))
    if block.never or block.conditions or block.residual or block.other is not None:
        raise NoTensorCopy(
            "the mask does not consist of bounds of indices, or masked elements are not 0"
        )
    if load.volatile:
        raise NoTensorCopy("the load is volatile")
    return _Description(fn, finder, block).copy(_contiguous_axis(load, buffer))


def tensor_addition(fn: Function, finder: BlockFinder, op: AtomicRMW) -> TensorCopy:
    """The block to which an atomic addition adds a tile of two axes, the second one contiguous.

    Raises:
        NoTensorCopy: it is none.
    """
    block = finder.of(op)
    if not isinstance(block, Block):
        raise NoTensorCopy(block.located(attrgetter("line")))
    if block.never or block.conditions or block.residual:
        raise NoTensorCopy("the mask does not consist of bounds of indices")
    if any(axis.end is not None for axis in block.axes):
        raise NoTensorCopy("rows wrap around by a remainder (%) or a limit")
    copy = _Description(fn, finder, block).copy(1)
    if any(
        isinstance(a, Value) and isinstance(a.type, Tile) for b in copy.begins for a in b.atoms()
    ):
        raise NoTensorCopy("a coordinate depends on tiles")
    return copy


def _contiguous_axis(load: Load, buffer: LinearLayout) -> int:
    """The axis of adjacent elements in shared memory, which has one of the hardware's swizzles, or
    none if rows are stored one after the other."""
    shape = buffer.shape
    bits = dtype_of(load.result.type).primitive_bitwidth
    if len(shape) == 1 and shape[0] <= MAX_BOX and shape[0] * bits % (8 * ALIGNMENT) == 0:
        return 0
    if len(shape) == 2 and shape[0] * shape[1] * bits % (8 * 1024) == 0:
        for axis in (1, 0):
            if swizzle_of(shape, bits, axis, buffer) or has_plain_rows(shape, bits, axis, buffer):
                return axis
    raise NoTensorCopy("the buffer's layout is not one that a tensor copy writes")


def swizzle_of(shape: tuple[int, ...], bits: int, contiguous: int, buffer: LinearLayout) -> int:
    """The swizzle of a buffer's rows in bytes; 0 if it has no layout of the hardware."""
    if len(shape) != 2 or shape[1 - contiguous] < SWIZZLED_ROWS:
        return 0
    for swizzle in SWIZZLES:
        fits = shape[contiguous] * bits >= swizzle * 8
        if fits and shared_hopper(shape, bits, swizzle, contiguous == 0) == buffer:
            return swizzle
    return 0


def has_plain_rows(
    shape: tuple[int, ...], bits: int, contiguous: int, buffer: LinearLayout
) -> bool:
    """Whether a buffer of two axes is a box without a swizzle: too few rows for one, one after the
    other."""
    fits = shape[contiguous] <= MAX_BOX and shape[contiguous] * bits % (8 * ALIGNMENT) == 0
    few = len(shape) == 2 and shape[1 - contiguous] < SWIZZLED_ROWS
    return few and fits and shared_row_major(shape, (contiguous, 1 - contiguous)) == buffer


class _Description:
    """The description of a tensor in terms of the kernel's arguments."""

    def __init__(self, fn: Function, finder: BlockFinder, block: Block) -> None:
        self.fn = fn
        self.finder = finder
        self.block = block
        self.size = block.element_bytes
        self.args: list[Value] = []

    def copy(self, contiguous: int) -> TensorCopy:
        block = self.block
        if block.base.owner is not self.fn.body:
            raise NoTensorCopy("the tensor's address is not an argument of the kernel")
        if self._divisibility(block.base) % ALIGNMENT:
            raise NoTensorCopy(f"the address is not known to be a multiple of {ALIGNMENT} bytes")
        order = self._order(contiguous)
        if len(order) > MAX_MAP_RANK:
            raise NoTensorCopy(f"the tensor has {len(order)} dimensions")
        bounds = [self._bounds(axis) for axis in order]
        strides = tuple(self._stride(axis) for axis in order)
        extents = tuple(self._sum(upper, "a bound") for upper, _ in bounds)
        offset = self._sum(block.offset, "the address")
        self._require_aligned(block.offset)
        positive = self._positive(extents)
        return TensorCopy(
            block.base,
            tuple(self.args),
            offset,
            extents,
            strides,
            tuple(order.index(axis) for axis in block.axes if axis.tile_axis is not None),
            tuple(
                d
                for d, (axis, (_, from_zero)) in enumerate(zip(order, bounds, strict=True))
                if not from_zero and not _never_negative(axis.begin, positive)
            ),
            tuple(axis.begin for axis in order),
        )

    def _order(self, contiguous: int) -> list[BlockAxis]:
        """The dimensions, the contiguous one first."""
        first = next(a for a in self.block.axes if a.tile_axis == contiguous)
        if first.stride.constant != 1:
            raise NoTensorCopy(
                "elements that are adjacent in shared memory are not in global memory"
            )
        others = [a for a in reversed(self.block.axes) if a is not first]
        tile = [a for a in others if a.tile_axis is not None]
        return [first, *tile, *(a for a in others if a.tile_axis is None)]

    def _bounds(self, axis: BlockAxis) -> tuple[Polynomial, bool]:
        """The extent of a dimension, and whether indices below 0 are masked off."""
        upper = list(dict.fromkeys(axis.upper))
        if axis.end is not None:
            if wrap_is_needed(self.finder, self.block, axis):
                raise NoTensorCopy("rows that wrap around by a remainder (%) or a limit are used")
            upper = [axis.end]
        if len(upper) > 1 or any(low.constant != 0 for low in axis.lower):
            raise NoTensorCopy("an index has other bounds than 0 and one extent")
        return (upper[0] if upper else Polynomial.of(UNBOUNDED)), bool(axis.lower)

    def _stride(self, axis: BlockAxis) -> Sum:
        if axis.stride.constant != 1:
            self._require_aligned(axis.stride)
        return self._sum(axis.stride, "a stride")

    def _sum(self, polynomial: Polynomial, what: str) -> Sum:
        """A polynomial over arguments of the kernel."""
        found: list[tuple[int, tuple[int, ...]]] = []
        for coefficient, factors in polynomial.terms:
            if not all(isinstance(f, Value) and f.owner is self.fn.body for f in factors):
                raise NoTensorCopy(f"{what} is not known when the kernel is launched")
            found.append((coefficient, tuple(self._number(f) for f in factors)))
        return tuple(found)

    def _number(self, atom: Atom) -> int:
        assert isinstance(atom, Value)
        if atom not in self.args:
            self.args.append(atom)
        return self.args.index(atom)

    def _divisibility(self, arg: Atom) -> int:
        if not isinstance(arg, Value) or arg.owner is not self.fn.body:
            return 1
        return self.fn.arg_attrs[arg.index].get("divisibility", 1)

    def _require_aligned(self, elements: Polynomial) -> None:
        """Raise `NoTensorCopy` unless this number of elements is a multiple of 16 bytes."""
        for coefficient, factors in elements.terms:
            known = coefficient * self.size
            for factor in factors:
                known *= self._divisibility(factor)
            if gcd(known, ALIGNMENT) != ALIGNMENT:
                raise NoTensorCopy(f"rows are not known to begin at multiples of {ALIGNMENT} bytes")

    def _positive(self, extents: tuple[Sum, ...]) -> frozenset[Value]:
        """Arguments that are extents: the launch uses another variant where one is not positive."""
        alone = [terms[0] for terms in extents if len(terms) == 1]
        return frozenset(self.args[f[0]] for c, f in alone if c == 1 and len(f) == 1)


# -- signs ----------------------------------------------------------------------------------------


def _never_negative(polynomial: Polynomial, positive: frozenset[Value]) -> bool:
    return all(
        c > 0 and all(isinstance(f, Iteration) or _is_natural(f, positive, MAX_DEPTH) for f in fs)
        for c, fs in polynomial.terms
    )


def _is_natural(value: Value, positive: frozenset[Value], depth: int) -> bool:
    """Whether an integer is provably not negative, if sums and products do not wrap."""
    if value in positive or value_range(value)[0] >= 0:
        return True
    op = value.op
    if op is None or depth == 0:
        return False
    signs = [is_int(v.type) and _is_natural(v, positive, depth - 1) for v in op.operands]
    match op:
        case arith.Add() | arith.Mul() | arith.IntDiv() | arith.Min():
            return all(signs)
        case arith.Rem():
            return signs[0]  # has the sign of the dividend
        case arith.Max() | arith.And():
            return any(signs)
        case arith.Select():
            return all(signs[1:])
        case arith.Cast():
            source, result = dtype_of(op.operands[0].type), dtype_of(value.type)
            return signs[0] and result.primitive_bitwidth >= source.primitive_bitwidth
        case _:
            return False

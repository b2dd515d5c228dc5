"""What reductions and scans share: their combine regions, and moving elements between threads.

An *element* is a tuple of values, one of each operand of the op, all at one place of the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.ir.core import Region
from tilewright.layout.linear import LANE, WARP, LinearLayout
from tilewright.lowering.emit import I8, I32, Builder, LType, V, const, int_type, vector
from tilewright.lowering.simt.kernel import Kernel, Registers
from tilewright.lowering.types import memory_type
from tilewright.ops.reduce import Reduce, Scan
from tilewright.passes.layout_rules import reduced_layout

Element = tuple[V, ...]
FLAT = "flat"


def axis_bits(layout: LinearLayout, in_name: str, axis: int) -> list[int]:
    """The bits of an input that move along an axis of the tile, without copies."""
    extents = layout.shape
    low = prod(extents[axis + 1 :])
    within = (extents[axis] - 1) * low
    copies = layout.free_variables(in_name)
    return [
        bit
        for bit, column in enumerate(layout.bases(in_name))
        if column & within and not copies >> bit & 1
    ]


def inline(kernel: Kernel, region: Region, args: Sequence[V]) -> Element:
    """Emit a combine region on scalars; what it yields."""
    for arg, value in zip(region.args, args, strict=True):
        kernel.env[arg] = [value]
    kernel.region(region)
    return tuple(kernel.scalar(v) for v in region.terminator.operands)


def exchanged(b: Builder, value: V, move: Callable[[V], V]) -> V:
    """A value of any type, moved between lanes as 32-bit words."""
    kind = value.type
    if kind.is_ptr:
        return b.inttoptr(exchanged(b, b.ptrtoint(value), move))
    bits = b.bitcast(value, int_type(kind.bits))
    if kind.bits < 32:
        return b.bitcast(b.trunc(move(b.zext(bits, I32)), int_type(kind.bits)), kind)
    if kind.bits == 32:
        return b.bitcast(move(bits), kind)
    words = b.bitcast(bits, vector(I32, kind.bits // 32))
    for i in range(kind.bits // 32):
        words = b.insert(words, move(b.extract(words, i)), i)
    return b.bitcast(words, kind)


# -- between warps --------------------------------------------------------------------------------


def partial_bytes(op: Reduce | Scan, layout: LinearLayout, slots: int = 1) -> list[int]:
    """Bytes of shared memory that `share_partials` takes for each operand.

    Args:
        layout: of the operands.
        slots: how many elements a thread gives for each element of the reduced tile.
    """
    warps = 1 << len(axis_bits(layout, WARP, op.axis))
    count = prod(layout.shape) // layout.shape[op.axis] * warps * slots
    return [_aligned(count * memory_type(s.type).bits // 8) for s in op.srcs]


def _aligned(size: int) -> int:
    return (size + 15) // 16 * 16


@dataclass(frozen=True, slots=True)
class Partials:
    """What all the warps along an axis have found, where every thread can read it.

    Attributes:
        count: of warps.
    """

    kernel: Kernel
    count: int
    places: Sequence[V]
    bases: Sequence[V]
    types: Sequence[LType]

    def of(self, index: int, first: V | int = 0, count: int | None = None) -> list[Element]:
        """For an element of this thread those of `count` warps from the first, or of all, in the
        axis' order. They lie side by side, so that they are read as vectors.

        Args:
            first: a multiple of `count`.
        """
        b, count = self.kernel.b, count or self.count
        place = b.add(self.places[index], first)
        columns = [
            _read(b, base, place, count, kind)
            for base, kind in zip(self.bases, self.types, strict=True)
        ]
        return list(zip(*columns, strict=True))


def share_partials(
    kernel: Kernel,
    op: Reduce | Scan,
    layout: LinearLayout,
    elements: Sequence[Element],
    gives: V,
) -> Partials:
    """Write the elements of each warp to the scratch of the op, and wait for all warps.

    Args:
        layout: of the operands.
        elements: one or more for each register of the reduced tile, those of a register in a row.
        gives: whether this lane is the one that writes for its warp and its place.
    """
    b = kernel.b
    bits = axis_bits(layout, WARP, op.axis)
    count = 1 << len(bits)
    result = reduced_layout(layout, op.axis).flatten_outs(FLAT)
    registers = kernel.coordinates(result, FLAT)
    slots = len(elements) // len(registers)
    places = [
        b.add(b.mul(register, slots * count), slot * count)
        for register in registers
        for slot in range(slots)
    ]
    bases = _bases(kernel, op, partial_bytes(op, layout, slots))
    part = compressed(kernel, kernel.warp, bits)
    with kernel.only_if(b.and_(gives, _first_warp(kernel, result, bits))):
        for place, element in zip(places, elements, strict=True):
            for value, base in zip(element, bases, strict=True):
                _write(b, base, b.add(place, part), value)
    kernel.barrier()
    return Partials(kernel, count, places, bases, [value.type for value in elements[0]])


def compressed(kernel: Kernel, index: V, bits: Sequence[int]) -> V:
    """The number whose bit i is bit `bits[i]` of the index."""
    b = kernel.b
    found = const(I32, 0)
    for i, bit in enumerate(bits):
        found = b.or_(found, b.shl(b.and_(b.lshr(index, bit), 1), i))
    return found


def first_lane(kernel: Kernel, layout: LinearLayout) -> V:
    """Whether no lower lane of the warp holds the same elements."""
    return kernel.b.icmp("eq", kernel.b.and_(kernel.lane, layout.free_variables(LANE)), 0)


def _first_warp(kernel: Kernel, result: LinearLayout, bits: Sequence[int]) -> V:
    """Whether no lower warp has the same part of the same place."""
    copies = result.free_variables(WARP) & ~sum(1 << bit for bit in bits)
    return kernel.b.icmp("eq", kernel.b.and_(kernel.warp, copies), 0)


def _bases(kernel: Kernel, op: Reduce | Scan, sizes: Sequence[int]) -> list[V]:
    """Where the scratch of each operand begins."""
    base = kernel.shared.address(kernel.b, op)
    found: list[V] = []
    for size in sizes:
        found.append(base)
        base = kernel.b.gep(I8, base, size)
    return found


def _write(b: Builder, base: V, place: V, value: V) -> None:
    if value.type.bits == 1:
        value = b.zext(value, I8)
    b.store(value, b.gep(value.type, base, place))


def _read(b: Builder, base: V, place: V, count: int, kind: LType) -> Registers:
    """`count` values of a type, side by side."""
    boolean = kind.bits == 1
    kind = I8 if boolean else kind
    align = min(16, count * kind.bits // 8)
    row = b.load(vector(kind, count), b.gep(kind, base, place), align=align)
    values = [b.extract(row, i) for i in range(count)]
    return [b.icmp("ne", v, 0) for v in values] if boolean else values

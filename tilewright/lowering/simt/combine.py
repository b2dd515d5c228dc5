"""Shared parts of reductions and scans: combine regions, and exchange of elements between threads.

An *element* is a tuple of values, one of each operand of the op, at one position of the tile.
Elements move between the lanes of a warp by shuffles, and between warps through shared memory:
each warp writes its partial result (`share_partials`), and each thread reads those it combines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from tilewright.base.record import record
from tilewright.ir.core import Region, Value
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.emit import I8, I32, Builder, LType, V, const, int_type, vector
from tilewright.lowering.simt.kernel import Kernel, Registers
from tilewright.lowering.simt.shared_stores import shared_stores
from tilewright.lowering.types import memory_type
from tilewright.ops.reduce import Reduce, Scan
from tilewright.passes.layout_rules import reduced_layout

Element = tuple[V, ...]
FLAT = "flat"


def axis_bits(layout: LinearLayout, in_name: str, axis: int) -> list[int]:
    """The bits of `in_name` that move along an axis of the tile, without those that hold copies."""
    extents = layout.shape
    low = prod(extents[axis + 1 :])
    within = (extents[axis] - 1) * low
    copies = layout.free_variables(in_name)
    return [
        bit
        for bit, column in enumerate(layout.bases(in_name))
        if column & within and not copies >> bit & 1
    ]


def rows_of_registers(layout: LinearLayout, axis: int) -> list[list[int]]:
    """For each register of the reduced tile, the registers of the elements that are combined, in
    ascending order, without those that hold copies."""
    copies = layout.free_variables(REGISTER)
    along = sum(1 << bit for bit in axis_bits(layout, REGISTER, axis))
    rows: dict[int, list[int]] = {}
    for r in range(layout.in_size(REGISTER)):
        # In ascending order, without the bits along the axis: the order of the registers of the
        # reduced layout, whose bases are the remaining ones.
        if not r & copies:
            rows.setdefault(r & ~along, []).append(r)
    return list(rows.values())


def moves_alone(layout: LinearLayout, axis: int) -> bool:
    """Whether each bit of a register, lane or warp that moves along an axis moves one bit of the
    index, and along no other axis."""
    columns = [
        layout.bases(name)[bit]
        for name in (REGISTER, LANE, WARP)
        for bit in axis_bits(layout, name, axis)
    ]
    return all(column.bit_count() == 1 for column in columns)


def inline(
    kernel: Kernel, region: Region, args: Sequence[V], known: Mapping[Value, V] | None = None
) -> Element:
    """Emit a combine region on scalars, and return the yielded values.

    Args:
        known: results of ops that are not emitted.
    """
    for arg, value in zip(region.args, args, strict=True):
        kernel.env[arg] = [value]
    if not known:
        kernel.region(region)
    else:
        kernel.env.update({result: [value] for result, value in known.items()})
        for op in region:
            if not op.terminator and not (op.results and op.results[0] in known):
                kernel.op(op)
    return tuple(kernel.scalar(v) for v in region.terminator.operands)


def exchanged(b: Builder, value: V, move: Callable[[V], V]) -> V:
    """A value of any type, or a pair of 16 bits, moved between lanes by `move`, which takes words
    of 32 bits."""
    kind = value.type
    if kind.lanes:
        return b.bitcast(move(b.bitcast(value, I32)), kind)
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
    """Bytes of shared memory that `share_partials` requires for each operand.

    Args:
        layout: the layout of the operands.
        slots: partial results of a thread for each element of the reduced tile.
    """
    warps = 1 << len(axis_bits(layout, WARP, op.axis))
    count = prod(layout.shape) // layout.shape[op.axis] * warps * slots
    return [_aligned(count * memory_type(s.type).bits // 8) for s in op.srcs]


def _aligned(size: int) -> int:
    return (size + 15) // 16 * 16


@record
class Partials:
    """The partial results of all warps along an axis, in shared memory.

    Attributes:
        count: the number of these warps.
        places: for each partial result of this thread, the index of that of the first warp; those
            of the other warps follow it.
        bases: the address of each operand's array.
        types: the type of each operand's partial results.
    """

    kernel: Kernel
    count: int
    places: Sequence[V]
    bases: Sequence[V]
    types: Sequence[LType]

    def of(self, index: int, first: V | int = 0, count: int | None = None) -> list[Element]:
        """The partial results of `count` warps (default: all), in the order of the axis.

        They are adjacent in memory, so that they are read as vectors.

        Args:
            index: which partial result of this thread.
            first: the first warp, a multiple of `count`.
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
    writes: V | None,
    held: LinearLayout | None = None,
) -> Partials:
    """Write the partial results of each warp to the scratch of the op, and wait for all warps.

    Args:
        layout: the layout of the operands.
        elements: one or more for each register of the reduced tile, those of a register adjacent.
        writes: predicate: this lane writes on behalf of its warp; None if each does.
        held: the layout of the elements, if it is not that of the reduced tile.
    """
    b = kernel.b
    bits = axis_bits(layout, WARP, op.axis)
    count = 1 << len(bits)
    reduced = reduced_layout(layout, op.axis)
    held = reduced if held is None else held
    numbers = numbers_by_lanes(held)
    result = renumbered(reduced, numbers)

    def places_of(result: LinearLayout, slots: int) -> list[V]:
        size = result.out_size(FLAT) * count
        found = kernel.coordinates(result, FLAT)
        return [b.add(b.mul(n, count), slot * size) for n in found for slot in range(slots)]

    slots = len(elements) >> held.in_bits(REGISTER)
    places = places_of(result, slots)
    written = places if held == reduced else places_of(renumbered(held, numbers), slots)
    bases = _bases(kernel, op, partial_bytes(op, layout, slots))
    part = compressed(kernel, kernel.warp, bits)
    first = _first_warp(kernel, result, bits)
    mask = b.and_(writes, first) if writes is not None and first is not None else writes or first
    # If another op's threads may still access this memory, `shared_memory` has placed a barrier
    # before the op. The barrier below separates these writes from the reads of `Partials.of`.
    with shared_stores(kernel, len(written) * len(bases), mask) as store:
        for place, element in zip(written, elements, strict=True):
            for value, base in zip(element, bases, strict=True):
                stored = b.zext(value, I8) if value.type.bits == 1 else value
                store(stored, b.gep(stored.type, base, b.add(place, part)))
    kernel.barrier()
    return Partials(kernel, count, places, bases, [value.type for value in elements[0]])


def numbers_by_lanes(layout: LinearLayout) -> dict[int, int]:
    """Numbers for the elements of a tile so that those of adjacent lanes are adjacent: that of each
    power of two among the flat indices; empty if they are not to be numbered otherwise.

    In the order of the tile, 8 lanes that each hold 8 successive columns of it would access the
    same banks.
    """
    flat = layout.flatten_outs(FLAT)
    order = [c for name in (LANE, WARP, REGISTER) for c in flat.bases(name) if c]
    order = list(dict.fromkeys(order))
    if sum(order) != flat.out_size(FLAT) - 1 or any(c.bit_count() > 1 for c in order):
        return {}
    return {column: 1 << i for i, column in enumerate(order)}


def renumbered(layout: LinearLayout, numbers: dict[int, int]) -> LinearLayout:
    """The layout with flat indices, or with the numbers of `numbers_by_lanes` instead."""
    flat = layout.flatten_outs(FLAT)
    if not numbers:
        return flat
    columns = {name: [numbers.get(c, 0) for c in flat.bases(name)] for name, _ in flat.ins}
    return LinearLayout.from_columns(columns, {FLAT: flat.out_size(FLAT)})


def compressed(kernel: Kernel, index: V, bits: Sequence[int]) -> V:
    """The number whose bit i is bit `bits[i]` of lane or warp (as the x86 instruction pext)."""

    def make(b: Builder) -> V:
        found = const(I32, 0)
        for i, bit in enumerate(bits):
            found = b.or_(found, b.shl(b.and_(b.lshr(index, bit), 1), i))
        return found

    return kernel.once(("compressed", index, tuple(bits)), make)


def first_lane(kernel: Kernel, layout: LinearLayout) -> V | None:
    """Predicate: no lower lane of the warp holds the same elements; None if always true."""
    return kernel.all_clear(lanes=layout.free_variables(LANE))


def _first_warp(kernel: Kernel, result: LinearLayout, bits: Sequence[int]) -> V | None:
    """Predicate: no lower warp has the same partial result of the same element; None if always."""
    return kernel.all_clear(warps=result.free_variables(WARP) & ~sum(1 << bit for bit in bits))


def _bases(kernel: Kernel, op: Reduce | Scan, sizes: Sequence[int]) -> list[V]:
    """The address of each operand's part of the scratch."""
    base = kernel.shared.address(kernel.b, op)
    result: list[V] = []
    for size in sizes:
        result.append(base)
        base = kernel.b.gep(I8, base, size)
    return result


def _read(b: Builder, base: V, place: V, count: int, kind: LType) -> Registers:
    """`count` adjacent values of a type."""
    boolean = kind.bits == 1
    kind = I8 if boolean else kind
    align = min(16, count * kind.bits // 8)
    row = b.load(vector(kind, count), b.gep(kind, base, place), align=align)
    values = [b.extract(row, i) for i in range(count)]
    return [b.icmp("ne", v, 0) for v in values] if boolean else values

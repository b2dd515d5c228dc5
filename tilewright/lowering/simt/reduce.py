"""Reductions: over registers, then lanes by shuffles, then warps through shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tilewright.ir.core import Region
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.emit import I8, I32, Builder, V, const, int_type, vector
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.shared_memory import scratch
from tilewright.lowering.types import memory_type
from tilewright.ops.reduce import Reduce
from tilewright.passes.layout_rules import reduced_layout

Element = tuple[V, ...]  # of all operands at one place
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


@emits(Reduce)
def emit_reduce(kernel: Kernel, op: Reduce) -> None:
    layout = op.srcs[0].layout
    assert layout is not None
    elements = _over_registers(kernel, op, layout)
    b = kernel.b
    for bit in axis_bits(layout, LANE, op.axis):

        def move(word: V, mask: int = 1 << bit) -> V:
            return kernel.hw.shuffle_xor(b, word, mask)

        elements = [
            inline(kernel, op.combine, [*e, *(exchanged(b, v, move) for v in e)]) for e in elements
        ]
    if axis_bits(layout, WARP, op.axis):
        elements = _over_warps(kernel, op, layout, elements)
    kernel.bind(op, *(list(registers) for registers in zip(*elements, strict=True)))


def _over_registers(kernel: Kernel, op: Reduce, layout: LinearLayout) -> list[Element]:
    """One element for each register that remains."""
    sources = zip(*(kernel.env[s] for s in op.srcs), strict=True)
    copies = layout.free_variables(REGISTER)
    remaining = {r: e for r, e in enumerate(sources) if not r & copies}
    for bit in axis_bits(layout, REGISTER, op.axis):
        mask = 1 << bit
        remaining = {
            r: inline(kernel, op.combine, [*e, *remaining[r | mask]])
            for r, e in remaining.items()
            if not r & mask
        }
    return list(remaining.values())


# -- between warps --------------------------------------------------------------------------------


def _partial_bytes(op: Reduce) -> list[int]:
    """Bytes that the partial results of each operand take in shared memory."""
    layout = op.srcs[0].layout
    assert layout is not None
    partials = 1 << len(axis_bits(layout, WARP, op.axis))
    count = prod(layout.shape) // layout.shape[op.axis] * partials
    return [count * memory_type(s.type).bits // 8 for s in op.srcs]


@scratch(Reduce)
def reduce_scratch(op: Reduce) -> int:
    layout = op.srcs[0].layout
    if layout is None or not axis_bits(layout, WARP, op.axis):
        return 0
    return sum(_aligned(size) for size in _partial_bytes(op))


def _aligned(size: int) -> int:
    return (size + 15) // 16 * 16


def _over_warps(
    kernel: Kernel, op: Reduce, layout: LinearLayout, elements: list[Element]
) -> list[Element]:
    """Each warp writes its part; each thread reads the parts of all warps for its elements.

    The parts of one element lie side by side, so that they are read as one vector.
    """
    b, hw = kernel.b, kernel.hw
    bits = axis_bits(layout, WARP, op.axis)
    parts = 1 << len(bits)
    result = reduced_layout(layout, op.axis).flatten_outs(FLAT)
    places = [b.mul(place, parts) for place in kernel.coordinates(result, FLAT)]
    part = const(I32, 0)
    for i, bit in enumerate(bits):
        part = b.or_(part, b.shl(b.and_(b.lshr(kernel.warp, bit), 1), i))
    if op in kernel.shared.barriers:
        hw.barrier(b)
    base = kernel.shared.address(b, op)
    bases: list[V] = []
    for size in _partial_bytes(op):
        bases.append(base)
        base = b.gep(I8, base, _aligned(size))
    with kernel.only_if(_writes(kernel, result, bits)):
        for place, element in zip(places, elements, strict=True):
            for value, base in zip(element, bases, strict=True):
                _write(b, base, b.add(place, part), value)
    hw.barrier(b)
    found: list[Element] = []
    for place, element in zip(places, elements, strict=True):
        columns = [
            _read(b, base, place, parts, value) for value, base in zip(element, bases, strict=True)
        ]
        found.append(_tree(kernel, op.combine, list(zip(*columns, strict=True))))
    return found


def _writes(kernel: Kernel, result: LinearLayout, bits: Sequence[int]) -> V:
    """Whether this lane writes its warp's part: one of those with the same elements does."""
    b = kernel.b
    warps = result.free_variables(WARP) & ~sum(1 << bit for bit in bits)
    first_lane = b.icmp("eq", b.and_(kernel.lane, result.free_variables(LANE)), 0)
    return b.and_(first_lane, b.icmp("eq", b.and_(kernel.warp, warps), 0))


def _write(b: Builder, base: V, place: V, value: V) -> None:
    if value.type.bits == 1:
        value = b.zext(value, I8)
    b.store(value, b.gep(value.type, base, place))


def _read(b: Builder, base: V, place: V, count: int, like: V) -> Registers:
    """`count` values of the type of `like`, side by side."""
    boolean = like.type.bits == 1
    kind = I8 if boolean else like.type
    align = min(16, count * kind.bits // 8)
    row = b.load(vector(kind, count), b.gep(kind, base, place), align=align)
    values = [b.extract(row, i) for i in range(count)]
    return [b.icmp("ne", v, 0) for v in values] if boolean else values


def _tree(kernel: Kernel, combine: Region, elements: list[Element]) -> Element:
    """All elements combined pairwise; their number is a power of two."""
    while len(elements) > 1:
        elements = [
            inline(kernel, combine, [*left, *right])
            for left, right in zip(elements[::2], elements[1::2], strict=True)
        ]
    return elements[0]

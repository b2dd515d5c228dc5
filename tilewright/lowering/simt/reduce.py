"""Reductions: over registers, then over lanes by shuffles, then over warps through shared memory.

Output: the reduced tile, each element in every thread that held a part of it (`reduced_layout`),
with identical bits in all of them. A thread emits one combination for each register, log2(lanes)
shuffles for each element that remains, and one barrier if the axis is distributed over warps. In
that case, 8 or more remaining elements are distributed over the lanes, which takes one shuffle for
each. Sums that only select an element take less (`pick`).

If one instruction combines two elements of 16 bits, such as a sum of fp16, elements stay in the
pairs in which they are loaded from memory: a thread combines pairs along the axis, then forms pairs
of rows from the halves, which take one shuffle and one instruction per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.emit import Builder, V
from tilewright.lowering.registry import lowering_of
from tilewright.lowering.simt.combine import (
    Element,
    axis_bits,
    compressed,
    exchanged,
    first_lane,
    inline,
    partial_bytes,
    rows_of_registers,
    share_partials,
)
from tilewright.lowering.simt.in_order import combined_in_order, strides_of_indices
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.pick import emit_picked, picked
from tilewright.lowering.simt.shared_memory import scratch
from tilewright.lowering.simt.words import WORD_BITS, joined
from tilewright.lowering.types import register_type
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.passes.layout_rules import reduced_layout

PAIR = 2  # elements of 16 bits in a word

LEAST_STEPS = 3
"""The steps of a butterfly from which on elements are dealt out. On an H200, sums over 4 lanes
became slower (decoding from int8 keys 252 instead of 199 µs, a gated scan 117 instead of 97), those
over 8 and more faster (inverses of triangles of 32x32 65 instead of 91 µs)."""


@scratch(Reduce)
def reduce_scratch(op: Reduce) -> int:
    layout = op.srcs[0].layout
    if layout is None or not axis_bits(layout, WARP, op.axis):
        return 0
    return sum(partial_bytes(op, layout))


@emits(Reduce)
def emit_reduce(kernel: Kernel, op: Reduce) -> None:
    layout = op.srcs[0].layout
    assert layout is not None
    found = picked(kernel, op)
    if found is not None:
        elements = emit_picked(kernel, op, found)
        kernel.bind(op, *(list(registers) for registers in zip(*elements, strict=True)))
        return
    elements = _over_registers(kernel, op, layout)
    lanes = axis_bits(layout, LANE, op.axis)
    if axis_bits(layout, WARP, op.axis):
        elements = _over_warps(kernel, op, layout, elements, lanes)
    else:
        elements = _over_lanes(kernel, op, elements, lanes, alike=True)
    elements = _single(kernel.b, elements)
    kernel.bind(op, *(list(registers) for registers in zip(*elements, strict=True)))


# -- pairs ----------------------------------------------------------------------------------------


def _combines_pairs(kernel: Kernel, op: Reduce) -> bool:
    """Whether one instruction combines two elements of 16 bits."""
    inner = simple_combine(op)
    if inner is None or not inner.commutative or kernel.hw.packed(inner) != PAIR:
        return False
    return register_type(inner.results[0].type).bits * PAIR == WORD_BITS


def _combined(kernel: Kernel, op: Reduce, left: Element, right: Element) -> Element:
    """Two elements combined, or two pairs."""
    inner = simple_combine(op)
    if inner is None or not left[0].type.lanes:
        return inline(kernel, op.combine, [*left, *right])
    lower = lowering_of(type(inner), kernel.hw.name)
    assert lower is not None
    return (lower(kernel.b, inner, left[0], right[0]),)


def _paired(b: Builder, elements: Sequence[Element]) -> list[Element]:
    """Pairs of successive elements, whose number is even."""
    values = [value for (value,) in elements]
    return [(joined(b, values[i : i + PAIR]),) for i in range(0, len(values), PAIR)]


def _single(b: Builder, elements: list[Element]) -> list[Element]:
    """The elements of pairs, in order."""
    if not elements[0][0].type.lanes:
        return elements
    return [(b.extract(pair, i),) for (pair,) in elements for i in range(PAIR)]


def _halves(b: Builder, elements: list[Element]) -> tuple[list[Element], list[Element]]:
    """The lower and the upper half of elements; those of one pair are single."""
    if len(elements) == 1:
        elements = _single(b, elements)
    middle = len(elements) // 2
    return elements[:middle], elements[middle:]


# -- lanes and warps ------------------------------------------------------------------------------


def _over_lanes(
    kernel: Kernel, op: Reduce, elements: list[Element], bits: Sequence[int], alike: bool = False
) -> list[Element]:
    """Each element combined with those of the lanes whose index differs in `bits` (a butterfly).

    Args:
        alike: whether all of these lanes must end with the same bits. In a butterfly each lane has
            its own element on the left; unless the combination is commutative, results may differ
            in rounding, and copies of an element that differ would let threads diverge at a branch
            on it, which is undefined, up to a deadlock at the next barrier.
    """
    b = kernel.b
    for bit in bits:

        def move(word: V, mask: int = 1 << bit) -> V:
            return kernel.hw.shuffle_xor(b, word, mask)

        elements = [_combined(kernel, op, e, _moved(b, e, move)) for e in elements]
    inner = simple_combine(op)
    if not bits or not alike or (inner is not None and inner.commutative):
        return elements
    first = b.and_(kernel.lane, ~sum(1 << bit for bit in bits))
    return [_moved(b, e, lambda word: kernel.hw.shuffle(b, word, first)) for e in elements]


def _distributed(
    kernel: Kernel, op: Reduce, elements: list[Element], bits: Sequence[int]
) -> tuple[list[Element], LinearLayout]:
    """Each element combined with those of the other lanes along the axis, in one of these lanes if
    there are several elements; and the layout of the result.

    At each step of the butterfly, of two lanes one continues with the lower half of the elements,
    and the other with the upper half. As many elements as lanes, or more, take less than a shuffle
    each, instead of one at each step. They are combined in the same order but for the two sides,
    which a commutative combination may exchange.
    """
    b = kernel.b
    layout = op.srcs[0].layout
    assert layout is not None
    held, inner = reduced_layout(layout, op.axis), simple_combine(op)
    remaining = list(bits)
    if len(bits) < LEAST_STEPS or inner is None or not inner.commutative:
        return _over_lanes(kernel, op, elements, bits), held
    if held.free_variables(REGISTER):
        return _over_lanes(kernel, op, elements, bits), held
    while remaining and held.bases(REGISTER) and not held.bases(LANE)[remaining[0]]:
        bit = remaining.pop(0)
        lower = kernel.all_clear(lanes=1 << bit)
        assert lower is not None
        halves = _halves(b, elements)

        def move(word: V, mask: int = 1 << bit) -> V:
            return kernel.hw.shuffle_xor(b, word, mask)

        elements = []
        for (x,), (y,) in zip(*halves, strict=True):
            kept, passed = b.select(lower, x, y), b.select(lower, y, x)
            elements.append(_combined(kernel, op, (kept,), (exchanged(b, passed, move),)))
        held = _with_lane(held, bit)
    return _over_lanes(kernel, op, elements, remaining), held


def _with_lane(layout: LinearLayout, bit: int) -> LinearLayout:
    """The layout in which a bit of the lane takes the place of the highest bit of the register."""
    columns = {name: list(layout.bases(name)) for name, _ in layout.ins}
    columns[LANE][bit] = columns[REGISTER].pop()
    return LinearLayout.from_columns(
        columns, {name: layout.out_size(name) for name, _ in layout.outs}
    )


def _moved(b: Builder, element: Element, move: Callable[[V], V]) -> Element:
    return tuple(exchanged(b, value, move) for value in element)


def _over_warps(
    kernel: Kernel,
    op: Reduce,
    layout: LinearLayout,
    elements: list[Element],
    lanes_along: Sequence[int],
) -> list[Element]:
    """Each element combined with those of the other lanes, and then the other warps, along the
    axis.

    With few warps, each thread reads and combines all partial results; with many, lanes that hold
    copies of the same element read a part each, and combine the parts by shuffles.
    """
    b, reduced = kernel.b, reduced_layout(layout, op.axis)
    dealt, held = _distributed(kernel, op, elements, lanes_along)
    first_lanes = first_lane(kernel, held)
    partials = share_partials(kernel, op, layout, _single(b, dealt), first_lanes, held)
    lanes = _sharing_lanes(reduced, partials.count)
    each = partials.count >> len(lanes)
    first = b.mul(compressed(kernel, kernel.lane, lanes), each)
    rows = range(len(elements) * max(1, elements[0][0].type.lanes))
    found = [_tree(kernel, op, partials.of(i, first, each)) for i in rows]
    return _over_lanes(kernel, op, found, lanes, alike=True)


MOST_WARPS = 8
"""The most warps whose partial results every thread reads by itself. With 32 warps, cross entropy
of rows of 128256 takes 870 µs on an H200 if every thread reads all, and 830 µs if lanes share the
work; with 8 warps there is no difference."""

FEW_WARPS = 4  # partial results of fp32 that one instruction reads


def _sharing_lanes(reduced: LinearLayout, count: int) -> list[int]:
    """The lane bits over which reading the partial results of `count` warps is distributed."""
    if count <= MOST_WARPS:
        return []
    copies = reduced.free_variables(LANE)
    bits = [bit for bit in range(copies.bit_length()) if copies >> bit & 1]
    return bits[: (count // FEW_WARPS).bit_length() - 1]


CHAINS = 4
"""Independent chains in which the elements of a thread are combined. Compared to a tree, each
element is used in the order of its computation, which keeps live ranges short, and sums of products
contract to fused multiply-adds; compared to one chain, latencies overlap."""


def _over_registers(kernel: Kernel, op: Reduce, layout: LinearLayout) -> list[Element]:
    """One element for each register of the reduced tile, or one pair for two of them."""
    strides = strides_of_indices(op)
    if strides:
        return combined_in_order(kernel, op, strides)
    rows = [
        [tuple(kernel.env[v][r] for v in op.srcs) for r in row]
        for row in rows_of_registers(layout, op.axis)
    ]
    if not _combines_pairs(kernel, op):
        return [_chained(kernel, op, row) for row in rows]
    return _over_pairs(kernel, op, rows, within_rows=_within_rows(layout, op.axis))


def _within_rows(layout: LinearLayout, axis: int) -> bool:
    """Whether adjacent registers have successive elements along an axis."""
    copies = layout.free_variables(REGISTER)
    lowest = ((copies + 1) & ~copies).bit_length() - 1
    return lowest in axis_bits(layout, REGISTER, axis)


def _over_pairs(
    kernel: Kernel, op: Reduce, rows: list[list[Element]], *, within_rows: bool
) -> list[Element]:
    """As `_over_registers`: pairs along the axis, if adjacent registers are `within_rows`, or of
    two rows."""
    b = kernel.b
    if within_rows:
        rows = [_halved(kernel, op, row) for row in rows]
    if len(rows) == 1:
        return [_chained(kernel, op, rows[0])]
    pairs = zip(rows[::PAIR], rows[1::PAIR], strict=True)
    columns = [[p for both in zip(*pair, strict=True) for p in _paired(b, both)] for pair in pairs]
    return [_chained(kernel, op, column) for column in columns]


def _halved(kernel: Kernel, op: Reduce, row: list[Element]) -> list[Element]:
    """The two elements that remain of a row, whose pairs of adjacent elements are combined."""
    b = kernel.b
    return _single(b, [_chained(kernel, op, _paired(b, row), CHAINS // PAIR)])


def _chained(kernel: Kernel, op: Reduce, elements: list[Element], count: int = CHAINS) -> Element:
    """All elements combined, in `count` chains; their number is a power of two."""
    chains = elements[:count]
    for i, element in enumerate(elements[count:]):
        chains[i % count] = _combined(kernel, op, chains[i % count], element)
    return _tree(kernel, op, chains)


def _tree(kernel: Kernel, op: Reduce, elements: list[Element]) -> Element:
    """All elements combined pairwise; their number is a power of two."""
    while len(elements) > 1:
        elements = [
            _combined(kernel, op, left, right)
            for left, right in zip(elements[::2], elements[1::2], strict=True)
        ]
    return elements[0]

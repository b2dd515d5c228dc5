"""Reductions: over registers, then lanes by shuffles, then warps through shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.core import Region
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.emit import Builder, V
from tilewright.lowering.simt.combine import (
    Element,
    axis_bits,
    compressed,
    exchanged,
    first_lane,
    inline,
    partial_bytes,
    share_partials,
)
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.shared_memory import scratch
from tilewright.ops.reduce import Reduce, simple_combine
from tilewright.passes.layout_rules import reduced_layout


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
    elements = _over_registers(kernel, op, layout)
    lanes = axis_bits(layout, LANE, op.axis)
    if axis_bits(layout, WARP, op.axis):
        elements = _over_warps(kernel, op, layout, _over_lanes(kernel, op, elements, lanes))
    else:
        elements = _over_lanes(kernel, op, elements, lanes, alike=True)
    kernel.bind(op, *(list(registers) for registers in zip(*elements, strict=True)))


def _over_lanes(
    kernel: Kernel, op: Reduce, elements: list[Element], bits: Sequence[int], alike: bool = False
) -> list[Element]:
    """Each combined with those of the lanes whose numbers differ in these bits.

    Args:
        alike: the lanes then have the same, though each had its own on the left: a function may
            give other last digits for operands that are swapped, and threads that take different
            branches wait for each other for ever.
    """
    b = kernel.b
    for bit in bits:

        def move(word: V, mask: int = 1 << bit) -> V:
            return kernel.hw.shuffle_xor(b, word, mask)

        elements = [inline(kernel, op.combine, [*e, *_moved(b, e, move)]) for e in elements]
    inner = simple_combine(op)
    if not bits or not alike or (inner is not None and inner.commutative):
        return elements
    first = b.and_(kernel.lane, ~sum(1 << bit for bit in bits))
    return [_moved(b, e, lambda word: kernel.hw.shuffle(b, word, first)) for e in elements]


def _moved(b: Builder, element: Element, move: Callable[[V], V]) -> Element:
    return tuple(exchanged(b, value, move) for value in element)


def _over_warps(
    kernel: Kernel, op: Reduce, layout: LinearLayout, elements: list[Element]
) -> list[Element]:
    """Each combined with those of the warps along the axis.

    A thread combines what a few warps have found. Where there are more, lanes that want the same
    share the work.
    """
    b, reduced = kernel.b, reduced_layout(layout, op.axis)
    partials = share_partials(kernel, op, layout, elements, first_lane(kernel, reduced))
    lanes = _sharing_lanes(reduced, partials.count)
    each = partials.count >> len(lanes)
    first = b.mul(compressed(kernel, kernel.lane, lanes), each)
    found = [_tree(kernel, op.combine, partials.of(i, first, each)) for i in range(len(elements))]
    return _over_lanes(kernel, op, found, lanes, alike=True)


MOST_WARPS = 8
"""More than so many warps' results are not all read by each thread. With 32 warps cross entropy of
rows of 128256 took 870 µs on an H200 when they were, and takes 830; with 8 there is no difference.
"""

FEW_WARPS = 4  # of fp32, results that one instruction reads


def _sharing_lanes(reduced: LinearLayout, count: int) -> list[int]:
    """The bits of lanes that share the results of so many warps among them."""
    if count <= MOST_WARPS:
        return []
    copies = reduced.free_variables(LANE)
    bits = [bit for bit in range(copies.bit_length()) if copies >> bit & 1]
    return bits[: (count // FEW_WARPS).bit_length() - 1]


CHAINS = 4
"""Elements of a thread are combined in so many chains: one step waits for the last of its chain
alone, each element is needed once, in the order in which it may be computed, and a sum of products
is a chain of fused ones."""


def _over_registers(kernel: Kernel, op: Reduce, layout: LinearLayout) -> list[Element]:
    """One element for each register that remains."""
    copies = layout.free_variables(REGISTER)
    along = sum(1 << bit for bit in axis_bits(layout, REGISTER, op.axis))
    groups: dict[int, list[Element]] = {}
    for r, element in enumerate(zip(*(kernel.env[s] for s in op.srcs), strict=True)):
        if not r & copies:
            groups.setdefault(r & ~along, []).append(element)
    return [_chained(kernel, op.combine, elements) for elements in groups.values()]


def _chained(kernel: Kernel, combine: Region, elements: list[Element]) -> Element:
    """All elements combined; their number is a power of two."""
    chains = elements[:CHAINS]
    for i, element in enumerate(elements[CHAINS:]):
        chains[i % CHAINS] = inline(kernel, combine, [*chains[i % CHAINS], *element])
    return _tree(kernel, combine, chains)


def _tree(kernel: Kernel, combine: Region, elements: list[Element]) -> Element:
    """All elements combined pairwise; their number is a power of two."""
    while len(elements) > 1:
        elements = [
            inline(kernel, combine, [*left, *right])
            for left, right in zip(elements[::2], elements[1::2], strict=True)
        ]
    return elements[0]

"""Reductions: over registers, then lanes by shuffles, then warps through shared memory."""

from __future__ import annotations

from tilewright.ir.core import Region
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.emit import V
from tilewright.lowering.simt.combine import (
    Element,
    axis_bits,
    exchange_partials,
    exchanged,
    first_lane,
    inline,
    partial_bytes,
)
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.shared_memory import scratch
from tilewright.ops.reduce import Reduce
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
    b = kernel.b
    for bit in axis_bits(layout, LANE, op.axis):

        def move(word: V, mask: int = 1 << bit) -> V:
            return kernel.hw.shuffle_xor(b, word, mask)

        elements = [
            inline(kernel, op.combine, [*e, *(exchanged(b, v, move) for v in e)]) for e in elements
        ]
    if axis_bits(layout, WARP, op.axis):
        gives = first_lane(kernel, reduced_layout(layout, op.axis))
        parts = exchange_partials(kernel, op, layout, elements, gives)
        elements = [_tree(kernel, op.combine, part) for part in parts]
    kernel.bind(op, *(list(registers) for registers in zip(*elements, strict=True)))


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

"""`tile.map`: each thread executes the body for each group of `op.pack` of its registers."""

from __future__ import annotations

from tilewright.lowering.emit import V
from tilewright.lowering.simt.combine import Element, inline
from tilewright.lowering.simt.kernel import Kernel, emits, register_count
from tilewright.ops.map import Map


@emits(Map)
def emit_map(kernel: Kernel, op: Map) -> None:
    """The layout keeps the registers of a group adjacent, lowest element first: `packed_layout`."""
    sources = [kernel.env[s] for s in op.srcs]
    count = len(sources[0])
    found: list[list[V]] = [[] for _ in op.results]
    done: dict[tuple[int, ...], Element] = {}
    for first in range(0, count, op.pack):
        args = [v for source in sources for v in source[first : first + op.pack]]
        key = tuple(map(id, args))
        if key not in done:
            done[key] = inline(kernel, op.body, args)
        for i, registers in enumerate(found):
            registers += done[key][i * op.pack : (i + 1) * op.pack]
    assert all(register_count(r) == count for r in op.results)
    kernel.bind(op, *found)

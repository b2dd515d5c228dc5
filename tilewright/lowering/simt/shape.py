"""Creation and reshaping of tiles.

No op here moves data between threads: layout assignment gives results the layout in which each
register is a register of an operand, so that emission only renames registers.
"""

from __future__ import annotations

from tilewright.ir.core import Op
from tilewright.layout.linear import LinearLayout, dim_name
from tilewright.layout.shape import split
from tilewright.lowering.emit import I32, V, const
from tilewright.lowering.simt.kernel import Kernel, emits, register_count, with_unread
from tilewright.ops import shape


def layout_of(op: Op) -> LinearLayout:
    """The layout of the op's only result."""
    layout = op.results[0].layout
    assert layout is not None, f"{op.name} has no layout"
    return layout


@emits(shape.Arange)
def emit_arange(kernel: Kernel, op: shape.Arange) -> None:
    b, read = kernel.b, kernel.read_registers(op.result)
    places = kernel.coordinates(layout_of(op), dim_name(0), kernel.unread_bits(op.result))
    sums = {register: b.add(places[register], const(I32, op.start)) for register in read}
    kernel.bind(op, with_unread(sums, register_count(op.result)))


@emits(shape.Splat)
def emit_splat(kernel: Kernel, op: shape.Splat) -> None:
    kernel.bind(op, [kernel.scalar(op.src)] * register_count(op.result))


@emits(shape.ExpandDims, shape.Permute)
def emit_same_registers(kernel: Kernel, op: shape.ExpandDims | shape.Permute) -> None:
    kernel.bind(op, kernel.env[op.src])


@emits(shape.Reshape)
def emit_reshape(kernel: Kernel, op: shape.Reshape) -> None:
    kernel.bind(op, kernel.env[op.src][: register_count(op.result)])


@emits(shape.Broadcast)
def emit_broadcast(kernel: Kernel, op: shape.Broadcast) -> None:
    """Each register is the source's register for the same element, in the same thread."""
    layout, source = layout_of(op), op.src.layout
    assert source is not None
    extents = source.shape
    holder = {
        source.coordinates(source.apply_flat(r)): value
        for r, value in enumerate(kernel.env[op.src])
    }

    def find(register: int) -> V:
        place = layout.coordinates(layout.apply_flat(register))
        return holder[tuple(c if n > 1 else 0 for c, n in zip(place, extents, strict=True))]

    kernel.bind(op, [find(r) for r in range(register_count(op.result))])


@emits(shape.Join)
def emit_join(kernel: Kernel, op: shape.Join) -> None:
    """Register 2r is register r of the first tile, 2r + 1 that of the second."""
    pairs = zip(kernel.env[op.lhs], kernel.env[op.rhs], strict=True)
    kernel.bind(op, [value for pair in pairs for value in pair])


@emits(shape.Split)
def emit_split(kernel: Kernel, op: shape.Split) -> None:
    """One bit of the register index selects the half."""
    layout = op.src.layout
    assert layout is not None
    found = split(layout)
    assert found is not None, "layout assignment places the last axis in a register bit"
    _, bit = found
    values = list(enumerate(kernel.env[op.src]))
    halves = [[v for r, v in values if r >> bit & 1 == half] for half in (0, 1)]
    kernel.bind(op, *halves)


@emits(shape.Cat)
def emit_cat(kernel: Kernel, op: shape.Cat) -> None:
    """The second tile is in the upper half of the registers."""
    kernel.bind(op, [*kernel.env[op.lhs], *kernel.env[op.rhs]])

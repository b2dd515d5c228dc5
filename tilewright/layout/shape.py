"""The effect of shape operations on layouts.

Each function returns the layout of the result for which the operation moves no data: every thread
keeps its elements, and only their coordinates change. The docstring specifies how registers are
renumbered, if they are. If there is no such layout, the functions raise ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.layout import gf2
from tilewright.layout.linear import REGISTER, Dim, LinearLayout, dim_name, log2


def _with_shape(
    layout: LinearLayout, shape: Sequence[int], columns: tuple[int, ...]
) -> LinearLayout:
    """The layout of a tile of this shape with other flat bases."""
    outs = tuple(Dim(dim_name(i), log2(shape[i])) for i in reversed(range(len(shape))))
    return LinearLayout(layout.ins, outs, columns)


def renamed(layout: LinearLayout, shape: Sequence[int], moves: Sequence[int]) -> LinearLayout:
    """The same elements under other coordinates.

    Args:
        layout: the layout of the tile.
        shape: the shape of the result.
        moves: for each bit of the flat index of the tile, its image in the flat index of the
            result; 0 for a bit that is dropped.
    """
    return _with_shape(layout, shape, gf2.multiply(moves, layout.columns))


def reshape(layout: LinearLayout, shape: Sequence[int]) -> LinearLayout:
    """The same elements, in row-major order, in another shape: flat indices do not change."""
    if prod(shape) != prod(layout.shape):
        raise ValueError(f"cannot reshape to {tuple(shape)}: ({layout.signature()})")
    return _with_shape(layout, shape, layout.columns)


def transpose(layout: LinearLayout, order: Sequence[int]) -> LinearLayout:
    """Dimension i of the result is dimension `order[i]` of the tile."""
    shape = layout.shape
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"{tuple(order)} does not permute dimensions: ({layout.signature()})")
    start = 0
    moved: dict[int, list[int]] = {}
    # Target positions, from the last dimension of the result, which is the least significant.
    for source in reversed(order):
        count = log2(shape[source])
        moved[source] = gf2.units(count, start)
        start += count
    # Listed by source position, they are the columns of the permutation.
    permutation = [unit for source in reversed(range(len(shape))) for unit in moved[source]]
    return _with_shape(layout, [shape[i] for i in order], gf2.multiply(permutation, layout.columns))


def reorder_bits(layout: LinearLayout, axis: int, bits: Sequence[int]) -> LinearLayout:
    """Bit i of the coordinate along an axis becomes bit `bits[i]`; the low bits are permuted."""
    if sorted(bits) != list(range(len(bits))) or len(bits) > log2(layout.shape[axis]):
        raise ValueError(f"{tuple(bits)} does not permute bits: ({layout.signature()})")
    start = sum(log2(size) for size in layout.shape[axis + 1 :])
    moves = gf2.units(sum(log2(size) for size in layout.shape))
    moves[start : start + len(bits)] = [1 << (start + bit) for bit in bits]
    return renamed(layout, layout.shape, moves)


def expand_dims(layout: LinearLayout, axis: int) -> LinearLayout:
    """A new dimension of size 1 before dimension `axis`; at the end if `axis` is the rank."""
    shape = list(layout.shape)
    if not 0 <= axis <= len(shape):
        raise ValueError(f"no place for a new dimension {axis}: ({layout.signature()})")
    shape.insert(axis, 1)
    return _with_shape(layout, shape, layout.columns)


def drop_dim(layout: LinearLayout, axis: int) -> LinearLayout:
    """Remove dimension `axis`. Threads that differ only in that coordinate hold the same
    element."""
    shape = layout.shape
    if not 0 <= axis < len(shape):
        raise ValueError(f"no dimension {axis}: ({layout.signature()})")
    low = prod(shape[axis + 1 :])
    high = low * shape[axis]
    columns = tuple(column % low | column // high * low for column in layout.columns)
    return _with_shape(layout, shape[:axis] + shape[axis + 1 :], columns)


def broadcast_to(layout: LinearLayout, shape: Sequence[int]) -> LinearLayout:
    """Broadcast dimensions of size 1 to those of `shape`, in new registers above the old ones.

    Register r of the result is register `r % n` of the operand, which has n.
    """
    old = layout.shape
    if len(shape) != len(old) or any(a != b and a != 1 for a, b in zip(old, shape, strict=True)):
        raise ValueError(f"cannot broadcast to {tuple(shape)}: ({layout.signature()})")
    for i in reversed(range(len(shape))):
        if old[i] != shape[i]:
            layout = layout * LinearLayout.identity1d(shape[i], REGISTER, dim_name(i))
    return layout


def join(layout: LinearLayout) -> LinearLayout:
    """Two tiles of this layout, stacked along a new last dimension of size 2.

    Register 2r of the result is register r of the first tile, 2r + 1 that of the second.
    """
    pair = LinearLayout.identity1d(2, REGISTER, dim_name(len(layout.shape)))
    return pair * expand_dims(layout, len(layout.shape))


def split(layout: LinearLayout) -> tuple[LinearLayout, int] | None:
    """The layout of either half of a tile whose last dimension has size 2, and a register bit.

    The first half is in the registers with that bit clear, the second in those with it set; the
    registers of a half are numbered without that bit. None if the half is not selected by a single
    register bit, for example if the halves are in different lanes: then a conversion is required.
    """
    if not layout.shape or layout.shape[-1] != 2:
        raise ValueError(f"only a last dimension of size 2 can be split: ({layout.signature()})")
    registers = layout.bases(REGISTER)
    if 1 not in registers or sum(column & 1 for column in layout.columns) != 1:
        return None
    bit = registers.index(1)
    half = layout.from_columns(
        {name: [c for c in layout.bases(name) if c != 1] for name, _ in layout.ins},
        {name: 1 << count for name, count in layout.outs},
    )
    return drop_dim(half, len(half.shape) - 1), bit

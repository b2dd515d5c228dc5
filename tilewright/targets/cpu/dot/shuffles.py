"""Rearranging vectors in registers: interleaving, and turning a square block."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.lowering.emit import I64, Builder, LType, V, const, vector


def _perfect(b: Builder, x: V, y: V) -> V:
    """x0 y0 x1 y1 … in a vector twice as long."""
    n = x.type.lanes
    return b.shuffle(x, y, [lane for i in range(n) for lane in (i, n + i)])


def interleave(b: Builder, rows: Sequence[V]) -> V:
    """Lane i of each row, then lane i + 1 of each, and so on; 1, 2, 4, … rows.

    Of rows a0 a1 …, b0 b1 …, c0 c1 …, d0 d1 … it makes a0 b0 c0 d0 a1 b1 c1 d1 …
    """
    if len(rows) == 1:
        return rows[0]
    return _perfect(b, interleave(b, rows[0::2]), interleave(b, rows[1::2]))


def transpose(b: Builder, rows: Sequence[V]) -> list[V]:
    """The columns of a square of W rows of W lanes, W a power of two.

    Transposing exchanges the bits of an element's row with those of its lane. One step exchanges
    one bit: of rows that differ in that bit only, the first takes the lanes without the bit from
    both, and the second those with it.

        a0 a1 a2 a3        a0 b0 a2 b2        a0 b0 c0 d0
        b0 b1 b2 b3   →    a1 b1 a3 b3   →    a1 b1 c1 d1
        c0 c1 c2 c3        c0 d0 c2 d2        a2 b2 c2 d2
        d0 d1 d2 d3        c1 d1 c3 d3        a3 b3 c3 d3
    """
    found, size = list(rows), len(rows)
    for bit in (1 << step for step in range(size.bit_length() - 1)):
        without = [size + lane - bit if lane & bit else lane for lane in range(size)]
        having = [size + lane if lane & bit else lane + bit for lane in range(size)]
        for i in (i for i in range(size) if not i & bit):
            x, y = found[i], found[i | bit]
            found[i], found[i | bit] = b.shuffle(x, y, without), b.shuffle(x, y, having)
    return found


def transpose_block(
    b: Builder, element: LType, size: int, source: V, source_row: int, target: V, target_row: int
) -> None:
    """Transpose a square of `size` x `size` elements from one place in memory to another.

    Args:
        source, target: the first element of either.
        source_row, target_row: elements between its rows.
    """
    type = vector(element, size) if size > 1 else element
    rows = [b.load(type, b.gep(element, source, const(I64, i * source_row))) for i in range(size)]
    for i, column in enumerate(transpose(b, rows)):
        b.store(column, b.gep(element, target, const(I64, i * target_row)))

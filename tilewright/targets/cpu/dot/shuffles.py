"""Permutations of vectors in registers: interleaving, and transposition of a square block."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.lowering.emit import I64, Builder, LType, V, const, vector


def _perfect(b: Builder, x: V, y: V) -> V:
    """The perfect shuffle x0 y0 x1 y1 … of two vectors."""
    n = x.type.lanes
    return b.shuffle(x, y, [lane for i in range(n) for lane in (i, n + i)])


def interleave(b: Builder, rows: Sequence[V]) -> V:
    """Interleave 1, 2, 4, … rows: lane 0 of each row, then lane 1 of each, and so on.

    Rows a0 a1 …, b0 b1 …, c0 c1 …, d0 d1 … become a0 b0 c0 d0 a1 b1 c1 d1 …
    """
    if len(rows) == 1:
        return rows[0]
    return _perfect(b, interleave(b, rows[0::2]), interleave(b, rows[1::2]))


def transpose(b: Builder, rows: Sequence[V]) -> list[V]:
    """Transpose W rows of W lanes, W a power of two, in log2(W) steps of W shuffles.

    Transposition exchanges the bits of an element's row index with those of its lane index. Each
    step exchanges one bit: of two rows whose indices differ in that bit, the first receives the
    lanes without the bit from both, and the second those with it.

        a0 a1 a2 a3        a0 b0 a2 b2        a0 b0 c0 d0
        b0 b1 b2 b3   →    a1 b1 a3 b3   →    a1 b1 c1 d1
        c0 c1 c2 c3        c0 d0 c2 d2        a2 b2 c2 d2
        d0 d1 d2 d3        c1 d1 c3 d3        a3 b3 c3 d3
    """
    result, size = list(rows), len(rows)
    for bit in (1 << step for step in range(size.bit_length() - 1)):
        without = [size + lane - bit if lane & bit else lane for lane in range(size)]
        having = [size + lane if lane & bit else lane + bit for lane in range(size)]
        for i in (i for i in range(size) if not i & bit):
            x, y = result[i], result[i | bit]
            result[i], result[i | bit] = b.shuffle(x, y, without), b.shuffle(x, y, having)
    return result


def transpose_block(
    b: Builder, element: LType, size: int, source: V, source_row: int, target: V, target_row: int
) -> None:
    """Transpose a square of `size` x `size` elements from one address to another.

    Args:
        source, target: the addresses of the first elements.
        source_row, target_row: the strides between rows, in elements.
    """
    type = vector(element, size) if size > 1 else element
    rows = [b.load(type, b.gep(element, source, const(I64, i * source_row))) for i in range(size)]
    for i, column in enumerate(transpose(b, rows)):
        b.store(column, b.gep(element, target, const(I64, i * target_row)))

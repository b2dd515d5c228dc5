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


def transpose(b: Builder, rows: list[V]) -> list[V]:
    """The columns of a square of W rows of W lanes, W a power of two.

    Number an element by its row's bits and then its lane's bits. Interleaving row i with row
    i + W / 2 makes two rows, 2 i and 2 i + 1. In the element's number this moves the first bit of
    its row to the end of its lane, and the first bit of its lane to the end of its row. After
    log2(W) such steps row and lane have changed places.
    """
    size = len(rows)
    half = size // 2
    low = [lane for i in range(half) for lane in (i, size + i)]
    high = [half + lane for lane in low]
    for _ in range(size.bit_length() - 1):
        pairs = list(zip(rows[:half], rows[half:], strict=True))
        rows = [b.shuffle(x, y, mask) for x, y in pairs for mask in (low, high)]
    return rows


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

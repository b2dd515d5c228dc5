"""The registers that accesses of threads to tiles in shared memory combine to vectors."""

from __future__ import annotations

from functools import lru_cache

from tilewright.analysis.axis_info import AxisMap
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout, dim_name
from tilewright.ops.gpu import CopyAsync
from tilewright.ops.memory import pointee_of

VECTOR_BYTES = 16
"""The most bytes of an access of a thread to shared memory."""


@lru_cache(256)
def offsets_in(tile: LinearLayout, buffer: LinearLayout) -> LinearLayout:
    """The offset of each register, lane and warp in a buffer."""
    places = tile.select_ins(REGISTER, LANE, WARP).compose(buffer.invert())
    return places.flatten_outs(dim_name(0))


def vector_length(tile: LinearLayout, buffer: LinearLayout, limit: int) -> int:
    """The number of elements of an access to a buffer, which is `limit` at most."""
    return 1 << len(bits_of_vectors(tile, buffer, limit))


def bits_of_copies(op: CopyAsync, infos: AxisMap) -> tuple[int, ...]:
    """The register bits that count the elements of one asynchronous copy, lowest first."""
    tile, buffer = op.ptr.layout, op.buffer.layout
    assert tile is not None
    assert buffer is not None
    axis = infos[op.ptr].order[0]
    size = pointee_of(op.ptr.type).nbytes_in_memory
    length = infos.access_length(op.ptr, op.mask, axis, size)
    return bits_of_vectors(tile, buffer, min(VECTOR_BYTES // size, length), axis)


@lru_cache(256)
def bits_of_vectors(
    tile: LinearLayout, buffer: LinearLayout, limit: int, axis: int | None = None
) -> tuple[int, ...]:
    """The register bits that count the elements of an access to a buffer, lowest first.

    Args:
        limit: the maximum number of elements of one access.
        axis: the axis along which the elements of an access must be adjacent, if any.
    """
    result = _successive_bits(offsets_in(tile, buffer), limit)
    if axis is not None:
        along = _bits_along(tile, axis)
        while result != along[: len(result)]:
            result.pop()
    return tuple(result)


def _successive_bits(offsets: LinearLayout, limit: int) -> list[int]:
    """The register bits that count successive offsets, lowest first.

    No other register, lane or warp bit may contribute to these low bits of the offset, so that
    every access is aligned to its size.
    """
    registers = offsets.bases(REGISTER)
    result: list[int] = []
    while 1 << (len(result) + 1) <= limit:
        unit = 1 << len(result)
        if unit not in registers or sum(bool(c & unit) for c in offsets.columns) != 1:
            break
        result.append(registers.index(unit))
    return result


def _bits_along(tile: LinearLayout, axis: int) -> list[int]:
    """The register bits that count successive elements along an axis, lowest first; no other
    register, lane or warp bit contributes to these low bits of the coordinate."""
    registers = [tile.coordinates(column) for column in tile.bases(REGISTER)]
    others = [tile.coordinates(column)[axis] for column in tile.columns]
    result: list[int] = []
    for bit in range(tile.shape[axis].bit_length() - 1):
        step = tuple(1 << bit if k == axis else 0 for k in range(len(tile.shape)))
        if step not in registers or sum(bool(c & 1 << bit) for c in others) != 1:
            break
        result.append(registers.index(step))
    return result

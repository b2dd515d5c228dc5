"""The widths that alignment and masks allow for the accesses of global memory.

Input: a function without calls, with pointers in canonical form. A width is an upper bound: the
layout of a tile may give a thread fewer consecutive elements.
"""

from __future__ import annotations

from tilewright.analysis.axis_info import axis_info
from tilewright.ir.core import Function
from tilewright.ir.types import Tile
from tilewright.ops.memory import Access, pointee_of


def access_widths(fn: Function, limit: int) -> list[tuple[int, ...]]:
    """For each access of a tile, in order: for each axis, the number of consecutive elements that
    one instruction may move.

    Args:
        fn: the function; `arg_attrs` has the divisibility of its arguments.
        limit: the most bytes that an instruction moves.
    """
    infos = axis_info(fn)
    result: list[tuple[int, ...]] = []
    for op in fn.walk():
        if not isinstance(op, Access) or not isinstance(op.ptr.type, Tile):
            continue
        size = pointee_of(op.ptr.type).nbytes_in_memory
        mask = getattr(op, "mask", None)
        result.append(
            tuple(
                min(infos.access_length(op.ptr, mask, axis, size), limit // size)
                for axis in range(infos[op.ptr].rank)
            )
        )
    return result

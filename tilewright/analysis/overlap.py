"""Overlap of two blocks of memory.

    overlap(fn, a, b)    # SAME, DISJOINT or POSSIBLE

The result holds within one program and one iteration of each enclosing loop, not for accesses of
different iterations or programs. Linear in the number of axes.
"""

from __future__ import annotations

from enum import Enum
from math import gcd

from tilewright.analysis.blocks import Block
from tilewright.analysis.pointers import may_overlap
from tilewright.analysis.polynomial import Polynomial
from tilewright.ir.core import Function


class Overlap(Enum):
    """The relation of the memory of two accesses."""

    SAME = "same"  # the same elements, at equal indices of the two tiles
    DISJOINT = "disjoint"  # no byte in common
    POSSIBLE = "possible"  # unknown


def overlap(fn: Function, a: Block, b: Block) -> Overlap:
    """The relation of the memory of two blocks of the function.

    Blocks of arguments in different ``alias`` classes are disjoint, and so are blocks with the same
    base if their distance and strides are constants that imply it.
    """
    if a.never or b.never or not may_overlap(fn, a.op.ptr, b.op.ptr):
        return Overlap.DISJOINT
    if a.base is not b.base or a.element_bytes != b.element_bytes:
        return Overlap.POSSIBLE
    if _description(a) == _description(b):
        return Overlap.SAME
    return Overlap.DISJOINT if _are_disjoint(a, b) else Overlap.POSSIBLE


def _description(block: Block) -> tuple[object, ...]:
    return block.offset, block.axes, set(block.conditions), set(block.residual)


def _are_disjoint(a: Block, b: Block) -> bool:
    spans = _span(a), _span(b)
    first, second = _first(a), _first(b)
    if None in spans or first is None or second is None:
        return False
    distance = (second - first).constant
    if distance is None:
        return False
    common = gcd(*_strides(a), *_strides(b))
    if common and distance % common:
        return True
    (low_a, high_a), (low_b, high_b) = (span for span in spans if span is not None)
    return distance + low_b > high_a or distance + high_b < low_a


def _first(block: Block) -> Polynomial | None:
    """The offset of the first element of the box from the base, in elements; None if an index is
    replaced."""
    if any(axis.end is not None for axis in block.axes):
        return None
    total = block.offset
    for axis in block.axes:
        total = total + axis.stride * axis.begin
    return total


def _strides(block: Block) -> list[int]:
    return [axis.stride.constant or 0 for axis in block.axes if axis.extent > 1]


def _span(block: Block) -> tuple[int, int] | None:
    """The minimum and maximum distance of an element from the first one, in elements; None if they
    are not constant."""
    low = high = 0
    for axis in block.axes:
        if axis.extent > 1:
            stride = axis.stride.constant
            if stride is None:
                return None
            end = stride * (axis.extent - 1)
            low, high = low + min(0, end), high + max(0, end)
    return low, high

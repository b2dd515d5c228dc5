"""Sorting, and the sorting network that implements it on targets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, require
from tilewright.ir.index_map import Every, IndexMap, replaced
from tilewright.ir.traits import PURE
from tilewright.ir.types import Type, shape_of
from tilewright.ops.numeric import Array
from tilewright.ops.verifiers import verify_integer_tile


class Exchange(NamedTuple):
    """A stage of a sorting network: compares each element with the one whose index differs by an
    xor with `mask`, and moves the greater one to the index in which the bit `top`, the highest of
    the mask, is set."""

    mask: int
    top: int


def network(extent: int, merge: bool = False) -> list[Exchange]:
    """The stages that sort `extent` elements in ascending order: O(log(extent)^2) of them.

    This is Batcher's bitonic sort ("Sorting networks and their applications", 1968) in the variant
    in which all comparators have the same direction. To merge sorted runs of p elements into runs
    of 2 p, each element is compared with its mirror image in the other run (mask 2 p - 1), then
    with those at distances p / 2, p / 4, … 1. Because greater elements only move to higher indices,
    the extent need not be a power of two: comparisons with an element past the end are omitted.

    Args:
        merge: only the final merge of a bitonic sequence (non-decreasing and then non-increasing,
            or vice versa), whose extent must be a power of two.
    """
    found: list[Exchange] = []
    width = 1 << (extent - 1).bit_length()
    run = width if merge else 1
    while run < width:
        found.append(Exchange(2 * run - 1, run))
        found += _halvings(run)
        run *= 2
    return _halvings(width) if merge else found


def _halvings(length: int) -> list[Exchange]:
    result: list[Exchange] = []
    while length > 1:
        length //= 2
        result.append(Exchange(length, length))
    return result


class Sort(Op, name="tile.sort", traits=PURE):
    """Sorts integers along the last axis, in ascending order unless `descending`.

    With `merge`, each row must be a bitonic sequence (ascending and then descending, or vice versa)
    whose length is a power of two; for other rows the result is that of the stages of `network`.

        %1 = tile.sort %0, descending=False, merge=False : 4x8xi32 -> 4x8xi32
    """

    src: Value = operand()
    descending: bool = attr(False)
    merge: bool = attr(False)

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        shape = shape_of(self.src.type)
        verify_integer_tile(self, self.src, shape)
        require(
            not self.merge or shape[-1] & (shape[-1] - 1) == 0,
            self,
            "merge",
            "merges rows whose length is a power of two, not {n}",
            n=shape[-1],
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        shape = shape_of(self.src.type)
        return (replaced(shape, len(shape) - 1, Every()),)

    def evaluate(self, src: Array) -> Array:
        if not self.merge:
            found = np.sort(src, axis=-1)
            return found[..., ::-1] if self.descending else found
        index = np.arange(src.shape[-1])
        for mask, top in network(src.shape[-1], merge=True):
            other = src[..., index ^ mask]
            greater = (index & top != 0) != self.descending
            src = np.where(greater, np.maximum(src, other), np.minimum(src, other))
        return src

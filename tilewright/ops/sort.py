"""Sorting, and the network of exchanges by which targets do it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, require
from tilewright.ir.index_map import Every, IndexMap, replaced
from tilewright.ir.traits import PURE
from tilewright.ir.types import Type, dtype_of, is_int, shape_of, text_of
from tilewright.ops.numeric import Array


class Exchange(NamedTuple):
    """Each element meets the one whose index is its own xor `mask`; the greater of the two goes
    where the bit `top`, the highest of the mask, is set."""

    mask: int
    top: int


def network(extent: int, merge: bool = False) -> list[Exchange]:
    """The exchanges that sort so many elements, the least first.

    This is Batcher's bitonic sort (Sorting networks and their applications, 1968) in the form in
    which every exchange points the same way. To merge runs of p elements to runs of 2 p, each
    element of a run meets its mirror image in the other one (mask 2 p - 1), and then those p / 2,
    p / 4, … 1 away. As greater ones only go up, the extent need be no power of two: what would
    meet an element past the end stays where it is.

    Args:
        merge: only the last merge, of a sequence that first does not fall and then does not rise,
            or the other way round; its extent is a power of two.
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
    found: list[Exchange] = []
    while length > 1:
        length //= 2
        found.append(Exchange(length, length))
    return found


class Sort(Op, name="tile.sort", traits=PURE):
    """The integers of each row along the last axis in order, the least first.

    With `merge` each row is a rising and a falling sequence, one after the other in either order,
    of a length that is a power of two; of other rows the result is that of `network`.

        %1 = tile.sort %0, descending=False, merge=False : 4x8xi32 -> 4x8xi32
    """

    src: Value = operand()
    descending: bool = attr(False)
    merge: bool = attr(False)

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        shape = shape_of(self.src.type)
        require(len(shape) > 0, self, "operand-types", "takes a tile")
        require(
            is_int(self.src.type) and not dtype_of(self.src.type).is_bool(),
            self,
            "operand-types",
            "takes integers of 8 bits or more, not {t}",
            t=text_of(self.src.type),
        )
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

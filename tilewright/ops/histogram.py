"""Histograms."""

from __future__ import annotations

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, optional, require
from tilewright.ir.index_map import IndexMap, mixed
from tilewright.ir.traits import PURE
from tilewright.ir.types import I1, I32, Tile, Type, shape_of
from tilewright.ops.numeric import Array
from tilewright.ops.verifiers import verify_integer_tile


class Histogram(Op, name="tile.histogram", traits=PURE):
    """The number of elements of `src` equal to 0, 1, … bins - 1.

    Other elements, and those where `mask` is false, are not counted.

        %2 = tile.histogram %0, %1, bins=16 : (64xi32, 64xi1) -> 16xi32
    """

    src: Value = operand()
    mask: Value | None = optional()
    bins: int = attr()

    def result_type(self) -> Type:
        return Tile((self.bins,), I32)

    def verify(self) -> None:
        shape = shape_of(self.src.type)
        verify_integer_tile(self, self.src, shape)
        require(self.bins > 0, self, "bins", "needs one bin or more, not {n}", n=self.bins)
        require(
            self.mask is None or self.mask.type == Tile(shape, I1),
            self,
            "mask",
            "the mask must be a bool for each element",
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (mixed(shape_of(self.src.type), (self.bins,)),) * len(self.operands)

    def evaluate(self, src: Array, mask: Array | None = None) -> Array:
        counted = (src >= 0) & (src < self.bins)
        if mask is not None:
            counted &= mask
        return np.bincount(src[counted].astype(np.int64), minlength=self.bins).astype(np.int32)

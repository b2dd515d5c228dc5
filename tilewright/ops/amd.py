"""Ops specific to AMD GPUs: matrix instructions, which require layouts of their operands."""

from __future__ import annotations

from tilewright.ir.define import attr, require
from tilewright.ir.types import Tile, shape_of
from tilewright.ops.dot import Dot


class Mma(Dot, name="amd.mma"):
    """acc + lhs @ rhs by the instructions of the matrix cores, with all operands in registers.

    An instruction computes `side` x `side` elements of the result. Of either operand, a lane has
    `width` elements along K for each of them. It holds the elements of `pack` instructions next to
    each other: K may be permuted, as long as it is for both operands, and wider loads are faster.
    Of a `chained` product, a warp computes whole rows if there are enough.

        %3 = amd.mma %0, %1, %2, precision="ieee", max_imprecise=0, side=16, width=4, pack=1
          : (16x16xfp16, 16x16xfp16, 16x16xfp32) -> 16x16xfp32
    """

    side: int = attr()
    width: int = attr()
    pack: int = attr(1)
    chained: bool = attr(False)

    def verify(self) -> None:
        super().verify()
        require(
            all(isinstance(v.type, Tile) for v in self.operands) and self.side in (16, 32),
            self,
            "operand-types",
            "takes tiles in registers, and instructions of 16 or 32 rows",
        )
        m, n = shape_of(self.acc.type)[-2:]
        require(
            m % self.side == 0 and n % self.side == 0,
            self,
            "shape",
            "the shape {m} x {n} is not a multiple of {side} x {side}",
            m=m,
            n=n,
            side=self.side,
        )

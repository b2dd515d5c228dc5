"""Ops specific to NVIDIA GPUs: matrix instructions, which require layouts of their operands."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, require, variadic
from tilewright.ir.index_map import IndexMap, identity
from tilewright.ir.traits import IN_FLIGHT, LOCAL, WRITES
from tilewright.ir.types import Shared, Tile, Type, shape_of
from tilewright.ops.dot import Dot
from tilewright.ops.numeric import Array


class Mma(Dot, name="nvidia.mma"):
    """acc + lhs @ rhs by `mma.sync`, with all operands in registers.

    %3 = nvidia.mma %0, %1, %2, precision="ieee", max_imprecise=0
      : (16x16xfp16, 16x8xfp16, 16x8xfp32) -> 16x8xfp32
    """


class Wgmma(Dot, name="nvidia.wgmma", traits=WRITES | LOCAL | IN_FLIGHT):
    """Starts acc + lhs @ rhs by `wgmma.mma_async`; `nvidia.wgmma_wait` completes it.

    `rhs` is a buffer in shared memory, `lhs` a buffer or a tile. Until it is complete, the result
    may only be used as the accumulator of another product, and the buffers must not change.

        %3 = nvidia.wgmma %0, %1, %2, precision="ieee", max_imprecise=0
          : (shared<64x16xfp16>, shared<16x8xfp16>, 64x8xfp32) -> 64x8xfp32
    """

    def verify(self) -> None:
        super().verify()
        require(
            isinstance(self.rhs.type, Shared) and isinstance(self.acc.type, Tile),
            self,
            "operand-types",
            "the right operand must be in shared memory and the accumulator in registers",
        )
        m, n = shape_of(self.acc.type)[-2:]
        require(
            m % 64 == 0 and n % 8 == 0,
            self,
            "shape",
            "the shape {m} x {n} is not a multiple of 64 x 8",
            m=m,
            n=n,
        )


class WgmmaWait(Op, name="nvidia.wgmma_wait", traits=WRITES | LOCAL):
    """Waits until this warp's products are complete, except the last `pending` ones.

    The results are the `values`; those whose product is complete may be used.

        %1 = nvidia.wgmma_wait [%0], pending=0 : 64x8xfp32 -> 64x8xfp32
    """

    values: list[Value] = variadic()
    pending: int = attr(0)

    def result_types(self) -> tuple[Type, ...]:
        return tuple(v.type for v in self.values)

    def verify(self) -> None:
        require(self.pending >= 0, self, "pending", "{n} products", n=self.pending)

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        same = identity(shape_of(self.values[result].type))
        return tuple(same if i == result else None for i in range(len(self.values)))

    def evaluate(self, *values: Array) -> tuple[Array, ...]:
        return values

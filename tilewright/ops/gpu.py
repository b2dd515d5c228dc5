"""Ops of tiles that have layouts: what GPU targets add to the tile IR."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.define import Op, operand, require
from tilewright.ir.traits import PURE
from tilewright.ir.types import Tile, Type, text_of
from tilewright.ops.numeric import Array


class ConvertLayout(Op, name="gpu.convert_layout", traits=PURE):
    """The same tile in another layout, which is that of the result.

    layout !0 = "register[] lane[1] -> dim0:2"
    layout !1 = "register[1] lane[0] -> dim0:2"
    %1 = gpu.convert_layout %0 : 2xfp32 !0 -> 2xfp32 !1
    """

    src: Value = operand()

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        require(
            isinstance(self.src.type, Tile),
            self,
            "operand-types",
            "takes a tile, not {t}",
            t=text_of(self.src.type),
        )

    def evaluate(self, src: Array) -> Array:
        return src

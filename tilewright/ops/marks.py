"""Identity ops that control how a kernel is differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, variadic
from tilewright.ir.traits import ELEMENTWISE
from tilewright.ir.types import Type
from tilewright.ops.numeric import Array
from tilewright.ops.verifiers import verify_float
from tilewright.ops.view import View


class StopGradient(Op, name="mark.stop_gradient", traits=ELEMENTWISE):
    """`src`, which is treated as a constant in differentiation.

    %1 = mark.stop_gradient %0 : 4xfp32 -> 4xfp32
    """

    src: Value = operand()

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        verify_float(self, self.src)

    def evaluate(self, src: Array) -> Array:
        return src.copy()


class Residual(View, name="mark.residual", traits=ELEMENTWISE):
    """`src`, which gradient kernels load from the array to which the kernel stores it if it is
    `saved`, and otherwise recompute, although it is stored.

        %1 = mark.residual %0, saved=True : 4xfp32 -> 4xfp32
    """

    saved: bool = attr()

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        verify_float(self, self.src)

    def evaluate(self, src: Array) -> Array:
        return src.copy()


class FunctionResult(Op, name="mark.function_result", traits=ELEMENTWISE):
    """`src`, which is a function of `args`. In differentiation, its derivative is that of the
    function in `DERIVATIVES`, instead of that of the ops that compute `src`.

    %2 = mark.function_result %0, [%1], function="atan" : (fp32, fp32) -> fp32
    """

    src: Value = operand()
    args: list[Value] = variadic()
    function: str = attr()

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        verify_float(self, self.src)

    def evaluate(self, src: Array, *args: Array) -> Array:
        return src.copy()


PartialDerivative = Callable[[Builder, Sequence[Value]], Value]
DERIVATIVES: dict[str, Sequence[PartialDerivative | None]] = {}
"""By function, the partial derivative by each operand; None if that is zero. Each inserts ops,
given the operands and the result."""

"""Elementwise elementary functions of floats. `docs/accuracy.md` lists the error bounds of targets.

`evaluate` computes in fp64 and rounds the result to the operand's type, so that results narrower
than fp64 are correctly rounded except for rare double roundings; fp64 results have the accuracy of
NumPy's functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand
from tilewright.ir.traits import ELEMENTWISE
from tilewright.ir.types import Type, dtype_of
from tilewright.ops.numeric import Array, float_to_float
from tilewright.ops.verifiers import verify_float

_erf = np.vectorize(math.erf, otypes=[np.float64])


class MathFunction(Op):
    """Base class of functions of one float; the result has the operand's type."""

    src: Value = operand()

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        verify_float(self, self.src)

    function: ClassVar[Callable[[Any], Any]]
    """The function on fp64 arrays."""

    def evaluate(self, src: Array) -> Array:
        if src.dtype == np.float64:
            return np.asarray(self.function(src), np.float64)
        wide = np.asarray(self.function(src.astype(np.float64)), np.float64)
        return float_to_float(wide, dtype_of(self.src.type), "rtne")


class FastFunction(MathFunction):
    """Base class of functions that targets have short instructions for. With `fast`, a target may
    take these for fp32, whatever their error; without, the error bounds of `docs/accuracy.md` hold.
    """

    fast: bool = attr(False)


class Exp(FastFunction, name="math.exp", traits=ELEMENTWISE):
    """Natural exponential, e**x.

    %1 = math.exp %0, fast=False : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.exp)


class Exp2(MathFunction, name="math.exp2", traits=ELEMENTWISE):
    """Base-2 exponential, 2**x.

    %1 = math.exp2 %0 : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.exp2)


class Expm1(MathFunction, name="math.expm1", traits=ELEMENTWISE):
    """exp(x) - 1, accurate near 0.

    %1 = math.expm1 %0 : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.expm1)


class Log(FastFunction, name="math.log", traits=ELEMENTWISE):
    """Natural logarithm. log(0) is -inf, log(x) of a negative x is NaN.

    %1 = math.log %0, fast=False : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.log)


class Log2(FastFunction, name="math.log2", traits=ELEMENTWISE):
    """Logarithm to base 2.

    %1 = math.log2 %0, fast=False : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.log2)


class Log10(FastFunction, name="math.log10", traits=ELEMENTWISE):
    """Logarithm to base 10.

    %1 = math.log10 %0, fast=False : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.log10)


class Log1p(MathFunction, name="math.log1p", traits=ELEMENTWISE):
    """log(1 + x), accurate near 0.

    %1 = math.log1p %0 : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.log1p)


class Sin(FastFunction, name="math.sin", traits=ELEMENTWISE):
    """Sine of an angle in radians.

    %1 = math.sin %0, fast=False : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.sin)


class Cos(FastFunction, name="math.cos", traits=ELEMENTWISE):
    """Cosine of an angle in radians.

    %1 = math.cos %0, fast=False : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.cos)


class Tan(MathFunction, name="math.tan", traits=ELEMENTWISE):
    """Tangent of an angle in radians.

    %1 = math.tan %0 : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.tan)


class Tanh(FastFunction, name="math.tanh", traits=ELEMENTWISE):
    """Hyperbolic tangent.

    %1 = math.tanh %0, fast=False : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.tanh)


class Erf(MathFunction, name="math.erf", traits=ELEMENTWISE):
    """Error function.

    %1 = math.erf %0 : 4xfp32 -> 4xfp32
    """

    function = staticmethod(_erf)


class Sqrt(MathFunction, name="math.sqrt", traits=ELEMENTWISE):
    """Square root. With `ieee` it is correctly rounded on every target.

    %1 = math.sqrt %0, ieee=False : 4xfp32 -> 4xfp32
    """

    ieee: bool = attr(False)
    function = staticmethod(np.sqrt)


class Rsqrt(MathFunction, name="math.rsqrt", traits=ELEMENTWISE):
    """1 / sqrt(x). rsqrt(0) is inf, with the sign of the zero.

    %1 = math.rsqrt %0 : 4xfp32 -> 4xfp32
    """

    @staticmethod
    def function(x: Array) -> Array:
        return 1.0 / np.sqrt(x)


class Floor(MathFunction, name="math.floor", traits=ELEMENTWISE):
    """The largest integer less than or equal to x.

    %1 = math.floor %0 : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.floor)


class Ceil(MathFunction, name="math.ceil", traits=ELEMENTWISE):
    """The smallest integer greater than or equal to x.

    %1 = math.ceil %0 : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.ceil)


class Trunc(MathFunction, name="math.trunc", traits=ELEMENTWISE):
    """x rounded to an integer toward zero; preserves the sign, also of zeros.

    %1 = math.trunc %0 : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.trunc)


class Rint(MathFunction, name="math.rint", traits=ELEMENTWISE):
    """The nearest integer, ties to even; preserves the sign, also of zeros.

    %1 = math.rint %0 : 4xfp32 -> 4xfp32
    """

    function = staticmethod(np.rint)


ROUNDINGS = (Floor, Ceil, Trunc, Rint)
"""The functions that round to an integer: exact, and one instruction on most machines."""

"""Elementwise math functions of fp32 and fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import
from tilewright.language import semantic
from tilewright.language.values import builtin, constexpr, tensor, tensor_method

if TYPE_CHECKING:
    from tilewright.ops import math as ops
else:
    ops = lazy_import("tilewright.ops.math")

__all__ = [
    "abs", "cdiv", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log",
    "log2", "rsqrt", "sigmoid", "sin", "softmax", "sqrt", "sqrt_rn", "umulhi",
]  # fmt: skip


def _unary(name: str, op: Callable[[], type[ops.MathFunction]], meaning: str, **attrs: Any) -> Any:
    @builtin
    def function(x: Any, *, _semantic: Any = None) -> tensor:
        return semantic.arith.unary_math(_semantic, op(), x, **attrs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{meaning}, elementwise.

    Args:
        x: fp32 or fp64; a Python number is converted to fp32.

    Raises:
        ValueError: another dtype.
    """

    @builtin
    def method(x: Any, *, _semantic: Any = None) -> tensor:
        return semantic.arith.unary_math_method(_semantic, op(), x, **attrs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""{meaning}, elementwise, of fp32 or fp64, and of fp16 or bf16, computed in
    fp32 and rounded to the tensor's dtype.

    Raises:
        ValueError: another dtype.
    """
    tensor_method(method)
    return function


exp = _unary("exp", lambda: ops.Exp, "Base-e exponential")
exp2 = _unary("exp2", lambda: ops.Exp2, "Base-2 exponential")
log = _unary("log", lambda: ops.Log, "Natural logarithm")
log2 = _unary("log2", lambda: ops.Log2, "Base-2 logarithm")
cos = _unary("cos", lambda: ops.Cos, "Cosine of an angle in radians")
sin = _unary("sin", lambda: ops.Sin, "Sine of an angle in radians")
sqrt = _unary("sqrt", lambda: ops.Sqrt, "Square root, possibly approximate", ieee=False)
rsqrt = _unary("rsqrt", lambda: ops.Rsqrt, "Reciprocal square root")
erf = _unary("erf", lambda: ops.Erf, "Error function")
floor = _unary("floor", lambda: ops.Floor, "Largest integer not greater than x")
ceil = _unary("ceil", lambda: ops.Ceil, "Smallest integer not less than x")


@tensor_method
@builtin
def sqrt_rn(x: Any, *, _semantic: Any = None) -> tensor:
    """Correctly rounded square root of fp32."""
    if isinstance(x, tensor):
        semantic.arith.check_dtype(x.dtype, ("fp32",))
    return semantic.arith.unary_math(_semantic, ops.Sqrt, x, ieee=True)


@tensor_method
@builtin
def abs(x: Any, *, _semantic: Any = None) -> tensor:
    """Absolute value; that of the smallest signed integer wraps to itself."""
    return semantic.arith.absolute(_semantic, x)


@builtin
def fdiv(
    x: Any, y: Any, ieee_rounding: Any = False, approx: Any = False, *, _semantic: Any = None
) -> tensor:
    """Float division; correctly rounded with `ieee_rounding`, fastest with `approx`.

    Raises:
        TypeError: the operands are integers.
    """
    ieee, fast = bool(constexpr(ieee_rounding)), bool(constexpr(approx))
    return semantic.arith.fdiv(_semantic, x, y, ieee, fast)


@builtin
def div_rn(x: Any, y: Any, *, _semantic: Any = None) -> tensor:
    """Correctly rounded division of fp32."""
    return semantic.arith.div_rn(_semantic, x, y)


@builtin
def fma(x: Any, y: Any, z: Any, *, _semantic: Any = None) -> tensor:
    """Fused multiply-add: x * y + z with a single rounding."""
    return semantic.arith.fma(_semantic, x, y, z)


@builtin
def umulhi(x: Any, y: Any, *, _semantic: Any = None) -> tensor:
    """High half of the product of two unsigned integers of 32 or 64 bits."""
    return semantic.arith.umulhi(_semantic, x, y)


@tensor_method
@builtin
def cdiv(x: Any, div: Any, *, _semantic: Any = None) -> Any:
    """``x / div`` rounded up, for non-negative integers."""
    return semantic.arith.cdiv(_semantic, x, div)


@tensor_method
@builtin
def sigmoid(x: Any, *, _semantic: Any = None) -> tensor:
    """Logistic function, 1 / (1 + exp(-x))."""
    return semantic.arith.sigmoid(_semantic, x)


@tensor_method
@builtin
def softmax(
    x: tensor, dim: Any = None, keep_dims: Any = None, ieee_rounding: Any = False, *,
    _semantic: Any = None,
) -> tensor:  # fmt: skip
    """exp(x) / sum(exp(x)) along `dim`, the first axis by default; fp32 or fp64.

    `keep_dims` is ignored: the shape is that of `x`.
    """
    return semantic.reduce.softmax(_semantic, x, dim, ieee_rounding)

"""Elementary functions by the names of the device library of GPUs; they work on every target.

Floats are fp32 or fp64. Predicates give int32, nonzero for true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.types import FP32, FP64, I32, I64, U32, DType, int_type, shape_of
from tilewright.language.semantic import arith, convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.convert import constant, to_tensor
from tilewright.language.values import builtin, tensor
from tilewright.ops import arith as arith_ops
from tilewright.ops import math as ops

FLOATS = ("fp32", "fp64")


def _unary(name: str, op: type[ops.MathFunction], meaning: str, **attrs: Any) -> Any:
    @builtin
    def function(arg0: Any, *, _semantic: Any = None) -> tensor:
        return arith.unary_math(_semantic, op, arg0, **attrs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}, of fp32 or fp64."
    return function


exp = _unary("exp", ops.Exp, "e to the power of x")
exp2 = _unary("exp2", ops.Exp2, "2 to the power of x")
expm1 = _unary("expm1", ops.Expm1, "exp(x) - 1, accurate near 0")
log = _unary("log", ops.Log, "Natural logarithm")
log2 = _unary("log2", ops.Log2, "Logarithm to base 2")
log1p = _unary("log1p", ops.Log1p, "log(1 + x), accurate near 0")
sin = _unary("sin", ops.Sin, "Sine of an angle in radians")
cos = _unary("cos", ops.Cos, "Cosine of an angle in radians")
tanh = _unary("tanh", ops.Tanh, "Hyperbolic tangent")
erf = _unary("erf", ops.Erf, "Error function")
sqrt = _unary("sqrt", ops.Sqrt, "Square root", ieee=True)
sqrt_rn = _unary("sqrt_rn", ops.Sqrt, "Correctly rounded square root", ieee=True)
rsqrt = _unary("rsqrt", ops.Rsqrt, "1 / sqrt(x)")
floor = _unary("floor", ops.Floor, "The largest integer not above x")
ceil = _unary("ceil", ops.Ceil, "The smallest integer not below x")
fast_expf = _unary("fast_expf", ops.Exp, "e to the power of x, as fast as it goes")
fast_logf = _unary("fast_logf", ops.Log, "Natural logarithm, as fast as it goes")
fast_log2f = _unary("fast_log2f", ops.Log2, "Logarithm to base 2, as fast as it goes")
fast_sinf = _unary("fast_sinf", ops.Sin, "Sine, as fast as it goes")
fast_cosf = _unary("fast_cosf", ops.Cos, "Cosine, as fast as it goes")
fast_tanhf = _unary("fast_tanhf", ops.Tanh, "Hyperbolic tangent, as fast as it goes")


def _float(s: Semantic, x: Any) -> tensor:
    value = to_tensor(s, x)
    arith.check_dtype(value.dtype, FLOATS)
    return value


def _bits(s: Semantic, x: tensor) -> tensor:
    return convert.bitcast(s, x, int_type(x.dtype.primitive_bitwidth, True))


@builtin
def abs(arg0: Any, *, _semantic: Any = None) -> tensor:
    """Absolute value of int32, int64, fp32 or fp64."""
    return arith.absolute(_semantic, arg0)


@builtin
def trunc(arg0: Any, *, _semantic: Any = None) -> tensor:
    """x rounded to an integer toward zero; the sign of zero is kept."""
    s, x = _semantic, _float(_semantic, arg0)
    down = arith.unary_math(s, ops.Floor, arith.absolute(s, x))
    return _with_sign(s, down, x)


def _with_sign(s: Semantic, magnitude: tensor, sign: tensor) -> tensor:
    """`magnitude` with the sign bit of `sign`."""
    element = magnitude.dtype
    width = element.primitive_bitwidth
    top = constant(s, -(1 << (width - 1)), int_type(width, True), shape_of(sign.type))
    sign_bit = arith.bit_and(s, _bits(s, sign), top)
    rest = _bits(s, arith.absolute(s, magnitude))
    return convert.bitcast(s, arith.bit_or(s, rest, sign_bit), element)


@builtin
def copysign(arg0: Any, arg1: Any, *, _semantic: Any = None) -> tensor:
    """The magnitude of the first with the sign of the second."""
    x, y = arith.arithmetic_operands(_semantic, arg0, arg1)
    arith.check_dtype(x.dtype, FLOATS)
    return _with_sign(_semantic, x, y)


@builtin
def fma(arg0: Any, arg1: Any, arg2: Any, *, _semantic: Any = None) -> tensor:
    """x * y + z with one rounding."""
    return arith.fma(_semantic, arg0, arg1, arg2)


@builtin
def fmod(arg0: Any, arg1: Any, *, _semantic: Any = None) -> tensor:
    """Remainder with the sign of the first."""
    x, y = arith.arithmetic_operands(_semantic, arg0, arg1)
    arith.check_dtype(x.dtype, FLOATS)
    return _semantic.emit(arith_ops.Rem(x.handle, y.handle))


@builtin
def div_rn(arg0: Any, arg1: Any, *, _semantic: Any = None) -> tensor:
    """Correctly rounded quotient."""
    return arith.fdiv(_semantic, arg0, arg1, True)


@builtin
def fast_dividef(arg0: Any, arg1: Any, *, _semantic: Any = None) -> tensor:
    """Quotient of fp32, as fast as it goes."""
    return arith.fdiv(_semantic, arg0, arg1, False, True)


def _as_int(s: Semantic, condition: tensor) -> tensor:
    return convert.cast(s, condition, I32)


@builtin
def isnan(arg0: Any, *, _semantic: Any = None) -> tensor:
    """Nonzero where x is not a number."""
    x = _float(_semantic, arg0)
    return _as_int(_semantic, arith.ne(_semantic, x, x))


@builtin
def isinf(arg0: Any, *, _semantic: Any = None) -> tensor:
    """Nonzero where x is infinite."""
    magnitude = arith.absolute(_semantic, _float(_semantic, arg0))
    return _as_int(_semantic, arith.eq(_semantic, magnitude, float("inf")))


def _is_finite(s: Semantic, x: tensor) -> tensor:
    return _as_int(s, arith.lt(s, arith.absolute(s, x), float("inf")))


@builtin
def finitef(arg0: Any, *, _semantic: Any = None) -> tensor:
    """Nonzero where an fp32 is neither infinite nor NaN."""
    x = _float(_semantic, arg0)
    arith.check_dtype(x.dtype, ("fp32",))
    return _is_finite(_semantic, x)


@builtin
def isfinited(arg0: Any, *, _semantic: Any = None) -> tensor:
    """Nonzero where an fp64 is neither infinite nor NaN."""
    x = _float(_semantic, arg0)
    arith.check_dtype(x.dtype, ("fp64",))
    return _is_finite(_semantic, x)


@builtin
def signbit(arg0: Any, *, _semantic: Any = None) -> tensor:
    """Nonzero where the sign bit is set."""
    bits = _bits(_semantic, _float(_semantic, arg0))
    return _as_int(_semantic, arith.lt(_semantic, bits, 0))


@builtin
def mulhi(arg0: Any, arg1: Any, *, _semantic: Any = None) -> tensor:
    """High half of the product of two uint32 or uint64."""
    x, y = arith.arithmetic_operands(_semantic, arg0, arg1)
    arith.check_dtype(x.dtype, ("uint32", "uint64"))
    return arith.umulhi(_semantic, x, y)


def _bitcast(name: str, source: DType, to: DType) -> Callable[..., tensor]:
    @builtin
    def function(arg0: Any, *, _semantic: Any = None) -> tensor:
        value = to_tensor(_semantic, arg0)
        arith.check_dtype(value.dtype, (source.name,))
        return convert.bitcast(_semantic, value, to)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The bits of {source} as {to}."
    return function


int_as_float = _bitcast("int_as_float", I32, FP32)
uint_as_float = _bitcast("uint_as_float", U32, FP32)
float_as_int = _bitcast("float_as_int", FP32, I32)
float_as_uint = _bitcast("float_as_uint", FP32, U32)
longlong_as_double = _bitcast("longlong_as_double", I64, FP64)
double_as_longlong = _bitcast("double_as_longlong", FP64, I64)

"""The partial derivatives of the functions in this folder, as formulas.

Functions are approximated piecewise, with corrections of rounding errors and operations on the bits
of floats, whose ops cannot be differentiated usefully. In a kernel that is compiled for
differentiation, the result of a function is therefore a `mark.function_result`, whose derivative is
in this table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, pi, sqrt
from types import SimpleNamespace
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.language.elementary import bessel, bits, exponential, trigonometric
from tilewright.language.elementary.number import Number, apply, copysign, marked, where
from tilewright.language.elementary.rounding import MODES
from tilewright.language.semantic.context import Semantic
from tilewright.ops import marks, math

Partial = Callable[..., Number]  # of the operands and the result
TWO_OVER_SQRT_PI = 2 / sqrt(pi)


def _call(function: Any, *operands: Number) -> Number:
    """A call of a function that is itself differentiable."""
    return marked(function.__name__, function.formula, operands)


def _exp(x: Number) -> Number:
    return apply(math.Exp, x)


def _log(x: Number) -> Number:
    return apply(math.Log, x)


def _pow_by_base(x: Number, y: Number, r: Number) -> Number:
    """y x^(y - 1), which is 0 for y = 0"""
    exponent, known = y.to(x.element), y.known()
    less = exponent - 1.0 if known is None else x.constant(known - 1.0)
    lower = _call(exponential.pow, x, less)
    return where(exponent == 0.0, x.constant(0.0), exponent * lower)


def _pow_by_exponent(x: Number, y: Number, r: Number) -> Number:
    """x^y log(x), which is 0 for x = 0"""
    return where(x == 0.0, x.constant(0.0), r * _log(x))


def _part_of_norm(index: int) -> Partial:
    """x / |(x, y, …)|"""
    return lambda *given: given[index] / given[-1]


def _part_of_reciprocal_norm(index: int) -> Partial:
    """-x / |(x, y, …)|^3"""
    return lambda *given: -(given[index] * (given[-1] * (given[-1] * given[-1])))


def _sign(x: Number) -> Number:
    """1 or -1, also of a zero, by the sign bit: a constant in further derivatives."""
    return copysign(x.constant(1.0), x.emit(marks.StopGradient(x.value)))


def _signs(x: Number, y: Number, r: Number) -> Number:
    """sign(x) sign(y)"""
    return _sign(x) * _sign(y)


def _of_ldexp(x: Number, exponent: Number, r: Number) -> Number:
    return _call(bits.ldexp, x.constant(1.0), exponent)


def _of_bessel(lower: Any) -> Partial:
    """f0(x) - f1(x) / x, which is 1/2 for J and I at x = 0"""
    return lambda x, r: where(x == 0.0, x.constant(0.5), _call(lower, x) - r / x)


def _of_order(function: Any) -> Partial:
    """(f(n - 1, x) - f(n + 1, x)) / 2, which is -f(1, x) for n = 0"""

    def partial(n: Number, x: Number, r: Number) -> Number:
        above = _call(function, n + 1, x)
        below = _call(function, where(n == 0, n.constant(1), n - 1), x)
        return where(n == 0, -above, (below - above) * 0.5)

    return partial


_ONE: Partial = lambda *given: given[0].constant(1.0)  # noqa: E731
_MINUS_ONE: Partial = lambda *given: given[0].constant(-1.0)  # noqa: E731

TABLE: dict[str, tuple[Partial | None, ...]] = {
    "exp10": (lambda x, r: r * log(10),),
    "pow": (_pow_by_base, _pow_by_exponent),
    "cbrt": (lambda x, r: 1.0 / (r * r * 3.0),),
    "rcbrt": (lambda x, r: r * r * (r * r) / -3.0,),
    "hypot": tuple(map(_part_of_norm, range(2))),
    "rhypot": tuple(map(_part_of_reciprocal_norm, range(2))),
    "norm3d": tuple(map(_part_of_norm, range(3))),
    "rnorm3d": tuple(map(_part_of_reciprocal_norm, range(3))),
    "norm4d": tuple(map(_part_of_norm, range(4))),
    "rnorm4d": tuple(map(_part_of_reciprocal_norm, range(4))),
    "rsqrt_rn": (lambda x, r: r * (r * r) * -0.5,),
    "sinh": (lambda x, r: _call(exponential.cosh, x),),
    "cosh": (lambda x, r: _call(exponential.sinh, x),),
    "asinh": (lambda x, r: 1.0 / apply(math.Sqrt, x * x + 1.0, ieee=True),),
    "acosh": (lambda x, r: 1.0 / apply(math.Sqrt, (x - 1.0) * (x + 1.0), ieee=True),),
    "atanh": (lambda x, r: 1.0 / ((1.0 - x) * (x + 1.0)),),
    "tan": (lambda x, r: r * r + 1.0,),
    "asin": (lambda x, r: 1.0 / apply(math.Sqrt, (1.0 - x) * (x + 1.0), ieee=True),),
    "acos": (lambda x, r: -1.0 / apply(math.Sqrt, (1.0 - x) * (x + 1.0), ieee=True),),
    "atan": (lambda x, r: 1.0 / (x * x + 1.0),),
    "atan2": (lambda y, x, r: x / (x * x + y * y), lambda y, x, r: -(y / (x * x + y * y))),
    "sinpi": (lambda x, r: _call(trigonometric.cospi, x) * pi,),
    "cospi": (lambda x, r: _call(trigonometric.sinpi, x) * -pi,),
    "erfc": (lambda x, r: _exp(-(x * x)) * -TWO_OVER_SQRT_PI,),
    "erfcx": (lambda x, r: x * r * 2.0 - TWO_OVER_SQRT_PI,),
    "normcdf": (lambda x, r: _exp(x * x * -0.5) * (1 / sqrt(2 * pi)),),
    "erfinv": (lambda x, r: _exp(r * r) * (1 / TWO_OVER_SQRT_PI),),
    "erfcinv": (lambda x, r: _exp(r * r) * (-1 / TWO_OVER_SQRT_PI),),
    "normcdfinv": (lambda x, r: _exp(r * r * 0.5) * sqrt(2 * pi),),
    "j0": (lambda x, r: -_call(bessel.j1, x),),
    "j1": (_of_bessel(bessel.j0),),
    "y0": (lambda x, r: -_call(bessel.y1, x),),
    "y1": (lambda x, r: _call(bessel.y0, x) - r / x,),
    "jn": (None, _of_order(bessel.jn)),
    "yn": (None, _of_order(bessel.yn)),
    "cyl_bessel_i0": (lambda x, r: _call(bessel.cyl_bessel_i1, x),),
    "cyl_bessel_i1": (_of_bessel(bessel.cyl_bessel_i0),),
    "copysign": (_signs, None),
    "ldexp": (_of_ldexp, None),
    "scalbn": (_of_ldexp, None),
    "logb": (None,),
    "round": (None,),
    "remainder": (_ONE, lambda x, y, r: -apply(math.Rint, (x - r) / y)),
}
for _mode in MODES:
    TABLE.update(
        {
            f"add_{_mode}": (_ONE, _ONE),
            f"sub_{_mode}": (_ONE, _MINUS_ONE),
            f"mul_{_mode}": (lambda x, y, r: y, lambda x, y, r: x),
            f"div_{_mode}": (lambda x, y, r: 1.0 / y, lambda x, y, r: -(r / y)),
            f"fma_{_mode}": (lambda x, y, z, r: y, lambda x, y, z, r: x, _ONE),
            f"rcp_{_mode}": (lambda x, r: -(r * r),),
            f"sqrt_{_mode}": (lambda x, r: 0.5 / r,),
            f"double2float_{_mode}": (lambda x, r: r.constant(1.0),),
        }
    )


_OPTIONS: Any = SimpleNamespace(strict_triton=False)  # all that formulas depend on


def _inserted(partial: Partial | None) -> marks.PartialDerivative | None:
    if partial is None:
        return None

    def insert(builder: Builder, values: Sequence[Value]) -> Value:
        semantic = Semantic(builder, _OPTIONS)
        return partial(*[Number(semantic, v) for v in values]).value

    return insert


def install_derivatives() -> None:
    """Enter the table where the rules of differentiation find it."""
    marks.DERIVATIVES.update({name: list(map(_inserted, given)) for name, given in TABLE.items()})

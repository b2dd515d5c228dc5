"""Writes `tilewright/language/elementary/coefficients.py`: the polynomials of the formulas there.

    python -m tests.language.coefficients

Each is the polynomial through the values of a function at the Chebyshev points of an interval,
found with 50 digits; its error is at most a few times that of the best one. It is in x itself where
the interval begins at 0 and is short, else in t = (2x - a - b) / (b - a), which runs over -1 .. 1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mpmath as mp

FILE = Path(__file__).parents[2] / "tilewright/language/elementary/coefficients.py"
DIGITS = 50
ERFCX_MIDDLE = 4
BESSEL_END = 8
ROOT_MIDDLE = 3  # of the initial erfcinv


class Fit(NamedTuple):
    """A polynomial for `function` on `low` .. `high`.

    Attributes:
        scaled: whether it is one in t.
    """

    meaning: str
    function: Callable[[Any], Any]
    low: Any
    high: Any
    degree: int
    scaled: bool = True


def chebyshev(f: Callable[[Any], Any], low: Any, high: Any, degree: int) -> list[Any]:
    """The coefficients of the interpolating sum of Chebyshev polynomials."""
    count = degree + 1
    angles = [mp.pi * (2 * j + 1) / (2 * count) for j in range(count)]
    values = [f((low + high) / 2 + (high - low) / 2 * mp.cos(a)) for a in angles]
    sums = [
        mp.fsum(v * mp.cos(i * a) for v, a in zip(values, angles, strict=True))
        for i in range(count)
    ]
    return [s * (1 if i == 0 else 2) / count for i, s in enumerate(sums)]


def powers(series: list[Any]) -> list[Any]:
    """The same polynomial by powers of t."""
    size = len(series)
    before, this = [mp.mpf(0)] * size, [mp.mpf(0)] * size
    before[0] = this[1] = mp.mpf(1)
    total = [series[0] * a + series[1] * b for a, b in zip(before, this, strict=True)]
    for c in series[2:]:
        doubled = [mp.mpf(0), *(2 * a for a in this[:-1])]
        before, this = this, [a - b for a, b in zip(doubled, before, strict=True)]
        total = [a + c * b for a, b in zip(total, this, strict=True)]
    return total


def in_x(coefficients: list[Any], low: Any, high: Any) -> list[Any]:
    """A polynomial in t as one in x: Horner's rule on polynomials."""
    slope, offset = 2 / (high - low), -(low + high) / (high - low)
    result = [mp.mpf(0)] * len(coefficients)
    for c in reversed(coefficients):
        shifted = [mp.mpf(0), *(slope * r for r in result[:-1])]
        result = [s + offset * r for s, r in zip(shifted, result, strict=True)]
        result[0] += c
    return result


def erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x), by its asymptotic series where it converges to 50 digits."""
    if x < 100:
        return mp.exp(x * x) * mp.erfc(x)
    terms = [(-1) ** n * mp.fac2(2 * n - 1) / (2 * x * x) ** n for n in range(12)]
    return mp.fsum(terms) / (x * mp.sqrt(mp.pi))


def _erfcinv(y: Any) -> Any:
    x = mp.sqrt(-mp.log(y))
    return mp.findroot(lambda v: mp.log(mp.erfc(v)) - mp.log(y), x * mp.mpf("0.9"))


def _modulus(order: int, sine: bool) -> Callable[[Any], Any]:
    """P (or Q * x / 8) of Hankel's form, in (8/x)^2, found from J and Y themselves."""

    def f(z: Any) -> Any:
        x = BESSEL_END / mp.sqrt(z)
        angle = x - (2 * order + 1) * mp.pi / 4
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        size = mp.sqrt(mp.pi * x / 2)
        if sine:
            return size * (y * mp.cos(angle) - j * mp.sin(angle)) * x / BESSEL_END
        return size * (j * mp.cos(angle) + y * mp.sin(angle))

    return f


def _log2_series(s: Any) -> Any:
    return (2 * mp.atanh(s) / s - 2) / (s * s * mp.log(2))


def _stirling(z: Any) -> Any:
    x = 1 / mp.sqrt(z)
    rest = mp.loggamma(x) - (x - mp.mpf(1) / 2) * mp.log(x) + x - mp.log(2 * mp.pi) / 2
    return rest * x


def _of_root(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda z: f(mp.sqrt(z))


def fits() -> dict[str, Fit]:
    half, one = mp.mpf(1) / 2, mp.mpf(1)
    middle = mp.mpf(ERFCX_MIDDLE)
    j0, j1 = (lambda x: mp.besselj(0, x)), (lambda x: mp.besselj(1, x))
    y0, y1 = (lambda x: mp.bessely(0, x)), (lambda x: mp.bessely(1, x))
    log_term = 2 / mp.pi
    end = mp.mpf(BESSEL_END)
    square = end * end
    return {
        "ASIN": Fit("(asin(x) - x) / x^3 in x^2, up to x = 1/2",
                    _of_root(lambda x: (mp.asin(x) - x) / x**3), 0 * one, half**2, 13, False),
        "ATAN": Fit("(atan(x) - x) / x^3 in x^2, up to x = sqrt(2) - 1",
                    _of_root(lambda x: (mp.atan(x) - x) / x**3), 0 * one, (mp.sqrt(2) - 1) ** 2,
                    12, False),
        "ASIN_FP32": Fit("(asin(x) - x) / x^3 in x^2, up to x = 1/2, for fp32",
                         _of_root(lambda x: (mp.asin(x) - x) / x**3), 0 * one, half**2, 4, False),
        "ATAN_FP32": Fit("(atan(x) - x) / x^3 in x^2, up to x = 1",
                         _of_root(lambda x: (mp.atan(x) - x) / x**3), 0 * one, one, 8, False),
        "LOG2_FP32": Fit("(log2((1 + s) / (1 - s)) / s - 2 log2(e)) / s^2 in s^2, up to 0.102",
                         _of_root(_log2_series), 0 * one, mp.mpf("0.102") ** 2, 2, False),
        "SINH_FP32": Fit("(sinh(x) - x) / x^3 in x^2, up to x = 1",
                         _of_root(lambda x: (mp.sinh(x) - x) / x**3), 0 * one, one, 3, False),
        "ERFC_FP32": Fit("(1 + 2x) exp(x^2) erfc(x) in t = (x - 4) / (x + 4), for x = 0 .. 11",
                         lambda t: (lambda x: (1 + 2 * x) * erfcx(x))(middle * (1 + t) / (1 - t)),
                         -one, (11 - middle) / (11 + middle), 11, False),
        "ERFCX": Fit("(1 + 2x) exp(x^2) erfc(x) in t = (x - 4) / (x + 4), for x >= 0",
                     lambda t: (lambda x: (1 + 2 * x) * erfcx(x))(middle * (1 + t) / (1 - t)),
                     -one, one, 27),
        "ERF": Fit("erf(x) / x in x^2, up to x = 3/4", _of_root(lambda x: mp.erf(x) / x),
                   0 * one, mp.mpf("0.5625"), 12, False),
        "ERFCINV": Fit("erfcinv(exp(-s^2)) / s in t = (s - 3) / (s + 3), s from 0.8 to 27.4, with "
                       "3e-7",
                       lambda t: (lambda s: _erfcinv(mp.exp(-s * s)) / s)(
                           ROOT_MIDDLE * (1 + t) / (1 - t)),
                       (mp.mpf("0.8") - 3) / (mp.mpf("0.8") + 3),
                       (mp.mpf("27.4") - 3) / (mp.mpf("27.4") + 3), 13),
        "ERFINV": Fit("erfinv(y) / y in y^2, up to y = 1/2",
                      _of_root(lambda y: mp.erfinv(y) / y), 0 * one, half**2, 15),
        "GAMMA": Fit("gamma(x) on 2 .. 3", mp.gamma, 2 * one, 3 * one, 18),
        "LGAMMA": Fit("log(gamma(x)) / ((x - 1) (x - 2)) on 1 .. 3",
                      lambda x: mp.loggamma(x) / ((x - 1) * (x - 2)), one, 3 * one, 31),
        "STIRLING": Fit("x times what log(gamma(x)) is beyond Stirling's formula, in 1/x^2, x >= 8",
                        _stirling, 0 * one, one / 64, 7, False),
        "J0": Fit("(j0(x) - 1) / x^2 in x^2, up to x = 8", _of_root(lambda x: (j0(x) - 1) / x**2),
                  0 * one, square, 17),
        "J1": Fit("j1(x) / x in x^2, up to x = 8", _of_root(lambda x: j1(x) / x), 0 * one, square,
                  16),
        "Y0": Fit("y0(x) - 2/pi log(x) j0(x) in x^2, up to x = 8",
                  _of_root(lambda x: y0(x) - log_term * mp.log(x) * j0(x)), 0 * one, square, 17),
        "Y1": Fit("(y1(x) - 2/pi (log(x) j1(x) - 1/x)) / x in x^2, up to x = 8",
                  _of_root(lambda x: (y1(x) - log_term * (mp.log(x) * j1(x) - 1 / x)) / x),
                  0 * one, square, 17),
        "P0": Fit("P of j0 and y0 in (8/x)^2", _modulus(0, False), 0 * one, one, 15),
        "Q0": Fit("Q x/8 of j0 and y0 in (8/x)^2", _modulus(0, True), 0 * one, one, 15),
        "P1": Fit("P of j1 and y1 in (8/x)^2", _modulus(1, False), 0 * one, one, 15),
        "Q1": Fit("Q x/8 of j1 and y1 in (8/x)^2", _modulus(1, True), 0 * one, one, 15),
        "I0": Fit("exp(-x) i0(x) on 0 .. 8", lambda x: mp.exp(-x) * mp.besseli(0, x), 0 * one, end,
                  30),
        "I1": Fit("exp(-x) i1(x) / x on 0 .. 8", lambda x: mp.exp(-x) * mp.besseli(1, x) / x,
                  0 * one, end, 29),
        "I0_LARGE": Fit("exp(-x) sqrt(x) i0(x) in 8/x", lambda y: _large_i(0, end / y), 0 * one,
                        one, 28),
        "I1_LARGE": Fit("exp(-x) sqrt(x) i1(x) in 8/x", lambda y: _large_i(1, end / y), 0 * one,
                        one, 28),
    }  # fmt: skip


def _large_i(order: int, x: Any) -> Any:
    return mp.exp(-x) * mp.sqrt(x) * mp.besseli(order, x)


def coefficients(fit: Fit) -> list[float]:
    with mp.workdps(DIGITS):
        found = powers(chebyshev(fit.function, fit.low, fit.high, fit.degree))
        if not fit.scaled:
            found = in_x(found, fit.low, fit.high)
        return [float(c) for c in found]


def text() -> str:
    with mp.workdps(DIGITS):
        parts = [
            '"""Polynomials of the formulas, the constant first, in t = -1 .. 1 by default.',
            "",
            "Written by `python -m tests.language.coefficients`, which documents the method.",
            '"""',
            "",
        ]
        for name, fit in fits().items():
            lines = [f"    {c!r}," for c in coefficients(fit)]
            parts += [f"# {fit.meaning}.", f"{name} = (", *lines, ")"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")

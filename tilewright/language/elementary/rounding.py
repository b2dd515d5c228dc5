"""Arithmetic and conversions in four rounding modes: to nearest even (rn), toward zero (rz), down
(rd) and up (ru).

Arithmetic of the ops rounds to nearest. Its rounding error is computed exactly, as another float,
and a result on the wrong side of the exact value is replaced by its neighbour. The operands are
scaled to magnitudes near 1, so that intermediate results do not overflow or underflow.

Sources: the error of a sum is D. Knuth's TwoSum (TAOCP volume 2, section 4.2.2), that of an fma is
from S. Boldo and J.-M. Muller, "Exact and approximated error of the FMA", IEEE TC 60, 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.types import FP32, FP64, I32, I64, U32, U64, DType
from tilewright.language.elementary.bits import (
    decompose,
    is_finite,
    mantissa_bits,
    neighbour,
    power_of_two,
    scale,
)
from tilewright.language.elementary.number import (
    Formula,
    Number,
    apply,
    copysign,
    fma,
    function,
    maximum,
    sqrt,
    where,
)
from tilewright.ops import math

MODES = ("rn", "rz", "rd", "ru")

# -- directed rounding -----------------------------------------------------------------------------


def two_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """The rounded sum and its exact error."""
    total = a + b
    shifted = total - a
    return total, (a - (total - shifted)) + (b - shifted)


def directed(rounded: Number, rest: Number, mode: str) -> Number:
    """Round in the direction of `mode`: `rounded` or its neighbour. `rounded` is adjacent to the
    exact value, and the sign of `rest` is that of the exact value minus `rounded`."""
    if mode == "ru":
        return where(rest > 0.0, neighbour(rounded, True), rounded)
    if mode == "rd":
        return where(rest < 0.0, neighbour(rounded, False), rounded)
    over = where(rounded.bits() < 0, rest > 0.0, rest < 0.0)
    return (rounded.bits() - over.to(rounded.bits().element)).bits(rounded.element)


def _scaled(head: Number, error: Number, exponent: Number, mode: str) -> Number:
    """(head + error) * 2**exponent, rounded in the direction of `mode`. Only the sign of the error
    matters."""
    rounded = scale(head, exponent)
    difference = head - scale(rounded, -exponent)  # exact
    return directed(rounded, where(difference == 0.0, error, difference), mode)


def _ordinary(*operands: Number) -> Number:
    """Whether all operands are finite and nonzero."""
    found = [is_finite(x) & (x != 0.0) for x in operands]
    for more in found[1:]:
        found[0] = found[0] & more
    return found[0]


def _signed_parts(x: Number) -> tuple[Number, Number]:
    """(m, e) with x = m * 2**e, the sign being that of m."""
    m, e = decompose(x)
    return copysign(m, x), e


def _lowered(m: Number, e: Number, top: Number) -> Number:
    """m * 2**(e - top). The exponent is limited such that a smaller number affects a rounded sum
    with a number near 1 only by its sign."""
    limit = -3 * mantissa_bits(m) - 5
    return m * power_of_two(maximum(e - top, limit), m.element)


def _zero_of_sum(nearest: Number, x: Number, y: Number, mode: str) -> Number:
    """The sum in special cases: when rounding down, a zero sum of operands with different signs is
    -0.0."""
    if mode != "rd":
        return nearest
    differ = (x.bits() ^ y.bits()) < 0
    return where((nearest == 0.0) & differ & is_finite(x), -abs(nearest), nearest)


# -- arithmetic ------------------------------------------------------------------------------------


def _add(mode: str) -> Formula:
    def add(x: Number, y: Number) -> Number:
        """x + y"""
        if mode == "rn":
            return x + y
        (mx, ex), (my, ey) = _signed_parts(x), _signed_parts(y)
        top = maximum(ex, ey)
        total, error = two_sum(_lowered(mx, ex, top), _lowered(my, ey, top))
        result = _scaled(total, error, top, mode)
        nearest = x + y
        plain = _zero_of_sum(nearest, x, y, mode)
        return where(_ordinary(x, y) & (total != 0.0), result, plain)

    return add


def _sub(mode: str) -> Formula:
    added = _add(mode)

    def sub(x: Number, y: Number) -> Number:
        """x - y"""
        return added(x, -y)

    return sub


def _mul(mode: str) -> Formula:
    def mul(x: Number, y: Number) -> Number:
        """x * y"""
        if mode == "rn":
            return x * y
        (mx, ex), (my, ey) = _signed_parts(x), _signed_parts(y)
        head = mx * my
        result = _scaled(head, fma(mx, my, -head), ex + ey, mode)
        return where(_ordinary(x, y), result, x * y)

    return mul


def _div(mode: str) -> Formula:
    def div(x: Number, y: Number) -> Number:
        """x / y"""
        if mode == "rn":
            return x / y
        (mx, ex), (my, ey) = _signed_parts(x), decompose(y)
        mx = (mx.bits() ^ (y.bits() & (-1 << (y.element.primitive_bitwidth - 1)))).bits(x.element)
        head = mx / my
        result = _scaled(head, fma(-head, my, mx), ex - ey, mode)
        return where(_ordinary(x, y), result, x / y)

    return div


def _rcp(mode: str) -> Formula:
    divided = _div(mode)

    def rcp(x: Number) -> Number:
        """1 / x"""
        return divided(x.constant(1.0), x)

    return rcp


def _sqrt(mode: str) -> Formula:
    def root(x: Number) -> Number:
        """The square root"""
        if mode == "rn":
            return sqrt(x)
        m, e = decompose(x)
        odd = (e & 1) != 0
        m = where(odd, m * 2.0, m)
        head = sqrt(m)
        result = _scaled(head, fma(-head, head, m), (e - (e & 1)) >> 1, mode)
        return where(_ordinary(x) & (x > 0.0), result, sqrt(x))

    return root


def _fma(mode: str) -> Formula:
    def fused(x: Number, y: Number, z: Number) -> Number:
        """x * y + z with one rounding"""
        if mode == "rn":
            return fma(x, y, z)
        (mx, ex), (my, ey), (mz, ez) = _signed_parts(x), _signed_parts(y), _signed_parts(z)
        no_addend = z == 0.0
        top = where(no_addend, ex + ey, maximum(ex + ey, ez))
        mx = _lowered(mx, ex + ey, top)
        addend = where(no_addend, z, _lowered(mz, ez, top))
        head, error = _fma_with_error(mx, my, addend)
        result = _scaled(head, error, top, mode)
        sign_of_product = copysign(x.constant(1.0), x) * copysign(x.constant(1.0), y)
        plain = _zero_of_sum(fma(x, y, z), sign_of_product, z, mode)
        good = _ordinary(x, y) & is_finite(z) & (head != 0.0)
        return where(good, result, plain)

    return fused


def _fma_with_error(x: Number, y: Number, z: Number) -> tuple[Number, Number]:
    """The rounded fma, and a number with the sign of its error: Boldo and Muller's algorithm."""
    head = fma(x, y, z)
    product = x * y
    product_error = fma(x, y, -product)
    middle, low = two_sum(z, product_error)
    high, high_error = two_sum(product, middle)
    return head, ((high - head) + high_error) + low


def _family(name: str, make: Callable[[str], Formula], signature: str, mode: str) -> Any:
    formula = make(mode)
    words = {"rn": "to nearest even", "rz": "toward zero", "rd": "down", "ru": "up"}
    formula.__doc__ = f"{formula.__doc__}, rounded {words[mode]}."
    formula.__module__ = __name__
    return function(signature, name=f"{name}_{mode}")(formula)


# -- conversions -----------------------------------------------------------------------------------


def _to_fp32(mode: str, x: Number, rest: Number | None = None) -> Number:
    """fp64 to fp32; `rest` has the sign of the rounding error of x itself."""
    nearest = x.to(FP32)
    if mode == "rn":
        return nearest
    difference = x - nearest.to(FP64)
    if rest is not None:
        difference = where(difference == 0.0, rest, difference)
    return directed(nearest, difference, mode)


_ROUNDINGS = {"rn": math.Rint, "rz": math.Trunc, "rd": math.Floor, "ru": math.Ceil}


def _float_to_int(to: DType) -> Callable[[str], Formula]:
    """Conversions to an integer type. As in Triton, an unsigned result has the signed type: only
    its bits are those of the unsigned number."""
    signed = {U32: I32, U64: I64}.get(to, to)
    note = "" if signed is to else f". The bits are returned as {signed}"

    def make(mode: str) -> Formula:
        def convert(x: Number) -> Number:
            return apply(_ROUNDINGS[mode], x).to(to).bits(signed)

        convert.__doc__ = f"Conversion to {to}, which saturates; 0 for NaN{note}"
        return convert

    return make


def _double_to_float(mode: str) -> Formula:
    def convert(x: Number) -> Number:
        """Conversion to fp32"""
        return _to_fp32(mode, x)

    return convert


def _int_to_float(mode: str) -> Formula:
    def convert(x: Number) -> Number:
        """Conversion to fp32"""
        return _to_fp32(mode, x.to(FP64))  # the conversion to fp64 is exact

    return convert


def _halves(x: Number) -> tuple[Number, Number]:
    """A 64-bit integer as a rounded fp64 and its error: the error-free sum of two exact halves."""
    high = (x >> 32).to(FP64) * 2.0**32
    return two_sum(high, (x & 0xFFFFFFFF).to(FP64))


def _long_to_double(mode: str) -> Formula:
    def convert(x: Number) -> Number:
        """Conversion to fp64"""
        if mode == "rn":
            return x.to(FP64)
        nearest, rest = _halves(x)
        return directed(nearest, rest, mode)

    return convert


def _long_to_float(mode: str) -> Formula:
    def convert(x: Number) -> Number:
        """Conversion to fp32"""
        return x.to(FP32) if mode == "rn" else _to_fp32(mode, *_halves(x))

    return convert


# name of the family -> its formula by mode, its signature
FAMILIES: dict[str, tuple[Callable[[str], Formula], str]] = {
    "add": (_add, "xx->x"),
    "sub": (_sub, "xx->x"),
    "mul": (_mul, "xx->x"),
    "div": (_div, "xx->x"),
    "fma": (_fma, "xxx->x"),
    "rcp": (_rcp, "x->x"),
    "sqrt": (_sqrt, "x->x"),
    "double2float": (_double_to_float, "d->f"),
    "double2int": (_float_to_int(I32), "d->i"),
    "double2uint": (_float_to_int(U32), "d->i"),
    "double2ll": (_float_to_int(I64), "d->l"),
    "double2ull": (_float_to_int(U64), "d->l"),
    "float2int": (_float_to_int(I32), "f->i"),
    "float2uint": (_float_to_int(U32), "f->i"),
    "float2ll": (_float_to_int(I64), "f->l"),
    "float2ull": (_float_to_int(U64), "f->l"),
    "int2float": (_int_to_float, "i->f"),
    "uint2float": (_int_to_float, "u->f"),
    "ll2float": (_long_to_float, "l->f"),
    "ull2float": (_long_to_float, "m->f"),
    "ll2double": (_long_to_double, "l->d"),
    "ull2double": (_long_to_double, "m->d"),
}


def family(name: str) -> tuple[Any, Any, Any, Any]:
    """The functions of a family in the modes rn, rz, rd and ru."""
    make, signature = FAMILIES[name]
    rn, rz, rd, ru = (_family(name, make, signature, mode) for mode in MODES)
    return rn, rz, rd, ru


@function("i->d")
def int2double_rn(x: Number) -> Number:
    """Conversion to fp64, which is exact."""
    return x.to(FP64)


@function("u->d")
def uint2double_rn(x: Number) -> Number:
    """Conversion to fp64, which is exact."""
    return x.to(FP64)

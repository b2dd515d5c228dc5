"""Arithmetic of floats as the vector unit does it, on NumPy arrays.

Results are rounded once, to nearest even. Approximations (reciprocals, roots, exponentials,
logarithms, sine and cosine) are within one unit in the last place of the hardware's bound, and
flush denormals of 32 bits as the hardware does.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tests.amd_emulator.state import Array
from tilewright.ir.types import FP64
from tilewright.ops.numeric import fused_multiply_add

Operation = Callable[..., Array]

_QUIET = {np.float16: 0x0200, np.float32: 0x00400000, np.float64: 0x0008000000000000}


def bits(value: Array) -> Array:
    """The bits of floats."""
    return np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")


def quiet(value: Array) -> Array:
    """The value, with a signalling NaN made a quiet one."""
    form = value.dtype.type
    flag = bits(value).dtype.type(_QUIET[form])
    return np.where(np.isnan(value), (bits(value) | flag).view(form), value)


def is_signalling(value: Array) -> Array:
    """Whether a float is a signalling NaN."""
    flag = bits(value).dtype.type(_QUIET[value.dtype.type])
    return np.isnan(value) & (bits(value) & flag == 0)


def round_to_odd(first: Array, second: Array) -> Array:
    """The sum of two doubles, rounded so that it can be rounded again to fewer bits exactly."""
    total = first + second
    back = total - first
    error = (first - (total - back)) + (second - back)
    even = bits(total) & np.uint64(1) == 0
    inexact = np.isfinite(total) & (error != 0) & even
    return np.where(inexact, np.nextafter(total, np.copysign(np.inf, error)), total)


def fma(a: Array, b: Array, c: Array) -> Array:
    """A product and a sum with one rounding."""
    if a.dtype == np.float64:
        return fused_multiply_add(a, b, c, FP64)
    wide = (x.astype(np.float64) for x in (a, b, c))
    x, y, z = wide
    return round_to_odd(x * y, z).astype(a.dtype)


def _extremum(a: Array, b: Array, largest: bool) -> Array:
    """IEEE 754-2008's minNum and maxNum: a number if there is one; -0 is less than +0."""
    a, b = np.broadcast_arrays(a, b)
    zeros = (a == 0) & (b == 0)
    number = np.fmax(a, b) if largest else np.fmin(a, b)
    both = bits(a) & bits(b) if largest else bits(a) | bits(b)
    found = np.where(zeros, both.view(a.dtype), number)
    found = np.where(is_signalling(b), quiet(b), found)
    return quiet(np.where(is_signalling(a), quiet(a), found))


def minimum_number(a: Array, b: Array) -> Array:
    """v_min: the smaller number."""
    return _extremum(a, b, False)


def maximum_number(a: Array, b: Array) -> Array:
    """v_max: the larger number."""
    return _extremum(a, b, True)


def _propagating(a: Array, b: Array, largest: bool) -> Array:
    a, b = np.broadcast_arrays(a, b)
    return np.where(np.isnan(a) | np.isnan(b), quiet(a + b), _extremum(a, b, largest))


def minimum(a: Array, b: Array) -> Array:
    """v_minimum of RDNA4: the smaller, NaN if either is."""
    return _propagating(a, b, False)


def maximum(a: Array, b: Array) -> Array:
    """v_maximum of RDNA4: the larger, NaN if either is."""
    return _propagating(a, b, True)


def median(a: Array, b: Array, c: Array) -> Array:
    """v_med3: the middle one; the least number if any is NaN."""
    least = minimum_number(minimum_number(a, b), c)
    low, high = minimum_number(a, b), maximum_number(a, b)
    middle = maximum_number(low, minimum_number(high, c))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), least, middle)


def _flushed(value: Array) -> Array:
    tiny = np.finfo(np.float32).tiny
    return np.where(np.abs(value) < tiny, np.copysign(np.float32(0), value), value)


def approximate(function: Callable[[Array], Array]) -> Operation:
    """A function of one float, computed in double precision; floats of 32 bits are flushed."""

    def run(x: Array) -> Array:
        if x.dtype == np.float32:
            return _flushed(function(_flushed(x).astype(np.float64)).astype(np.float32))
        return function(x.astype(np.float64)).astype(x.dtype)

    return run


def _turns(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        return np.where(np.isinf(x), np.nan, function(2 * np.pi * (x - np.floor(x))))

    return run


def fraction(x: Array) -> Array:
    """v_fract: the part behind the point, less than one."""
    largest = np.nextafter(x.dtype.type(1), x.dtype.type(0))
    found = np.minimum(x - np.floor(x), largest)
    return np.where(np.isinf(x), x.dtype.type(np.nan), found)


def to_integer(value: Array, form: Any, rounded: Callable[[Array], Array] = np.trunc) -> Array:
    """The conversion to an integer: NaN gives 0, what is too large the nearest integer."""
    limits = np.iinfo(form)
    wide = rounded(value.astype(np.float64))
    inside = np.where(np.isnan(wide), 0, np.clip(wide, limits.min, limits.max))
    return inside.astype(np.int64).astype(form)


def ldexp(x: Array, power: Array) -> Array:
    """x times a power of two, rounded once."""
    power = np.clip(power.astype(np.int32), -5000, 5000)
    if x.dtype == np.float16:
        return np.ldexp(x.astype(np.float64), power).astype(np.float16)
    return np.ldexp(x, power)


def mantissa(x: Array) -> Array:
    """v_frexp_mant: the mantissa, in [0.5, 1)."""
    return np.where(np.isfinite(x), np.frexp(x)[0], x)


def exponent(x: Array) -> Array:
    """v_frexp_exp: the exponent, 0 for what is not finite."""
    return np.where(np.isfinite(x), np.frexp(x)[1], 0)


def toward_zero(x: Array) -> Array:
    """A half from a float, rounded toward zero."""
    near = x.astype(np.float16)
    over = np.abs(near.astype(np.float32)) > np.abs(x)
    return np.where(over & ~np.isnan(x), np.nextafter(near, np.float16(0)), near)


def class_of(x: Array, mask: Array) -> Array:
    """v_cmp_class: whether the float is of one of the classes in the bits of the mask."""
    negative = np.signbit(x)
    normal = np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny)
    zero, infinite, nan = x == 0, np.isinf(x), np.isnan(x)
    small = np.isfinite(x) & ~normal & ~zero
    classes = [is_signalling(x), nan & ~is_signalling(x), infinite & negative, normal & negative]
    classes += [small & negative, zero & negative, zero & ~negative, small & ~negative]
    classes += [normal & ~negative, infinite & ~negative]
    found = np.zeros(np.broadcast_shapes(x.shape, mask.shape), bool)
    for i, one in enumerate(classes):
        found |= one & (mask >> i & 1).astype(bool)
    return found


# -- division -------------------------------------------------------------------------------------

# The bits of a mantissa, the largest exponent, and how far a quotient is scaled.
_SHAPES = {np.float32: (23, 255, 64, 96), np.float64: (52, 2047, 128, 768)}


def _exponents(x: Array) -> Array:
    """The biased exponent."""
    low, most, _, _ = _SHAPES[x.dtype.type]
    return (bits(x).astype(np.uint64) >> np.uint64(low)).astype(np.int64) & most


def _denormal(x: Array) -> Array:
    return (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)


def div_scale(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """v_div_scale: the denominator b or the numerator c, whichever a is, scaled; and the flag.

    A denominator whose inverse and quotient are subnormal is scaled down: AMD's manuals scale it
    up, beyond all numbers, by which LLVM's quotients could not be the exact ones.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    form = a.dtype.type
    low, _, scale, far = _SHAPES[form]
    up, down = ldexp(a, np.array(scale)), ldexp(a, np.array(-scale))
    is_b, is_c = bits(a) == bits(b), bits(a) == bits(c)
    small_inverse, small = _denormal(form(1) / b), _denormal(c / b)
    apart = _exponents(c) - _exponents(b) >= far
    cases = [
        ((b == 0) | (c == 0), np.full_like(a, np.nan), False),
        (apart, np.where(is_b, up, a), True),
        (_denormal(b), up, False),
        (small_inverse & small, np.where(is_b, down, a), True),
        (small_inverse, down, False),
        (small, np.where(is_c, up, a), True),
        (_exponents(c) <= low + (form is np.float64), up, False),
    ]
    value = np.select([case[0] for case in cases], [case[1] for case in cases], a)
    flag = np.select([case[0] for case in cases], [np.full(a.shape, x[2]) for x in cases], False)
    return value.astype(form), flag


def div_fmas(a: Array, b: Array, c: Array, flag: Array) -> Array:
    """v_div_fmas: a product and a sum, scaled back where the flag is set.

    It is rounded once, though AMD's manuals round before they scale: quotients that are subnormal
    could not be the exact ones then, as OpenCL requires them to be.
    """
    a, b, c, flag = np.broadcast_arrays(a, b, c, flag)
    scale = _SHAPES[a.dtype.type][2]
    half = _SHAPES[a.dtype.type][1] // 2
    power = np.where(_exponents(c) > half, scale, -scale)
    found = fma(a, b, c)
    scaled = np.where(flag, ldexp(found, power), found)
    for place in np.argwhere(flag & (_denormal(scaled) | (scaled == 0)) & (found != 0)):
        at = tuple(place)
        x, y, z = (Fraction(float(v[at])) for v in (a, b, c))
        near = _nearest((x * y + z) / 2**scale, a.dtype.type)
        scaled[at] = np.copysign(near, found[at])
    return scaled


def _nearest(exact: Fraction, form: type[np.floating[Any]]) -> Any:
    """The nearest number to one that is subnormal or close to it, of ties the even one."""
    least = Fraction(float(np.finfo(form).smallest_subnormal))
    return form(round(exact / least) * float(least))


def div_fixup(quotient: Array, b: Array, c: Array) -> Array:
    """v_div_fixup: the quotient c / b, with the special cases of division. Where that exceeds all
    numbers, or is less than all, the steps before this one have infinity less infinity."""
    quotient, b, c = np.broadcast_arrays(quotient, b, c)
    form = quotient.dtype.type
    sign = np.where(np.signbit(b) ^ np.signbit(c), form(-1), form(1))
    nan = form(np.nan)
    infinite, zero = np.copysign(form(np.inf), sign), np.copysign(form(0), sign)
    cases = [
        (np.isnan(c), quiet(c)),
        (np.isnan(b), quiet(b)),
        ((b == 0) & (c == 0) | np.isinf(b) & np.isinf(c), np.full_like(quotient, nan)),
        ((b == 0) | np.isinf(c), infinite),
        (np.isinf(b) | (c == 0), zero),
        (np.isnan(quotient), np.where(np.abs(b) < np.abs(c), infinite, zero)),
    ]
    usual = np.copysign(quotient, sign)
    return np.select([x[0] for x in cases], [x[1] for x in cases], usual).astype(form)


# -- the table ------------------------------------------------------------------------------------

UNARY: dict[str, Operation] = {
    "trunc": np.trunc,
    "ceil": np.ceil,
    "floor": np.floor,
    "rndne": np.rint,
    "fract": fraction,
    "rcp": approximate(lambda x: 1 / x),
    "rsq": approximate(lambda x: 1 / np.sqrt(x)),
    "sqrt": approximate(np.sqrt),
    "exp": approximate(np.exp2),
    "log": approximate(np.log2),
    "sin": approximate(_turns(np.sin)),
    "cos": approximate(_turns(np.cos)),
    "frexp_mant": mantissa,
}
_BINARY: dict[str, Operation] = {
    "add": np.add,
    "sub": np.subtract,
    "subrev": lambda a, b: b - a,
    "mul": np.multiply,
    "min": minimum_number,
    "max": maximum_number,
    "minimum": minimum,
    "maximum": maximum,
}
_TERNARY: dict[str, Operation] = {
    "fma": fma,
    "fmac": fma,
    "fmaak": fma,
    "fmamk": fma,
    "min3": lambda a, b, c: minimum_number(minimum_number(a, b), c),
    "max3": lambda a, b, c: maximum_number(maximum_number(a, b), c),
    "minimum3": lambda a, b, c: minimum(minimum(a, b), c),
    "maximum3": lambda a, b, c: maximum(maximum(a, b), c),
    "minmax": lambda a, b, c: maximum_number(minimum_number(a, b), c),
    "maxmin": lambda a, b, c: minimum_number(maximum_number(a, b), c),
    "minimummaximum": lambda a, b, c: maximum(minimum(a, b), c),
    "maximumminimum": lambda a, b, c: minimum(maximum(a, b), c),
    "med3": median,
    "div_fixup": div_fixup,
}
COMPARISONS: dict[str, Operation] = {
    "f": lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), bool),
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "lg": lambda a, b: (a < b) | (a > b),
    "ge": np.greater_equal,
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": np.not_equal,
    "nlt": lambda a, b: ~(a < b),
    "tru": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
    "class": class_of,
}


def _halves_as_word(low: Array, high: Array) -> Array:
    low, high = (bits(x).astype(np.uint32) for x in (low, high))
    return low | high << 16


def to_bf16(x: Array) -> Array:
    """The upper half of a float, rounded to nearest even."""
    raw = bits(x).astype(np.uint32)
    rounded = raw + 0x7FFF + (raw >> 16 & 1)
    return np.where(np.isnan(x), raw | 0x00400000, rounded) >> 16


def _conversions() -> dict[str, Operation]:
    found: dict[str, Operation] = {}
    forms = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i32": np.int32}
    forms |= {"u32": np.uint32, "u16": np.uint16, "i16": np.int16}
    for to, form in forms.items():
        for source in forms:
            if to[0] == "f" and source[0] == "f":  # NumPy keeps signalling NaN of fp16
                found[f"v_cvt_{to}_{source}"] = lambda x, form=form: quiet(x.astype(form))
            elif to[0] == "f":
                found[f"v_cvt_{to}_{source}"] = lambda x, form=form: x.astype(form)
            elif source[0] == "f":
                found[f"v_cvt_{to}_{source}"] = lambda x, form=form: to_integer(x, form)
            else:
                found[f"v_cvt_{to}_{source}"] = lambda x, form=form: x.astype(form)
    for i in range(4):
        found[f"v_cvt_f32_ubyte{i}"] = lambda x, i=i: (x >> np.uint32(8 * i) & 255).astype(
            np.float32
        )
    found["v_cvt_flr_i32_f32"] = lambda x: to_integer(x, np.int32, np.floor)
    found["v_cvt_rpi_i32_f32"] = lambda x: to_integer(x + np.float32(0.5), np.int32, np.floor)
    found["v_cvt_pkrtz_f16_f32"] = lambda a, b: _halves_as_word(toward_zero(a), toward_zero(b))
    found["v_cvt_pk_f16_f32"] = lambda a, b: _halves_as_word(
        a.astype(np.float16), b.astype(np.float16)
    )
    found["v_cvt_pk_bf16_f32"] = lambda a, b: to_bf16(a) | to_bf16(b) << 16
    found["v_cvt_f32_bf16"] = lambda x: (x.astype(np.uint32) << 16).view(np.float32)
    found["v_pack_b32_f16"] = _halves_as_word
    return found


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    """The older product and sum of CDNA 2, each rounded, which flush denormals."""
    product = _flushed(_flushed(a) * _flushed(b))
    return _flushed(product + _flushed(c))


def float_operations() -> dict[str, Operation]:
    """Operations by the names of vector instructions."""
    found = _conversions()
    for kind in ("f16", "f32", "f64"):
        for table in (UNARY, _BINARY, _TERNARY):
            found |= {f"v_{name}_{kind}": run for name, run in table.items()}
        found[f"v_ldexp_{kind}"] = ldexp
        for name, run in COMPARISONS.items():
            found[f"v_cmp_{name}_{kind}"] = found[f"v_cmpx_{name}_{kind}"] = run
    for name in ("add", "mul", "min", "max", "minimum", "maximum"):
        found[f"v_pk_{name}_f16"] = found[f"v_pk_{name}_f32"] = _BINARY[name]
    found["v_pk_fma_f16"] = found["v_pk_fma_f32"] = fma
    for name in ("minimum3", "maximum3"):
        found[f"v_pk_{name}_f16"] = _TERNARY[name]
    found["v_frexp_exp_i32_f32"] = found["v_frexp_exp_i32_f64"] = exponent
    found["v_frexp_exp_i16_f16"] = exponent
    for name in ("mad", "madak", "madmk", "mac"):
        found[f"v_{name}_f32"] = _multiply_add
    found["v_rcp_iflag_f32"] = UNARY["rcp"]
    found["v_mul_legacy_f32"] = lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b)
    return found

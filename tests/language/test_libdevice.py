"""The functions of libdevice: which there are, what they take, what they give at the edges, on the
interpreter, the CPU and the emulated GPU. `accuracy.py` has how precise they are."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, evaluate, fails, kernel_from, result_type
from tests.language import accuracy, coefficients, on_targets
from tests.language.on_targets import TARGETS, same
from tilewright.conformance.libdevice_names import (
    DIRECTED,
    EXACT_NAMES,
    FD,
    LETTERS,
    SIGNATURES,
    forms,
)
from tilewright.ir.types import FP32, FP64
from tilewright.ops.arith import Fma

libdevice = tl.extra.libdevice
NAMES: Any = {"libdevice": libdevice}
INF, NAN = math.inf, math.nan


def run(target: str, name: str, args: list[np.ndarray], result: str) -> np.ndarray:
    """The results of a function for arrays of a length."""
    called = f"libdevice.{name}({', '.join('abcd'[: len(args)])})"
    return on_targets.run(target, called, args, LETTERS[result], **NAMES)


@pytest.mark.parametrize("name", SIGNATURES)
def test_each_function_has_the_signature_of_the_reference(name: str) -> None:
    for operands, result in forms(name):
        args = [np.ones(2, LETTERS[o]) for o in operands]
        found = evaluate(f"libdevice.{name}({', '.join('abcd'[: len(args)])})", *args, **NAMES)
        assert found.dtype == LETTERS[result]


def test_predicates_are_conditions() -> None:
    """So that ``~isnan(x)`` is false for NaN, as in Triton; of an int32, it would be true."""
    x = np.array([1.0, NAN, INF], np.float32)
    same(evaluate("tl.where(~libdevice.isnan(a), 1, 0)", x, **NAMES), [1, 0, 1])
    same(
        evaluate("tl.where(~libdevice.isinf(a) & libdevice.finitef(a), 1, 0)", x, **NAMES),
        [1, 0, 0],
    )


def test_every_target_has_the_same_module() -> None:
    for extra in (tl.extra.cuda, tl.extra.hip, tl.extra.cpu):
        assert extra.libdevice is libdevice


def test_arguments_are_promoted_and_broadcast() -> None:
    x = np.array([1.5, -2.0], np.float32)
    same(evaluate("libdevice.copysign(a, -1)", x, **NAMES), np.copysign(x, -1))
    assert result_type("libdevice.exp(1)", **NAMES) is FP32
    wide = np.array([0.5, 2.0])
    assert result_type("libdevice.pow(a, b)", wide, x, **NAMES).element is FP64
    same(evaluate("libdevice.copysign(0.1, a)", wide, **NAMES), [0.1, 0.1])  # not fp32's 0.1
    column = np.array([[3.0], [-3.0]])
    same(evaluate("libdevice.copysign(a, b)", wide, column, **NAMES)[1], -wide)


def test_other_types_are_rejected_naming_the_expected_ones() -> None:
    error = fails("def k(a):\n    tl.extra.libdevice.tanh(tl.load(a))\n", np.ones(1, np.float16))
    reference = (
        "input arg type does not match.Expect one of (fp32), (fp64), got (fp16); cast the "
        "arguments first, with `.to`"
    )
    assert str(error.__cause__) == reference
    error = fails("def k(a):\n    tl.extra.libdevice.pow(tl.load(a))\n", np.ones(1, np.float32))
    assert str(error.__cause__) == "pow takes 2 arguments, not 1"
    error = fails("def k(a):\n    tl.extra.libdevice.popc(tl.load(a))\n", np.ones(1, np.float32))
    assert re.search(r"Expect one of \(int32\), \(int64\), got \(fp32\)", str(error.__cause__))


# -- exact functions -------------------------------------------------------------------------------


def floats(letter: str) -> np.ndarray:
    """Zeros, extremes, halves, large whole numbers, subnormal ones, and some at random."""
    dtype = LETTERS[letter]
    info: Any = np.finfo(dtype)
    digits = float(2**info.nmant)
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 0.3, 1e-3, 7.75, 1e6 + 0.5, 2.0**31, 2.0**63]
    values += [
        digits,
        digits / 2 + 0.5,
        digits * 2,
        digits + 1,
        0.5 - 0.25 / digits,
        float(info.max),
    ]
    values += [float(info.tiny), float(info.smallest_subnormal), 3 * float(info.smallest_subnormal)]
    values += [float(info.max) / 2, 4294967295.0, 2147483648.0, 1 + 1 / digits, 1e30, INF, NAN]
    rng = np.random.default_rng(8)
    random = rng.integers(0, 256, 24 * dtype().itemsize, dtype=np.uint8).view(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        positive = np.array(values).astype(dtype)
        return np.concatenate([positive, -positive, random, rng.standard_normal(12).astype(dtype)])


def integers(letter: str) -> np.ndarray:
    info: Any = np.iinfo(LETTERS[letter])
    edges = [0, 1, 2, 3, 7, 2**24, 2**24 + 1, 2**25 + 3, info.max, info.max - 1, info.max // 2 + 1]
    edges += [2**53 + 1, 2**53 + 3, 2**62 + 2**9 + 1, 2**38 + 2**14 + 1] if info.bits == 64 else []
    edges += [-e for e in edges] + [info.min, info.min + 1] if info.min else []
    rng = np.random.default_rng(9)
    random = rng.integers(info.min, info.max, 40, dtype=LETTERS[letter], endpoint=True)
    return np.concatenate([np.array(edges, LETTERS[letter]), random])


def samples(letter: str) -> np.ndarray:
    return floats(letter) if letter in FD else integers(letter)


def pairs(operands: str, name: str) -> list[np.ndarray]:
    """Every tuple of samples, thinned to two thousand, which differ between functions: those that
    differ in rounding only, or in the type, have most of a formula in common."""
    grids = np.meshgrid(*[samples(o) for o in operands], indexing="ij")
    flat = [g.ravel() for g in grids]
    step = max(1, len(flat[0]) // 2000) | 1
    start = zlib.crc32(f"{name} {operands}".encode()) % step
    return [np.ascontiguousarray(f[start::step]) for f in flat]


def _rounding(f: Callable[[float], float]) -> Callable[[Any], float]:
    return lambda x: math.copysign(f(float(x)), x) if math.isfinite(x) else x


def _away(x: float) -> int:
    whole = math.floor(abs(Fraction(x)) + Fraction(1, 2))
    return whole if x > 0 else -whole


def _to_int(f: Callable[[float], int]) -> Callable[[Any], int]:
    def convert(x: float) -> int:
        if math.isnan(x):
            return 0
        low, high = -(2**63), 2**63 - 1
        return min(max(f(float(x)), low), high) if math.isfinite(x) else (high if x > 0 else low)

    return convert


def _ilogb(x: Any) -> int:
    if x == 0 or math.isnan(x):
        return -(2**31)
    return 2**31 - 1 if math.isinf(x) else math.frexp(x)[1] - 1


def _logb(x: Any) -> float:
    if math.isfinite(x):
        return -INF if x == 0 else math.frexp(x)[1] - 1
    return x * x


def _ldexp(x: Any, e: Any) -> Any:
    """Correctly rounded, by fractions where it is subnormal."""
    if not math.isfinite(x) or x == 0:
        return x
    value = nearest(Fraction(float(x)) * Fraction(2) ** max(min(int(e), 3000), -3000), type(x))
    return math.copysign(value, x)


def _remainder(x: Any, y: Any) -> float:
    if math.isnan(x) or math.isnan(y) or math.isinf(x) or y == 0:
        return NAN
    return math.remainder(x, y)


def _fdim(x: Any, y: Any) -> float:
    if math.isnan(x) or math.isnan(y):
        return NAN
    return x - y if x > y else 0.0


def _byte_perm(x: Any, y: Any, s: Any) -> int:
    both = (int(y) & 0xFFFFFFFF) << 32 | (int(x) & 0xFFFFFFFF)
    found = [both >> 8 * (int(s) >> 4 * i & 7) & 0xFF for i in range(4)]
    return _wrapped(sum(b << 8 * i for i, b in enumerate(found)), 32)


def _wrapped(value: int, bits: int, signed: bool = True) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _bits(x: Any) -> int:
    return int(x) & ((1 << (8 * x.itemsize)) - 1)


def _mul24(x: Any, y: Any) -> int:
    signed = x.dtype.kind == "i"
    return _wrapped(_wrapped(int(x), 24, signed) * _wrapped(int(y), 24, signed), 32, signed)


def _view(letter: str) -> Callable[[Any], Any]:
    return lambda x: x.view(LETTERS[letter])


EXACT: dict[str, Callable[..., Any]] = {
    "floor": _rounding(math.floor), "ceil": _rounding(math.ceil), "trunc": _rounding(math.trunc),
    "rint": _rounding(round), "nearbyint": _rounding(round), "round": _rounding(_away),
    "llrint": _to_int(round), "llround": _to_int(_away), "ilogb": _ilogb, "logb": _logb,
    "ldexp": _ldexp, "scalbn": _ldexp, "copysign": math.copysign, "nextafter": np.nextafter,
    "fmod": np.fmod, "remainder": _remainder, "fdim": _fdim,
    "isnan": math.isnan, "isinf": math.isinf, "signbit": lambda x: math.copysign(1, x) < 0,
    "finitef": math.isfinite, "isfinited": math.isfinite,
    "saturatef": lambda x: 0.0 if math.isnan(x) or x <= 0 else min(x, 1.0),
    "abs": lambda x: _wrapped(abs(int(x)), 8 * x.itemsize) if x.dtype.kind == "i" else abs(x),
    "popc": lambda x: _bits(x).bit_count(),
    "clz": lambda x: 8 * x.itemsize - _bits(x).bit_length(),
    "ffs": lambda x: (_bits(x) & -_bits(x)).bit_length(),
    "brev": lambda x: _wrapped(int(f"{_bits(x):0{8 * x.itemsize}b}"[::-1], 2), 8 * x.itemsize),
    "byte_perm": _byte_perm, "mul24": _mul24,
    "mulhi": lambda x, y: (int(x) * int(y)) >> (8 * x.itemsize),
    "hadd": lambda x, y: (int(x) + int(y)) >> 1, "rhadd": lambda x, y: (int(x) + int(y) + 1) >> 1,
    "sad": lambda x, y, z: _wrapped(abs(int(x) - int(y)) + int(z), 32, x.dtype.kind == "i"),
    "int_as_float": _view("f"), "uint_as_float": _view("f"), "float_as_int": _view("i"),
    "float_as_uint": _view("i"), "longlong_as_double": _view("d"), "double_as_longlong": _view("l"),
    "hiloint2double": lambda h, low: np.uint64(_bits(h) << 32 | _bits(low)).view(np.float64),
    "double2hiint": lambda x: _wrapped(int(x.view(np.uint64)) >> 32, 32),
    "double2loint": lambda x: _wrapped(int(x.view(np.uint64)), 32),
    "rcp64h": lambda x: ((1 / x).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64),
}  # fmt: skip


def check(name: str, operands: str, result: str, exact: Callable[..., Any]) -> None:
    args = [samples(operands)] if len(operands) == 1 else pairs(operands, name)
    with np.errstate(all="ignore"):
        expected = [exact(*row) for row in zip(*args, strict=True)]
        for target in TARGETS:
            same(run(target, name, args, result), expected, *args)


def test_functions_listed_as_exact_are_tested_bit_for_bit() -> None:
    assert DIRECTED | set(EXACT) == EXACT_NAMES


@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str) -> None:
    for operands, result in forms(name):
        check(name, operands, result, EXACT[name])


# -- rounding in a direction -----------------------------------------------------------------------


def nearest(exact: Fraction, dtype: Any, direction: str = "rn") -> Any:
    """A fraction rounded; a zero is positive."""
    info: Any = np.finfo(dtype)
    try:
        guess = dtype(float(exact))
    except OverflowError:
        guess = dtype(INF if exact > 0 else -INF)
    low = guess
    while (math.isinf(low) and low > 0) or (math.isfinite(low) and Fraction(float(low)) > exact):
        low = np.nextafter(low, dtype(-INF))
    while True:
        high = np.nextafter(low, dtype(INF))
        if math.isinf(high) or Fraction(float(high)) > exact:
            break
        low = high
    if math.isfinite(low) and Fraction(float(low)) == exact:
        return low
    if direction in ("rd", "ru"):
        return low if direction == "rd" else high
    if direction == "rz":
        return low if exact > 0 else high
    beyond = Fraction(float(info.max)) * 2 - Fraction(float(np.nextafter(info.max, dtype(0))))
    below = Fraction(float(low)) if math.isfinite(low) else -beyond
    above = Fraction(float(high)) if math.isfinite(high) else beyond
    if exact - below != above - exact:
        return low if exact - below < above - exact else high
    even = int(low.view(f"u{low.itemsize}")) % 2 == 0
    return low if even else high


def _directed(operation: Callable[..., Any], plain: Callable[..., Any], mode: str) -> Any:
    """A rounded operation: by fractions where all is finite, else NumPy's."""

    def compute(*args: Any) -> Any:
        dtype, usual = type(args[0]), plain(*args)
        if not all(math.isfinite(a) for a in args):
            return usual
        try:
            exact = operation(*[Fraction(float(a)) for a in args])
        except (ZeroDivisionError, ValueError):
            return usual
        if exact == 0:
            return -abs(usual) if mode == "rd" and _signs_differ(operation, args) else usual
        result = nearest(exact, dtype, mode)
        return math.copysign(result, -1 if exact < 0 else 1)

    return compute


def _signs_differ(operation: Callable[..., Any], args: Any) -> bool:
    """Whether a zero is one of a sum of numbers with different signs."""
    signs = [math.copysign(1, a) for a in args]
    if operation is ADD:
        return signs[0] != signs[1]
    if operation is SUB:
        return signs[0] == signs[1]
    return operation is FMA and signs[0] * signs[1] != signs[2]


def ADD(x: Fraction, y: Fraction) -> Fraction:
    return x + y


def SUB(x: Fraction, y: Fraction) -> Fraction:
    return x - y


def FMA(x: Fraction, y: Fraction, z: Fraction) -> Fraction:
    return x * y + z


def _plain_fma(x: Any, y: Any, z: Any) -> Any:
    """NumPy's, whose product of finite numbers overflows."""
    return z if math.isinf(z) and math.isfinite(x) and math.isfinite(y) else x * y + z


OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "add": (ADD, lambda x, y: x + y, 2),
    "sub": (SUB, lambda x, y: x - y, 2),
    "mul": (lambda x, y: x * y, lambda x, y: x * y, 2),
    "div": (lambda x, y: x / y, lambda x, y: x / y, 2),
    "rcp": (lambda x: 1 / x, lambda x: x.dtype.type(1) / x, 1),
    "fma": (FMA, _plain_fma, 3),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_has_the_rounding_mode_of_its_name(name: str, mode: str) -> None:
    operation, plain, count = OPERATIONS[name]
    for letter in FD:
        check(f"{name}_{mode}", letter * count, letter, _directed(operation, plain, mode))


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
def test_square_roots_have_the_rounding_mode_of_their_name(mode: str) -> None:
    def root(x: Any) -> Any:
        if not x > 0 or math.isinf(x):
            return x if x == 0 or x > 0 else NAN
        scaled = Fraction(float(x)) * 4**1200
        whole = math.isqrt(scaled.numerator // scaled.denominator)
        inexact = whole * whole != scaled
        return nearest(Fraction(2 * whole + inexact, 2**1201), type(x), mode)

    for letter in FD:
        check(f"sqrt_{mode}", letter, letter, root)


def _integer_of(mode: str) -> Callable[[Any], int]:
    return {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}[mode]


CONVERSIONS = [n[:-3] for n in SIGNATURES if "2" in n[:-1] and n.endswith("_rz")]


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_have_the_rounding_mode_of_their_name(name: str, mode: str) -> None:
    ((source, to),) = forms(f"{name}_{mode}")

    def convert(x: Any) -> Any:
        if to in FD:
            if source in FD and (not math.isfinite(x) or x == 0):
                return x
            exact = Fraction(float(x)) if source in FD else Fraction(int(x))
            found = nearest(exact, LETTERS[to], mode)
            return math.copysign(found, -1) if exact < 0 else found
        unsigned = name.endswith(("2uint", "2ull"))  # whose bits are returned as a signed integer
        info: Any = np.iinfo({"i": np.uint32, "l": np.uint64}[to] if unsigned else LETTERS[to])
        if not math.isfinite(x):
            number = 0 if math.isnan(x) else (info.max if x > 0 else info.min)
        else:
            number = min(max(_integer_of(mode)(float(x)), info.min), info.max)
        return _wrapped(int(number), info.bits)

    check(f"{name}_{mode}", source, to, convert)


@pytest.mark.parametrize("name", ["int2double_rn", "uint2double_rn"])
def test_conversions_to_double_are_exact(name: str) -> None:
    ((source, to),) = forms(name)
    check(name, source, to, float)


# -- special values --------------------------------------------------------------------------------

SPECIAL: dict[str, list[tuple[Any, ...]]] = {
    "exp10": [(0.0, 1.0), (2.0, 100.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (400.0, INF)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (-27.0, -3.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "rcbrt": [(0.0, INF), (-0.0, -INF), (-8.0, -0.5), (INF, 0.0), (-INF, -0.0), (NAN, NAN)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (800.0, INF)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-3.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (-INF, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "sinpi": [(0.0, 0.0), (-0.0, -0.0), (3.0, 0.0), (-4.0, -0.0), (0.5, 1.0), (-1.5, 1.0),
              (1e30, 0.0), (INF, NAN), (NAN, NAN)],
    "cospi": [(0.0, 1.0), (0.5, 0.0), (-1.5, 0.0), (3.0, -1.0), (1e30, 1.0), (-INF, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (-INF, NAN), (NAN, NAN)],
    "acos": [(1.0, 0.0), (1.5, NAN), (-2.0, NAN), (NAN, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (NAN, NAN), (INF, math.pi / 2), (-INF, -math.pi / 2)],
    "erfc": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN), (40.0, 0.0)],
    "erfcx": [(0.0, 1.0), (INF, 0.0), (-INF, INF), (-40.0, INF), (NAN, NAN)],
    "erfinv": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-INF, NAN),
               (NAN, NAN)],
    "erfcinv": [(1.0, 0.0), (0.0, INF), (2.0, -INF), (-0.5, NAN), (3.0, NAN), (INF, NAN),
                (NAN, NAN)],
    "normcdf": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN)],
    "normcdfinv": [(0.5, 0.0), (0.0, -INF), (1.0, INF), (2.0, NAN), (-1.0, NAN), (NAN, NAN)],
    "tgamma": [(1.0, 1.0), (2.0, 1.0), (5.0, 24.0), (0.0, INF), (-0.0, -INF), (-2.0, NAN),
               (INF, INF), (-INF, NAN), (NAN, NAN), (200.0, INF), (-1000.5, -0.0)],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (0.0, INF), (-0.0, INF), (-3.0, INF), (INF, INF),
               (-INF, INF), (NAN, NAN)],
    "j0": [(0.0, 1.0), (INF, 0.0), (-INF, 0.0), (NAN, NAN)],
    "j1": [(0.0, 0.0), (-0.0, -0.0), (INF, 0.0), (NAN, NAN)],
    "y0": [(0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, 0.0), (-INF, NAN), (NAN, NAN)],
    "y1": [(0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, 0.0), (-INF, NAN), (NAN, NAN)],
    "cyl_bessel_i0": [(0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN), (800.0, INF)],
    "cyl_bessel_i1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "exp": [(0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN)],
    "log10": [(1000.0, 3.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF)],
    "pow": [(0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (0.0, -1.0, INF),
            (-0.0, -1.0, -INF), (-2.0, 3.0, -8.0), (-2.0, 0.5, NAN), (-INF, 3.0, -INF),
            (-INF, -3.0, -0.0), (INF, -2.0, 0.0), (1.0, NAN, 1.0), (NAN, 0.0, 1.0), (NAN, 1.0, NAN),
            (-1.0, INF, 1.0), (0.5, INF, 0.0), (0.5, -INF, INF), (2.0, INF, INF), (2.0, -INF, 0.0),
            (3.0, 4.0, 81.0), (2.0, -1074.0, 2.0**-1074), (-INF, 0.5, INF), (0.0, -INF, INF)],
    "atan2": [(0.0, 0.0, 0.0), (-0.0, 0.0, -0.0), (0.0, -0.0, math.pi), (-0.0, -0.0, -math.pi),
              (0.0, -1.0, math.pi), (1.0, 0.0, math.pi / 2), (INF, INF, math.pi / 4),
              (-INF, -INF, -3 * math.pi / 4), (1.0, INF, 0.0), (-1.0, INF, -0.0),
              (1.0, -INF, math.pi), (NAN, 1.0, NAN), (1.0, NAN, NAN)],
    "hypot": [(3.0, 4.0, 5.0), (0.0, -0.0, 0.0), (INF, NAN, INF), (NAN, -INF, INF),
              (NAN, 1.0, NAN), (NAN, 0.0, NAN), (-0.0, NAN, NAN)],
    "rhypot": [(3.0, 4.0, 0.2), (0.0, 0.0, INF), (NAN, -INF, 0.0), (NAN, 0.0, NAN)],
}  # fmt: skip


BASES = [0.0, 1e-45, 1e-38, 0.3, 0.5, 0.815, 1 - 2.0**-24, 1.0, 1 + 2.0**-23, 1.22, 1.5, 2.0, 3.0,
         16777217.0, 2.0**31, 3.4e38, INF]  # fmt: skip
EXPONENTS = [0.0, 1e-45, 1e-9, 0.5, 1.0, 1.5, 2.0, 3.0, 127.0, 127.99, 128.0, 149.0, 150.0, 300.0,
             16777215.0, 16777216.0, 2.0**31, 2.0**33, 3.4e38, INF]  # fmt: skip


def _is_power(found: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Within 4 ulp of NumPy's power in fp64; infinities, NaN, zeros, ones and signs are equal."""
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
        rounded = exact.astype(np.float32)
        far = np.abs(found - exact) > 4 * np.spacing(np.abs(rounded)).astype(np.float64)
        special = ~np.isfinite(rounded) | (exact == 1) | (exact == 0)
        close = np.where(special, False, ~far & (np.signbit(found) == np.signbit(rounded)))
    equal = (found == rounded) & (np.signbit(found) == np.signbit(rounded))
    equal |= np.isnan(found) & np.isnan(rounded)
    bad = np.nonzero(~(equal | close))[0]
    assert not bad.size, [(x[k], y[k], found[k], rounded[k]) for k in bad[:5]]


@pytest.mark.parametrize("target", TARGETS)
def test_powers_of_fp32(target: str) -> None:
    rng = np.random.default_rng(3)
    columns = [np.array([*v, NAN, *[-x for x in v]], np.float32) for v in (BASES, EXPONENTS)]
    x, y = (g.ravel() for g in np.meshgrid(*columns))
    patterns = rng.integers(0, 2**32, (2, 4000), dtype=np.uint64).astype(np.uint32)
    x, y = (np.concatenate(v) for v in zip((x, y), patterns.view(np.float32), strict=True))
    _is_power(run(target, "pow", [x, y], "f"), x, y)


@pytest.mark.parametrize("target", TARGETS)
def test_powers_of_fp32_by_integers(target: str) -> None:
    """Of which not all are fp32 numbers."""
    column = np.array([*BASES, NAN, *[-x for x in BASES]], np.float32)
    numbers = [0, 1, 2, 3, 100, 127, 128, 149, 150, 4095, 4096, 2**24 + 1, 2**25 + 3, 2**31 - 1]
    integers = np.array([*numbers, *[-n for n in numbers], -(2**31)], np.int32)
    x, n = (g.ravel() for g in np.meshgrid(column, integers))
    _is_power(run(target, "pow", [x, n], "f"), x, n)


CONSTANTS = ["-2", "-1", "0", "1", "2", "3.0", "4", "5", "0.5"]


@pytest.mark.parametrize(
    ("exponent", "dtype"), [*((e, np.float32) for e in CONSTANTS), ("-1", np.float64)]
)
@pytest.mark.parametrize("target", TARGETS)
def test_powers_by_constants(target: str, exponent: str, dtype: Any) -> None:
    """Of which the powers by small integers are products."""
    rng = np.random.default_rng(6)
    patterns = rng.integers(0, 2**32, 1000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ordinary = np.exp2(rng.uniform(-40, 40, 1000)).astype(np.float32)
    x = np.array([*BASES, NAN, *[-x for x in BASES], *ordinary], np.float32)
    x = np.concatenate([x, patterns[np.isfinite(patterns)]])
    power = f"libdevice.pow(a, {exponent})"
    found = on_targets.run(target, power, [x.astype(dtype)], dtype, **NAMES)
    with np.errstate(over="ignore"):
        _is_power(found.astype(np.float32), x, np.full(len(x), float(exponent), np.float32))


@pytest.mark.parametrize(("exponent", "products"), [("2", 1), ("3.0", 2), ("4", 2), ("-2", 1)])
def test_powers_by_small_integers_are_products(exponent: str, products: int) -> None:
    text = f"def k(a):\n    tl.store(a, libdevice.pow(tl.load(a), {exponent}))\n"
    module = build(kernel_from(text, **NAMES), {"a": "*fp32"})
    names = [type(op) for op in module.walk()]
    assert names.count(Fma) == products
    assert len(names) < 10


ORDERS = [
    ("jn", mp.besselj, [(0, 0.0, 1.0), (1, -0.0, -0.0), (3, 0.0, 0.0), (2, INF, 0.0),
                        (-1, 1.0, NAN), (2, NAN, NAN), (200, 1e-5, 0.0)]),
    ("yn", mp.bessely, [(0, 0.0, -INF), (3, 0.0, -INF), (2, INF, 0.0), (-1, 1.0, NAN),
                        (2, -1.0, NAN), (2, NAN, NAN), (200, 1e-5, -INF)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "exact", "special"), ORDERS, ids=["jn", "yn"])
def test_bessel_functions_of_any_order(name: str, exact: Any, special: Any) -> None:
    """Within 20 units in the last place of the value, or of the size of the waves."""
    rng = np.random.default_rng(4)
    edges = [np.array(c) for c in zip(*special, strict=True)]
    for letter in FD:
        orders = rng.integers(0, 50, 150).astype(np.int32)
        x = np.exp(rng.uniform(-2, 5, 150)).astype(LETTERS[letter])
        values = [float(exact(n, v)) for n, v in zip(orders.tolist(), x.tolist(), strict=True)]
        both = np.append(orders, edges[0]).astype(np.int32), np.append(x, edges[1]).astype(x.dtype)
        for target in TARGETS:
            found = run(target, name, list(both), letter)
            same(found[150:], edges[2], *(b[150:] for b in both))
            for n, v, got, value in zip(orders, x, found, values, strict=False):
                size = max(abs(value), (2 / (math.pi * v)) ** 0.5 if v > n else 0.0)
                unit = np.spacing(np.float32(min(abs(value), 3e38)))
                bound = 20 * np.spacing(size) if letter == "d" else max(0.51 * unit, 1e-14)
                assert abs(float(got) - value) <= bound or (letter == "f" and abs(value) > 3e38), (
                    n,
                    v,
                )


def test_norms_do_not_overflow_in_intermediate_results() -> None:
    large, small = np.array([3e307, 3e-320]), np.array([4e307, 4e-320])
    expected = np.array([5e307, 5e-320])
    assert np.allclose(run("cpu", "hypot", [large, small], "d"), expected, rtol=1e-4)


# -- accuracy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", accuracy.CASES)
def test_special_values_and_bounds_of_the_accuracy_table(name: str) -> None:
    """Of one run, as functions take long to compile."""
    for dtype, bound in zip((np.float32, np.float64), accuracy.CASES[name].bounds, strict=True):
        if bound is None:
            continue
        measured = accuracy.arguments(name, dtype, 96)
        exact = accuracy.exact_values(name, measured)
        rows = SPECIAL.get(name, [])
        with np.errstate(over="ignore", under="ignore"):
            *special, expected = np.array(rows, dtype).reshape(-1, len(measured) + 1).T
        count = len(measured[0])
        args = [np.concatenate(both) for both in zip(measured, special, strict=True)]
        for target in TARGETS:
            found = on_targets.run(target, accuracy.call(name), args, dtype, **NAMES)
            same(found[count:], expected, *special)
            error, place = accuracy.largest_error(name, found[:count], exact, measured)
            assert error <= bound, f"{target}: {error} ulp, {place}"


def test_functions_with_special_values_are_in_the_accuracy_table() -> None:
    assert set(accuracy.CASES) >= set(SPECIAL)


def test_table_of_accuracy_has_a_row_for_each_function() -> None:
    rows = accuracy.read_table()
    for name, case in accuracy.CASES.items():
        shown = f"`tl.{name}`" if case.core else f"`{name}`"
        for short, bound in zip(("fp32", "fp64"), case.bounds, strict=True):
            assert ((shown, short) in rows) == (bound is not None)
            for target in TARGETS:
                if bound is not None:
                    assert float(rows[shown, short][target]) <= bound


def test_coefficients_match_their_functions() -> None:
    assert coefficients.FILE.read_text("utf-8") == coefficients.text()


@pytest.mark.parametrize("target", TARGETS)
def test_bessel_functions_of_huge_arguments(target: str) -> None:
    """pi times these is infinite; the waves are as low as the square root of 2 / (pi x)."""
    x = np.array([5.8e307, 1.0e308, 1.7e308])
    for name, expected in {
        "j0": [9.272445391618778e-155, -2.4706564120790077e-155, 9.01255881646117e-156],
        "j1": [-4.876862329202681e-155, 7.586687955241802e-155, -6.052764636079422e-155],
        "y0": [-4.876862329202681e-155, 7.586687955241802e-155, -6.052764636079422e-155],
        "y1": [-9.272445391618778e-155, 2.4706564120790077e-155, -9.01255881646117e-156],
    }.items():
        np.testing.assert_allclose(run(target, name, [x], "d"), expected, rtol=1e-14)

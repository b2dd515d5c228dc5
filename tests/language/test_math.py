"""The functions of numbers of the language itself, on each type and target, against Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import evaluate, fails, result_type
from tests.ir_values import random_array
from tests.language.on_targets import TARGETS, run, same
from tilewright.ir.types import BF16, FP16, FP32, FP64, SCALARS, DType, Tile

INTS = [t for t in SCALARS if t.is_int() and not t.is_bool()]
FLOATS = [FP16, BF16, FP32, FP64]
COUNT = 512


def ids(t: DType) -> str:
    return t.short


def arrays(element: DType, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(element.primitive_bitwidth + count)
    return [random_array(Tile((COUNT,), element), rng) for _ in range(count)]


def check(expression: str, args: list[np.ndarray], exact: Callable[..., Any], out: Any) -> None:
    with np.errstate(all="ignore"):
        found = [exact(*row) for row in zip(*args, strict=True)]
        if np.issubdtype(out, np.integer):
            expected = np.array([int(v) for v in found], out)
        else:
            expected = np.array(found).astype(out)
    for target in TARGETS:
        same(run(target, expression, args, out), expected, *args)


def extremum(largest: bool, propagate: bool) -> Callable[[Any, Any], Any]:
    """By IEEE 754: a NaN loses, or wins; -0.0 is below 0.0."""

    def choose(x: Any, y: Any) -> Any:
        if x != x or y != y:
            return x if (x != x) == propagate or (x != x and y != y) else y
        ordered = sorted([x, y], key=lambda v: (float(v), math.copysign(1, v)))
        return ordered[1] if largest else ordered[0]

    def choose_int(x: Any, y: Any) -> Any:
        return max(x, y) if largest else min(x, y)

    return lambda x, y: choose_int(x, y) if isinstance(x, np.integer) else choose(x, y)


@pytest.mark.parametrize("element", [*INTS, *FLOATS], ids=ids)
@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_extremum(name: str, element: DType) -> None:
    args = arrays(element, 2)
    for propagate in (False, True):
        mode = f"tl.PropagateNan.{'ALL' if propagate else 'NONE'}"
        exact = extremum(name == "maximum", propagate)
        check(f"tl.{name}(a, b, propagate_nan={mode})", args, exact, element.numpy)


@pytest.mark.parametrize("element", [*INTS, *FLOATS], ids=ids)
def test_clamp(element: DType) -> None:
    x, p, q = arrays(element, 3)
    # bounds are numbers, in order
    p, q = (np.where(v != v, np.zeros_like(v), v) for v in (p, q))
    low, high = np.where(p < q, p, q), np.where(p < q, q, p)
    least, most = extremum(False, False), extremum(True, False)
    for mode in ("NONE", "ALL"):

        def exact(v: Any, lo: Any, hi: Any, mode: str = mode) -> Any:
            return v if v != v and mode == "ALL" else least(most(v, lo), hi)

        expression = f"tl.clamp(a, b, c, propagate_nan=tl.PropagateNan.{mode})"
        check(expression, [x, low, high], exact, element.numpy)


@pytest.mark.parametrize("element", [*INTS, *FLOATS], ids=ids)
def test_abs(element: DType) -> None:
    bits = element.primitive_bitwidth

    def exact(x: Any) -> Any:
        if not isinstance(x, np.integer):
            return math.copysign(x, 1)
        value = abs(int(x))
        return value - (1 << bits) if element.is_int_signed() and value >> (bits - 1) else value

    check("tl.abs(a)", arrays(element, 1), exact, element.numpy)


@pytest.mark.parametrize("element", [t for t in INTS if t.primitive_bitwidth >= 32], ids=ids)
def test_umulhi_is_unsigned(element: DType) -> None:
    bits, args = element.primitive_bitwidth, arrays(element, 2)
    mask = (1 << bits) - 1

    def exact(x: Any, y: Any) -> int:
        high = (int(x) & mask) * (int(y) & mask) >> bits
        return high - (1 << bits) if element.is_int_signed() and high >> (bits - 1) else high

    check("tl.umulhi(a, b)", args, exact, element.numpy)


@pytest.mark.parametrize("element", INTS, ids=ids)
def test_cdiv_without_overflow(element: DType) -> None:
    rng = np.random.default_rng(6)
    top = element.get_int_max_value() // 4
    x = rng.integers(0, top, COUNT, dtype=element.numpy, endpoint=True)
    d = rng.integers(1, top, COUNT, dtype=element.numpy, endpoint=True)
    check("tl.cdiv(a, b)", [x, d], lambda x, d: -(-int(x) // int(d)), element.numpy)


def test_rounded_quotients_and_roots() -> None:
    x, y = arrays(FP32, 2)

    def root(v: Any) -> Any:
        return np.sqrt(v)  # which is correctly rounded, as IEEE 754 requires

    check("tl.div_rn(a, b)", [x, y], lambda a, b: a / b, np.float32)
    check("tl.fdiv(a, b, ieee_rounding=True)", [x, y], lambda a, b: a / b, np.float32)
    check("tl.sqrt_rn(a)", [x], root, np.float32)
    wide = arrays(FP64, 2)
    check("tl.fdiv(a, b, True)", wide, lambda a, b: a / b, np.float64)


@pytest.mark.parametrize("element", FLOATS, ids=ids)
def test_fma_rounds_once(element: DType) -> None:
    args = arrays(element, 3)

    def exact(x: Any, y: Any, z: Any) -> Any:
        if not all(np.isfinite(v) for v in (x, y, z)):
            return float(x) * float(y) + float(z)
        product = Fraction(float(x)) * Fraction(float(y))
        total = product + Fraction(float(z))
        if total == 0:
            return float(x) * float(y) + float(z) if product == 0 else 0.0
        return rounded(total, element)

    check("tl.fma(a, b, c)", args, exact, element.numpy)


def rounded(value: Fraction, element: DType) -> float:
    """To nearest even in a float type, by integers."""
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    lowest = 1 - element.exponent_bias
    unit = Fraction(2) ** (max(exponent, lowest) - element.fp_mantissa_width)
    whole = round(magnitude / unit)
    limit = Fraction(2) ** (element.exponent_bias + 1)
    result = math.inf if whole * unit >= limit else float(whole * unit)
    return math.copysign(result, -1 if value < 0 else 1)


@pytest.mark.parametrize("element", [FP32, FP64], ids=ids)
def test_softmax_along_each_axis(element: DType) -> None:
    rng = np.random.default_rng(2)
    x = (10 * rng.standard_normal((8, 16))).astype(element.numpy)
    for text, axis in (("", 0), (", 0", 0), (", 1", 1), (", dim=-1", 1), (", 1, True, True", 1)):
        wide = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
        expected = wide / wide.sum(axis, keepdims=True)
        for name in ("softmax", "math.softmax"):
            found = evaluate(f"tl.{name}(a{text})", x)
            np.testing.assert_allclose(found, expected, rtol=1e-5)
            assert found.dtype == element.numpy


@pytest.mark.parametrize("element", [FP16, BF16, *INTS], ids=ids)
def test_elementary_functions_report_supported_types(element: DType) -> None:
    for name in ("exp", "exp2", "log", "log2", "cos", "sin", "sqrt", "rsqrt", "erf", "floor",
                 "ceil", "sigmoid", "softmax"):  # fmt: skip
        if name == "softmax" and element.is_floating():
            continue  # computed in fp32: test_result_types
        error = fails(f"def k(a):\n    tl.{name}(tl.load(a))\n", np.ones(1, element.numpy))
        assert str(error.__cause__) == f"Expected dtype ['fp32', 'fp64'] but got {element}"


REJECTED = [
    ("tl.sqrt_rn(a)", FP64, "Expected dtype ['fp32'] but got fp64"),
    ("tl.div_rn(a, 1.0)", FP64, "Expected dtype ['fp32'] but got fp64"),
    ("tl.umulhi(a, a)", SCALARS[0], None),
    ("tl.fdiv(a, a, approx=True)", FP64, "approx division requires float32 operands"),
    ("tl.fdiv(a, a, True, True)", FP32, "approx and ieee_rounding cannot both be True"),
]


@pytest.mark.parametrize(("expression", "element", "message"), REJECTED)
def test_wrong_usage_is_rejected(expression: str, element: DType, message: str | None) -> None:
    text = f"def k(p):\n    a = tl.load(p)\n    {expression}\n"
    error = fails(text, np.ones(1, element.numpy))
    assert message is None or str(error.__cause__) == message


def test_names_in_math_equal_those_of_the_language() -> None:
    names = ("abs cdiv ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sigmoid sin "
             "softmax sqrt sqrt_rn umulhi")  # fmt: skip
    for name in names.split():
        assert getattr(tl.math, name) is getattr(tl, name)


def test_numbers_alone_count_as_fp32() -> None:
    for name in ("exp", "sqrt", "floor", "erf", "sigmoid"):
        assert result_type(f"tl.{name}(2)") is FP32
        assert result_type(f"tl.{name}(0.5)") is FP32


OFFSETS = [np.int8, np.int16, np.int32, np.uint32, np.int64, np.uint64]


@pytest.mark.parametrize("target", ["cpu", "simt"])
@pytest.mark.parametrize("dtype", OFFSETS, ids=lambda t: t.__name__)
def test_random_words_and_floats_are_the_same_on_every_target(dtype: Any, target: str) -> None:
    """On the interpreter, which `test_random.py` holds to the definition."""
    rng, info = np.random.default_rng(3), np.iinfo(dtype)
    offsets = rng.integers(info.min, info.max, COUNT, dtype=dtype, endpoint=True)
    for expression, out in (
        ("tl.randint(1234567, a)", np.uint32),
        ("tl.randint4x(-5, a)[3]", np.uint32),
        ("tl.rand(77, a)", np.float32),
        ("tl.rand4x(2**40 + 1, a, 7)[2]", np.float32),
    ):
        expected = run("interpreter", expression, [offsets], out)
        same(run(target, expression, [offsets], out), expected, offsets)


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_philox_of_64_bits_is_the_same_on_every_target(target: str) -> None:
    counters = np.arange(COUNT, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    expression = "tl.philox(9, a, a * 3, a ^ 5, a + 1)[1]"
    expected = run("interpreter", expression, [counters], np.uint64)
    same(run(target, expression, [counters], np.uint64), expected, counters)


METHODS = ["exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil"]


@pytest.mark.parametrize("element", [FP16, BF16], ids=ids)
@pytest.mark.parametrize("name", METHODS)
def test_methods_take_narrow_floats(name: str, element: DType) -> None:
    """Unlike the functions, as in Triton: computed in fp32, rounded to the same type."""
    x = np.linspace(0.25, 8, 16).astype(element.numpy)
    assert result_type(f"a.{name}()", x).element_ty is element
    wide = evaluate(f"tl.{name}(a.to(tl.float32))", x)
    assert np.array_equal(evaluate(f"a.{name}()", x), wide.astype(element.numpy))
    assert "Expected dtype" in str(fails(f"def kernel(p):\n    tl.{name}(tl.load(p))", x))

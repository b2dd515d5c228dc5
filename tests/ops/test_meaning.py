"""What each elementwise op means, on every element type, against exact arithmetic in Python."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.ops.exact import FORMATS, INTEGERS, Format, Integer, float_of_bits
from tests.ops.harness import (
    FLOATS,
    INTS,
    array_of,
    check,
    elementwise,
    float_rows,
    int_rows,
    numbers_of,
    run_op,
)
from tilewright.ir.numbers import decode
from tilewright.ir.types import FP32, I32, I64, Pointer, Tile, scalar_type
from tilewright.ops import arith, marks
from tilewright.ops import math as op_math
from tilewright.ops.memory import AddPtr

MULTIBIT = [t for t in INTS if t != "i1"]

# -- the reference itself --------------------------------------------------------------------------


def test_reference_decodes_fp64_like_struct() -> None:
    f = FORMATS["fp64"]
    for pattern in f.samples(200):
        value, want = f.decode(pattern), float_of_bits(pattern)
        assert value == want or (math.isnan(value) and math.isnan(want))
        assert math.copysign(1, value) == math.copysign(1, want) or math.isnan(want)


@pytest.mark.parametrize("short", FLOATS)
def test_reference_encodes_what_it_decodes(short: str) -> None:
    f = FORMATS[short]
    patterns = range(256) if f.bits == 8 else f.samples(200)
    for p in patterns:
        assert f.encode(f.decode(p)) == f.canonical(p)


@pytest.mark.parametrize("short", FLOATS)
def test_reference_agrees_with_the_numpy_types(short: str) -> None:
    f = FORMATS[short]
    patterns = list(range(256)) if f.bits == 8 else f.samples(200)
    with np.errstate(invalid="ignore"):
        array = array_of(short, patterns)
        wide = decode(array) if short == "fp8e4b15" else array
        values = wide.astype(np.float64).tolist()
    for p, value in zip(patterns, values, strict=True):
        mine = f.decode(p)
        assert (mine == value and math.copysign(1, mine) == math.copysign(1, value)) or (
            math.isnan(mine) and math.isnan(value)
        )


# -- integers --------------------------------------------------------------------------------------


def quotient(a: int, b: int) -> int:
    if b == 0:
        return 0
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


INTEGER_OPS: dict[type[Any], Callable[[Integer, int, int], int]] = {
    arith.Add: lambda t, a, b: t.wrap(a + b),
    arith.Sub: lambda t, a, b: t.wrap(a - b),
    arith.Mul: lambda t, a, b: t.wrap(a * b),
    arith.IntDiv: lambda t, a, b: t.wrap(quotient(a, b)),
    arith.Rem: lambda t, a, b: 0 if b == 0 else t.wrap(a - quotient(a, b) * b),
    arith.And: lambda t, a, b: t.wrap(a & b),
    arith.Or: lambda t, a, b: t.wrap(a | b),
    arith.Xor: lambda t, a, b: t.wrap(a ^ b),
    arith.Shl: lambda t, a, b: t.wrap(a << t.unsigned(b)) if t.unsigned(b) < t.bits else 0,
    arith.Shr: lambda t, a, b: a >> min(t.unsigned(b), t.bits),
    arith.Min: lambda t, a, b: min(a, b),
    arith.Max: lambda t, a, b: max(a, b),
}


@pytest.mark.parametrize("short", INTS)
@pytest.mark.parametrize("cls", INTEGER_OPS, ids=lambda c: c.name)
def test_integer_arithmetic(cls: Any, short: str) -> None:
    t = INTEGERS[short]
    check(cls, [short, short], int_rows(t), lambda a, b: INTEGER_OPS[cls](t, a, b))


def test_smallest_integer_divided_by_minus_one_wraps() -> None:
    low = -(2**31)
    assert elementwise(arith.IntDiv, ["i32"] * 2, [[low, low, 7], [-1, 0, 0]]) == [low, 0, 0]
    assert elementwise(arith.Rem, ["i32"] * 2, [[low, low, 7], [-1, 0, 0]]) == [0, 0, 0]


@pytest.mark.parametrize("short", ["i32", "u32", "i64", "u64"])
def test_mulhi_is_unsigned(short: str) -> None:
    t = INTEGERS[short]
    check(
        arith.MulHi, [short, short], int_rows(t),
        lambda a, b: t.wrap((t.unsigned(a) * t.unsigned(b)) >> t.bits),
    )  # fmt: skip


@pytest.mark.parametrize("short", INTS)
def test_integer_neg_and_abs_wrap(short: str) -> None:
    t = INTEGERS[short]
    rows = [(v,) for v in t.samples(20)]
    check(arith.Neg, [short], rows, lambda a: t.wrap(-a))
    check(arith.Abs, [short], rows, lambda a: t.wrap(abs(a)))


ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("short", [*INTS, *FLOATS])
@pytest.mark.parametrize("predicate", ORDER)
def test_comparison(short: str, predicate: str) -> None:
    f = FORMATS.get(short)
    rows = int_rows(INTEGERS[short]) if f is None else float_rows(f)

    def value(p: int) -> float:
        return p if f is None else f.decode(p)

    check(
        arith.Cmp, [short, short], rows,
        lambda a, b: int(ORDER[predicate](value(a), value(b))), predicate=predicate,
    )  # fmt: skip


@pytest.mark.parametrize("short", [*INTS, *FLOATS])
def test_select_picks_bits(short: str) -> None:
    f = FORMATS.get(short)
    rows = int_rows(INTEGERS[short]) if f is None else float_rows(f)[::5]
    cases = [(i % 2, *row) for i, row in enumerate(rows)]
    keep = (lambda p: p) if f is None else f.canonical
    check(arith.Select, ["i1", short, short], cases, lambda c, a, b: keep(a if c else b))


# -- floats ----------------------------------------------------------------------------------------


def product_sign(a: float, b: float) -> bool:
    return (math.copysign(1, a) < 0) != (math.copysign(1, b) < 0)


def exact_add(a: float, b: float) -> Fraction | float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b
    total = Fraction(a) + Fraction(b)
    # a zero sum is +0, but for -0 + -0
    return total if total != 0 else a + b


def exact_mul(a: float, b: float) -> Fraction | float:
    if not (math.isfinite(a) and math.isfinite(b)) or a == 0 or b == 0:
        return a * b
    return Fraction(a) * Fraction(b)


def exact_div(a: float, b: float) -> Fraction | float:
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)) or a == b == 0:
        return math.nan
    sign = -1.0 if product_sign(a, b) else 1.0
    if math.isinf(a) or b == 0:
        return sign * math.inf
    if math.isinf(b) or a == 0:
        return sign * 0.0
    return Fraction(a) / Fraction(b)


def exact_fmod(a: float, b: float) -> Fraction | float:
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
        return math.nan
    if math.isinf(b) or a == 0:
        return a
    x, y = abs(Fraction(a)), abs(Fraction(b))
    rest = x - (x // y) * y
    return math.copysign(0.0, a) if rest == 0 else (rest if a > 0 else -rest)


FLOAT_OPS: dict[type[Any], Callable[[float, float], Fraction | float]] = {
    arith.Add: exact_add,
    arith.Sub: lambda a, b: exact_add(a, -b),
    arith.Mul: exact_mul,
    arith.Div: exact_div,
    arith.Rem: exact_fmod,
}


@pytest.mark.parametrize("short", FLOATS)
@pytest.mark.parametrize("cls", FLOAT_OPS, ids=lambda c: c.name)
def test_float_arithmetic_is_correctly_rounded(cls: Any, short: str) -> None:
    f = FORMATS[short]

    def expected(a: int, b: int) -> int:
        exact = FLOAT_OPS[cls](f.decode(a), f.decode(b))
        negative = product_sign(f.decode(a), f.decode(b))
        # fp8 is computed wide and converted back, and such a conversion saturates
        return f.encode(exact, saturate=f.bits == 8, negative_zero=negative)

    check(cls, [short, short], float_rows(f), expected)


@pytest.mark.parametrize("short", FLOATS)
@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("cls", [arith.Min, arith.Max])
def test_float_extremes(cls: Any, propagate: bool, short: str) -> None:
    f = FORMATS[short]

    def expected(a: int, b: int) -> int:
        x, y = f.decode(a), f.decode(b)
        if math.isnan(x) or math.isnan(y):
            return f.nan if propagate or (x != x and y != y) else b if math.isnan(x) else a
        key = [(x, math.copysign(1, x)), (y, math.copysign(1, y))]
        first = key[0] <= key[1] if cls is arith.Min else key[0] >= key[1]
        return a if first else b

    check(cls, [short, short], float_rows(f), expected, propagate_nan=propagate)


@pytest.mark.parametrize("short", FLOATS)
def test_float_neg_and_abs(short: str) -> None:
    f = FORMATS[short]
    rows = [(p,) for p in (range(256) if f.bits == 8 else f.samples(100))]
    check(arith.Neg, [short], rows, lambda p: f.encode(-f.decode(p)))
    check(arith.Abs, [short], rows, lambda p: f.encode(abs(f.decode(p))))


def test_neg_and_abs_flip_the_sign_of_a_nan_too() -> None:
    nan = array_of("fp32", [0xFFC00001, 0x7FC00001])
    tile = Tile((2,), FP32)
    assert run_op(arith.Neg, [tile], [nan])[0].view(np.uint32).tolist() == [0x7FC00001, 0xFFC00001]
    assert run_op(arith.Abs, [tile], [nan])[0].view(np.uint32).tolist() == [0x7FC00001] * 2


def exact_fma(a: float, b: float, c: float) -> Fraction | float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total != 0:
        return total
    # exact zero: the common sign of product and addend, else +0
    return -0.0 if product_sign(a, b) and math.copysign(1, c) < 0 else 0.0


@pytest.mark.parametrize("short", FLOATS)
def test_fma_rounds_once(short: str) -> None:
    f = FORMATS[short]
    s = f.samples(60)
    rows = list(product(s[::4], s[1::4], s[::5]))
    # products that end on a tie, which a tiny addend decides: what rounding twice gets wrong
    one, tiny = f.encode(1.0), [1, 1 | f.sign_bit]
    half = f.encode(1 + Fraction(1, 2 ** ((f.mantissa + 1) // 2)))
    rows += [(half, half, z) for z in tiny] + [(one + 1, f.encode(1.5), z) for z in tiny]
    check(
        arith.Fma, [short] * 3, rows,
        lambda a, b, c: f.encode(
            exact_fma(f.decode(a), f.decode(b), f.decode(c)), saturate=f.bits == 8
        ),
    )  # fmt: skip


# -- casts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("source", FLOATS)
def test_cast_between_floats(source: str, to: str, rounding: str) -> None:
    f, g = FORMATS[source], FORMATS[to]
    patterns = list(range(256)) if f.bits == 8 else f.samples(300)
    if f.bits > g.bits:  # every tie between neighbours of the target, and its neighbours
        for p in g.samples(60):
            low, high = g.decode(p), g.decode(p + 1 & (1 << g.bits) - 1)
            if math.isfinite(low) and math.isfinite(high) and (low < 0) == (high < 0):
                tie = f.encode((Fraction(low) + Fraction(high)) / 2)
                patterns += [tie, tie + 1, tie - 1 if tie & (f.sign_bit - 1) else tie]

    def expected(p: int) -> int:
        if source == to:
            return f.canonical(p)
        return g.encode(f.decode(p), toward_zero=rounding == "rtz", saturate=g.bits == 8)

    check(
        arith.Cast,
        [source],
        [(p,) for p in patterns],
        expected,
        to=scalar_type(to),
        rounding=rounding,
    )


@pytest.mark.parametrize("to", INTS)
@pytest.mark.parametrize("source", FLOATS)
def test_cast_from_float_to_integer_truncates_and_saturates(source: str, to: str) -> None:
    f, t = FORMATS[source], INTEGERS[to]
    patterns = list(range(256)) if f.bits == 8 else f.samples(200)
    for bound in (t.low, t.high):
        for d in (-2, -1, -0.5, 0, 0.5, 1, 2):
            patterns.append(f.encode(Fraction(bound) + Fraction(d), saturate=True))

    def expected(p: int) -> int:
        value = f.decode(p)
        if to == "i1":
            return int(value != 0)  # a NaN is not 0
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return t.high if value > 0 else t.low
        return min(max(math.trunc(value), t.low), t.high)

    check(arith.Cast, [source], [(p,) for p in patterns], expected, to=scalar_type(to))


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("source", INTS)
def test_cast_from_integer_to_float_rounds_to_nearest_even(source: str, to: str) -> None:
    t, f = INTEGERS[source], FORMATS[to]
    rows = [(v,) for v in t.samples(200)]
    for bits in range(f.mantissa, min(t.bits - 1, f.mantissa + 6)):  # ties
        rows += [
            (t.wrap((1 << bits) + (1 << max(bits - f.mantissa - 1, 0)) + d),) for d in (-1, 0, 1)
        ]

    def expected(v: int) -> int:
        wide = FORMATS["fp64"]
        # narrow floats are reached through fp64, which rounds integers of more than 53 bits
        value = wide.decode(wide.encode(Fraction(v))) if f.bits < 32 else Fraction(v)
        return f.encode(value, saturate=f.bits == 8)

    check(arith.Cast, [source], rows, expected, to=scalar_type(to))


@pytest.mark.parametrize("to", INTS)
@pytest.mark.parametrize("source", INTS)
def test_cast_between_integers(source: str, to: str) -> None:
    t, u = INTEGERS[source], INTEGERS[to]
    rows = [(v,) for v in t.samples(60)]
    check(
        arith.Cast,
        [source],
        rows,
        lambda v: int(v != 0) if to == "i1" else u.wrap(v),
        to=scalar_type(to),
    )


WIDTH = {**{s: f.bits for s, f in FORMATS.items()}, **{s: t.bits for s, t in INTEGERS.items()}}


@pytest.mark.parametrize("source", WIDTH)
def test_bitcast_keeps_the_bits(source: str) -> None:
    for to in (t for t in WIDTH if WIDTH[t] == WIDTH[source]):
        f = FORMATS.get(source)
        numbers = INTEGERS[source].samples(40) if f is None else f.samples(40)
        tile = Tile((len(numbers),), scalar_type(source))
        array = array_of(source, numbers)
        (out,) = run_op(arith.Bitcast, [tile], [array], to=scalar_type(to))
        assert out.tobytes() == array.tobytes()


# -- constants, hints, pointers --------------------------------------------------------------------


@pytest.mark.parametrize("short", INTS)
def test_integer_constants(short: str) -> None:
    t = INTEGERS[short]
    for v in (t.low, t.high, 0):
        value = bool(v) if short == "i1" else v
        (out,) = run_op(arith.Constant, [], [], value=value, type=Tile((2, 3), scalar_type(short)))
        assert out.shape == (2, 3)
        assert numbers_of(short, out) == [v] * 6


@pytest.mark.parametrize("short", FLOATS)
def test_float_constants(short: str) -> None:
    f = FORMATS[short]
    for p in f.samples(60):
        (out,) = run_op(arith.Constant, [], [], value=f.decode(p), type=scalar_type(short))
        assert numbers_of(short, out) == [f.canonical(p)]


def test_hint_changes_nothing() -> None:
    values = np.array([3, 1, 2], np.int32)
    facts = {"divisibility": (16,), "contiguity": (0,), "constancy": (1,)}
    (out,) = run_op(arith.Hint, [Tile((3,), I32)], [values], **facts)
    assert out.tolist() == [3, 1, 2]


def test_stop_gradient_changes_nothing() -> None:
    values = array_of("fp32", [0xFFC00001, 0x80000000, 0x3F800000])
    (out,) = run_op(marks.StopGradient, [Tile((3,), FP32)], [values])
    assert out.view(np.uint32).tolist() == [0xFFC00001, 0x80000000, 0x3F800000]


@pytest.mark.parametrize("offset", MULTIBIT)
@pytest.mark.parametrize("pointee", ["i1", "i8", "fp16", "fp32", "fp64", "ptr"])
def test_pointers_move_by_elements(pointee: str, offset: str) -> None:
    element = Pointer(FP32) if pointee == "ptr" else scalar_type(pointee)
    size = {"ptr": 8, "i1": 1}.get(pointee) or WIDTH[pointee] // 8
    offsets = INTEGERS[offset].samples(10)
    n = len(offsets)
    base = 0x7F00_0000_0000
    (out,) = run_op(
        AddPtr,
        [Tile((n,), Pointer(element)), Tile((n,), scalar_type(offset))],
        [np.full(n, base, np.uint64), array_of(offset, offsets)],
    )
    assert out.tolist() == [(base + o * size) % 2**64 for o in offsets]


def test_a_pointer_is_bitcast_to_its_address() -> None:
    address = np.array([2**63 + 5], np.uint64)
    (out,) = run_op(arith.Bitcast, [Tile((1,), Pointer(FP32))], [address], to=I64)
    assert out.tolist() == [-(2**63) + 5]


# -- elementary functions --------------------------------------------------------------------------


def total(f: Callable[[float], float], **special: float) -> Callable[[float], float]:
    """`f`, with the values that Python's math module raises for."""
    names = {"inf": math.inf, "minus_inf": -math.inf, "zero": 0.0}
    values = {names[name]: value for name, value in special.items() if name in names}

    def function(x: float) -> float:
        if math.isnan(x):
            return math.nan
        if x in values:
            return values[x]
        if x < special.get("below", -math.inf):
            return math.nan
        try:
            return f(x)
        except OverflowError:
            return math.inf

    return function


def rsqrt(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / math.sqrt(x)


FUNCTIONS: dict[type[Any], Callable[[float], float]] = {
    op_math.Exp: total(math.exp),
    op_math.Exp2: total(lambda x: 2.0**x),
    op_math.Expm1: total(math.expm1),
    op_math.Log: total(math.log, zero=-math.inf, below=0),
    op_math.Log2: total(math.log2, zero=-math.inf, below=0),
    op_math.Log10: total(math.log10, zero=-math.inf, below=0),
    op_math.Log1p: total(lambda x: -math.inf if x == -1 else math.log1p(x), below=-1),
    op_math.Sin: total(math.sin, inf=math.nan, minus_inf=math.nan),
    op_math.Cos: total(math.cos, inf=math.nan, minus_inf=math.nan),
    op_math.Tan: total(math.tan, inf=math.nan, minus_inf=math.nan),
    op_math.Tanh: total(math.tanh),
    op_math.Erf: total(math.erf),
    op_math.Sqrt: total(math.sqrt, below=0),
    op_math.Rsqrt: total(rsqrt, below=0),
}


def distance(f: Format, p: int, exact: float) -> float:
    """How far a pattern's value is from an exact one, in units of the last place."""
    value = f.decode(p)
    if math.isnan(exact) or math.isnan(value):
        return 0.0 if math.isnan(exact) and math.isnan(value) else math.inf
    nearest = f.encode(exact, saturate=f.bits == 8)
    if value == f.decode(nearest):
        return 0.0
    if not (math.isfinite(value) and math.isfinite(exact)):
        return math.inf
    magnitude = nearest & (f.sign_bit - 1)
    ulp = abs(f.decode(magnitude) - f.decode(magnitude - 1 if magnitude else 1))
    return abs(value - exact) / ulp


# fp8e4b15 has no NaN, and conversion to it rounds twice.
@pytest.mark.parametrize("short", [s for s in FLOATS if s != "fp8e4b15"])
@pytest.mark.parametrize("cls", FUNCTIONS, ids=lambda c: c.name)
def test_elementary_functions_are_within_an_ulp(cls: Any, short: str) -> None:
    f = FORMATS[short]
    patterns = list(range(256)) if f.bits == 8 else f.samples(200)
    patterns += [f.encode(v, saturate=True) for v in (-1.0, 10.0, -10.0, 88.0, 700.0, 1e-5, 40.0)]
    got = elementwise(cls, [short], [patterns])
    # NumPy's fp64 functions are not correctly rounded; below, fp64 is rounded once more
    limit = 2.5 if short == "fp64" else 0.51
    for p, g in zip(patterns, got, strict=True):
        exact = FUNCTIONS[cls](f.decode(p))
        assert distance(f, g, exact) <= limit, f"{f.decode(p)} gives {f.decode(g)}, not {exact}"


@pytest.mark.parametrize("short", FLOATS)
def test_square_root_is_correctly_rounded(short: str) -> None:
    f = FORMATS[short]
    patterns = list(range(256)) if f.bits == 8 else f.samples(200)

    def expected(p: int) -> int:
        x = f.decode(p)
        if not x > 0 or math.isinf(x):
            return f.encode(x if x == 0 or x > 0 else math.nan, saturate=f.bits == 8)
        # x * 4^k as an integer: its root's bits decide, and one more bit says "not exact"
        k = 1200
        scaled = Fraction(x) * 4**k
        root = math.isqrt(scaled.numerator // scaled.denominator)
        inexact = root * root != scaled
        return f.encode(Fraction(2 * root + inexact, 2 ** (k + 1)))

    for ieee in (False, True):
        check(op_math.Sqrt, [short], [(p,) for p in patterns], expected, ieee=ieee)


@pytest.mark.parametrize("short", FLOATS)
@pytest.mark.parametrize(
    ("cls", "function"),
    [
        (op_math.Floor, math.floor),
        (op_math.Ceil, math.ceil),
        (op_math.Trunc, math.trunc),
        (op_math.Rint, round),
    ],
)
def test_roundings_to_integers(cls: Any, function: Callable[[float], int], short: str) -> None:
    f = FORMATS[short]
    patterns = list(range(256)) if f.bits == 8 else f.samples(200)

    def expected(p: int) -> int:
        x = f.decode(p)
        if not math.isfinite(x):
            return f.encode(x, saturate=f.bits == 8)
        return f.encode(Fraction(function(x)), negative_zero=math.copysign(1, x) < 0)

    check(cls, [short], [(p,) for p in patterns], expected)
